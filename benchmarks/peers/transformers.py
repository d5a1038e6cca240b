"""transformers' continuous batching (`generate_batch`'s engine), in this process; bfloat16 only."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import torch
import transformers
from benchmarks.peers.engine import CHUNK_TOKENS, MAX_BATCH, Engine, Item, Setup, check
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

PAGE = 32


class Transformers(Engine):
    def __init__(self, setup: Setup) -> None:
        torch.set_num_threads(setup.num_threads)
        model = AutoModelForCausalLM.from_pretrained(
            setup.folder / "hf", dtype=torch.bfloat16, attn_implementation="sdpa"
        ).eval()
        generation = GenerationConfig(
            do_sample=False,
            max_new_tokens=setup.max_len,
            eos_token_id=-1,
            pad_token_id=0,
            use_cache=True,
        )
        batching = ContinuousBatchingConfig(
            page_size=PAGE,
            num_blocks=setup.kv_tokens // PAGE + MAX_BATCH,
            max_batch_tokens=CHUNK_TOKENS,
            max_requests_per_batch=MAX_BATCH,
            allow_block_sharing=False,
        )
        self._engine = model.init_continuous_batching(
            generation_config=generation, continuous_batching_config=batching
        )
        self._engine.start()
        self.version = transformers.__version__
        self.settings = f"pages of {PAGE}, torch {torch.__version__}"

    def generate(self, items: Sequence[Item]) -> float:
        engine = self._engine
        started = time.perf_counter()
        order = {
            engine.add_request(list(prompt), max_new_tokens=count, eos_token_id=-1): index
            for index, (prompt, count) in enumerate(items)
        }
        counts = [0] * len(items)
        left = len(items)
        while left:
            result = engine.get_result(timeout=1)
            if result is not None and result.is_finished():
                left -= 1
                counts[order[result.request_id]] = len(result.generated_tokens)
            elif result is None and not engine.is_running():
                raise RuntimeError("the generation thread ended")
        seconds = time.perf_counter() - started
        check(counts, items)
        return seconds

    def close(self) -> None:
        os._exit(0)  # its threads do not end by themselves


def open_engine(setup: Setup) -> Engine:
    return Transformers(setup)
