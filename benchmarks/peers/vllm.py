"""vLLM's CPU build, offline; its engine core is a process of its own, as by default."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.peers.engine import (
    CHUNK_TOKENS,
    MAX_BATCH,
    Engine,
    Item,
    Setup,
    check,
    steps_between,
)

FORMS = {"bf16": "hf", "int8": "w8a8"}


def cache_gib(setup: Setup) -> int:
    return max(1, -(-setup.kv_bytes >> 30))


def environment(setup: Setup) -> dict[str, str]:
    return {
        "VLLM_CPU_KVCACHE_SPACE": str(cache_gib(setup)),
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{setup.num_threads - 1}",  # its default leaves one out
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


class Vllm(Engine):
    def __init__(self, setup: Setup) -> None:
        os.environ |= environment(setup)  # read when vLLM is imported
        import vllm

        form = FORMS[setup.weights]
        self._llm = vllm.LLM(
            str(setup.folder / form),
            dtype="bfloat16",
            max_model_len=setup.max_len,
            max_num_seqs=MAX_BATCH,
            max_num_batched_tokens=CHUNK_TOKENS,
            enable_prefix_caching=False,
            disable_log_stats=True,
        )
        self._params = vllm.SamplingParams
        self._serial = itertools.count()
        self.version = vllm.__version__
        self.settings = f"{form}, compiled, cache {cache_gib(setup)} GiB"

    def generate(self, items: Sequence[Item]) -> float:
        started = time.perf_counter()
        self._run(items)
        return time.perf_counter() - started

    def decode(self, items: Sequence[Item]) -> list[float]:
        return steps_between(self._run(items), [count for _, count in items])

    def _run(self, items: Sequence[Item]) -> list[tuple[float, list[int]]]:
        engine = self._llm.llm_engine
        order: dict[str, int] = {}
        for index, (prompt, count) in enumerate(items):
            name = f"request-{next(self._serial)}"
            engine.add_request(name, {"prompt_token_ids": prompt}, self._greedy(count))
            order[name] = index
        counts = [0] * len(items)
        seen = []
        while engine.has_unfinished_requests():
            outputs = engine.step()
            now = time.perf_counter()
            for output in outputs:
                counts[order[output.request_id]] = len(output.outputs[0].token_ids)
            if outputs:
                seen.append((now, list(counts)))
        check(counts, items)
        return seen

    def _greedy(self, count: int) -> Any:
        return self._params(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)


def open_engine(setup: Setup) -> Engine:
    return Vllm(setup)
