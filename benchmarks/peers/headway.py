"""Headway, in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks.peers.engine import (
    CHUNK_TOKENS,
    MAX_BATCH,
    Engine,
    Item,
    Setup,
    check,
    steps_between,
)

from headway import LLM, SamplingParams, __version__

QUANTIZATION = {"bf16": None, "int8": "int8", "int4": "int4"}


class Headway(Engine):
    def __init__(self, setup: Setup, kv_cache_dtype: str = "auto") -> None:
        quantization = QUANTIZATION[setup.weights]
        self._llm = LLM(
            str(setup.folder / "hf"),
            quantization=quantization,
            kv_cache_dtype=kv_cache_dtype,
            kv_cache_memory_bytes=setup.kv_bytes,
            max_num_seqs=MAX_BATCH,
            max_num_batched_tokens=CHUNK_TOKENS,
            max_model_len=setup.max_len,
            enable_prefix_caching=False,
            num_threads=setup.num_threads,
        )
        self.version = __version__
        self.settings = (
            f"quantization={quantization}, kv_cache_dtype={kv_cache_dtype}, "
            f"{self._llm.facts.backend}"
        )

    def generate(self, items: Sequence[Item]) -> float:
        prompts, params = [prompt for prompt, _ in items], [_greedy(count) for _, count in items]
        started = time.perf_counter()
        outputs = self._llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - started
        check([len(output.outputs[0].token_ids) for output in outputs], items)
        return seconds

    def decode(self, items: Sequence[Item]) -> list[float]:
        llm = self._llm
        requests = [llm._request(None, prompt, _greedy(count)) for prompt, count in items]
        ids = [request.request_id for request, _ in requests]
        llm._submit(requests, follows_text=True)
        seen = []
        while llm._collector.num_unfinished:
            llm._turn()
            outputs = [llm._collector.output(request_id).outputs[0] for request_id in ids]
            seen.append((time.perf_counter(), [len(output.token_ids) for output in outputs]))
        for request_id in ids:
            llm._collector.take(request_id)
        return steps_between(seen, [count for _, count in items])


def _greedy(count: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)


def open_engine(setup: Setup) -> Engine:
    return Headway(setup)
