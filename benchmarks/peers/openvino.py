"""OpenVINO GenAI's continuous batching pipeline, in this process.

Weights in 16 bits are float16 in the file; the plugin chooses what it computes in, and keeps keys
and values in 8 bits, both by its own defaults.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import numpy as np
import openvino
import openvino_genai
from benchmarks.peers.engine import (
    CHUNK_TOKENS,
    MAX_BATCH,
    Engine,
    Item,
    Setup,
    check,
    steps_between,
)

FORMS = {"bf16": "openvino-fp16", "int8": "openvino-int8", "int4": "openvino-int4"}


class OpenVino(Engine):
    def __init__(self, setup: Setup) -> None:
        scheduling = openvino_genai.SchedulerConfig()
        scheduling.cache_size = max(1, -(-setup.kv_bytes >> 30))
        scheduling.max_num_seqs = MAX_BATCH
        scheduling.max_num_batched_tokens = CHUNK_TOKENS
        scheduling.dynamic_split_fuse = True
        scheduling.enable_prefix_caching = False
        properties = {"INFERENCE_NUM_THREADS": setup.num_threads}
        form = FORMS[setup.weights]
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            str(setup.folder / form), scheduling, "CPU", properties
        )
        self._serial = itertools.count()
        self.version = openvino_genai.__version__
        self.settings = f"{form}, cache {scheduling.cache_size} GB"

    def generate(self, items: Sequence[Item]) -> float:
        inputs, configs = [_tensor(p) for p, _ in items], [_greedy(count) for _, count in items]
        started = time.perf_counter()
        results = self._pipeline.generate(inputs, configs)
        seconds = time.perf_counter() - started
        check([len(result.m_generation_ids[0]) for result in results], items)
        return seconds

    def decode(self, items: Sequence[Item]) -> list[float]:
        pipeline = self._pipeline
        handles = [
            pipeline.add_request(next(self._serial), _tensor(prompt), _greedy(count))
            for prompt, count in items
        ]
        counts = [0] * len(items)
        seen = []
        while pipeline.has_non_finished_requests():
            pipeline.step()
            now = time.perf_counter()
            for index, handle in enumerate(handles):
                if handle.can_read():
                    (output,) = handle.read().values()
                    counts[index] += len(output.generated_ids)
            seen.append((now, list(counts)))
        check(counts, items)
        return steps_between(seen, [count for _, count in items])


def _tensor(prompt: list[int]) -> openvino.Tensor:
    return openvino.Tensor(np.array([prompt], dtype=np.int64))


def _greedy(count: int) -> openvino_genai.GenerationConfig:
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = count
    config.ignore_eos = True
    config.do_sample = False
    return config


def open_engine(setup: Setup) -> Engine:
    return OpenVino(setup)
