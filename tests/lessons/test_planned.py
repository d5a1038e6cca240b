"""Every figure of the articles that can be known before a launch, as `headway plan` computes it.

The rest are runs: somebody has to serve the requests to know them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from headway.insight.plan.capacity import batch_at, machine_seconds
from headway.insight.plan.demand import Demand, thinned
from headway.insight.plan.memory import KvCache, kv_cache
from headway.insight.plan.prefilling import Prefilling
from headway.insight.plan.timing import Decoding, flops_per_byte
from tests.lessons.clocks import CLOCK_2, CONTEXT_2, H100, QWEN
from tests.lessons.poisson import OUTPUT_LAW, PROMPT_LAW
from tests.lessons.published import FIGURES, Figure

CACHE = kv_cache(QWEN, dtype="bf16", block_size=16, pool_bytes=16 << 30)
DECODING = Decoding(CLOCK_2, CONTEXT_2)
PREFILLING = Prefilling(DECODING, 1 << 20, is_mixed=False)
DEMAND = Demand.of_laws(PROMPT_LAW, OUTPUT_LAW)
OUTPUT_TOKENS, PREFILL_MS = 248, 28.3  # as printed


def logged() -> KvCache:
    """The pool of the log line of vLLM that the article quotes."""
    return kv_cache(QWEN, dtype="bf16", block_size=1, num_blocks=434_657)


def mean_prefill_ms() -> float:
    lengths, shares = thinned(DEMAND.prompts, 1 << 14)
    pairs = zip(lengths.tolist(), shares.tolist(), strict=True)
    return 1e3 * sum(PREFILLING.prompt_s(p) * share for p, share in pairs)


def gpu_ms() -> float:
    return machine_seconds(PREFILL_MS, OUTPUT_TOKENS, 1e3 * DECODING.step_s(256) / 256)


def batch_of_decodes(rate: float) -> float:
    found = batch_at(rate, lambda b: OUTPUT_TOKENS * DECODING.step_s(b) / b if b else math.inf, 256)
    assert found is not None
    return found


def waste(batch: int) -> float:
    return DEMAND.outputs.mean() / DEMAND.outputs.expected_max(batch)


PLANNED: dict[tuple[int, str], Callable[[], float]] = {
    (1, "KV bytes per token"): lambda: CACHE.bytes_per_token,
    (1, "KV KiB per token"): lambda: CACHE.bytes_per_token / 1024,
    (1, "16 GiB pool, blocks of 16"): lambda: CACHE.num_blocks,
    (1, "16 GiB pool, tokens"): lambda: CACHE.num_tokens,
    (1, "blocks held by prompt 1368 + output 256"): lambda: CACHE.blocks_for(1368 + 256),
    (1, "sequences that fit at final size"): lambda: (
        CACHE.num_blocks // CACHE.blocks_for(1368 + 256)
    ),
    (1, "maximum concurrency, 434,657 tokens at 8,192"): lambda: round(
        logged().worst_case(8192), 2
    ),
    (1, "slots never reached at default 1024"): lambda: 1024 - int(logged().worst_case(8192)),
    (2, "ridge, FLOP/byte"): lambda: round(flops_per_byte(H100, "bf16")),
    (2, "a, ms"): lambda: 1e3 * DECODING.line(256)[0],
    (2, "gamma at 1,125-token contexts, ms per sequence"): lambda: 1e3 * DECODING.line(256)[1],
    (2, "step latency at batch 1, ms"): lambda: 1e3 * DECODING.step_s(1),
    (2, "step latency at batch 256, ms"): lambda: 1e3 * DECODING.step_s(256),
    (2, "throughput at batch 1"): lambda: DECODING.tokens_per_second(1),
    (2, "throughput at batch 64"): lambda: DECODING.tokens_per_second(64),
    (2, "throughput at batch 256"): lambda: DECODING.tokens_per_second(256),
    (2, "gain of batch 256 over 1"): lambda: (
        DECODING.tokens_per_second(256) / DECODING.tokens_per_second(1)
    ),
    (2, "step latency ratio 256 over 1"): lambda: DECODING.step_s(256) / DECODING.step_s(1),
    (2, "mean output after clipping"): DEMAND.outputs.mean,
    (2, "mean prompt after clipping"): DEMAND.prompts.mean,
    (2, "E[max output] B=4"): lambda: DEMAND.outputs.expected_max(4),
    (2, "E[max output] B=16"): lambda: DEMAND.outputs.expected_max(16),
    (2, "E[max output] B=64"): lambda: DEMAND.outputs.expected_max(64),
    (2, "slot utilisation B=4"): lambda: waste(4),
    (2, "slot utilisation B=16"): lambda: waste(16),
    (2, "slot utilisation B=64"): lambda: waste(64),
    (2, "mean prefill, ms"): mean_prefill_ms,
    (2, "decode cost per token at batch 256, ms"): lambda: 1e3 * DECODING.step_s(256) / 256,
    (2, "GPU time per request, ms"): gpu_ms,
    (2, "bound, requests/s"): lambda: 1e3 / gpu_ms(),
    (2, "bound, output tokens/s"): lambda: 1e3 * OUTPUT_TOKENS / gpu_ms(),
    (2, "prefill share of GPU time, percent"): lambda: 100 * PREFILL_MS / gpu_ms(),
    (2, "decode batch at 10 req/s"): lambda: batch_of_decodes(10),
}
# Of those kinds, what nobody can plan: shares of what a run did, and other people's measurements.
NOT_PLANNED = {
    (1, "slots never contended for at 256"): "of the peak of a run",
    (1, "dead passes of the 50-token request next to the 781-token one"): "of a run",
    (1, "extra prefill at default, percent"): "of what a run computed again",
    (1, "prefill done twice at 2 GiB, percent"): "of what a run computed again",
    (1, "mean prompt, tokens"): "of the requests that a run was given",
    (1, "speed-up of 8 slots over 1"): "of two runs",
    (1, "Orca over FasterTransformer at 190 ms"): "of a paper's measurements",
    (1, "preemptions pool_64"): "of a run",
    (1, "peak batch pool_64"): "of a run",
}
ARITHMETIC = [f for f in FIGURES.values() if f.kind in ("derivable", "closed_form")]
RUNS = {"law", "witness", "witness_law", "worked_example", "simulation"}


def test_every_figure_is_planned_or_said_to_be_of_a_run():
    assert {figure.place for figure in ARITHMETIC} == {*PLANNED, *NOT_PLANNED}
    assert not {*PLANNED} & {*NOT_PLANNED}
    assert {figure.kind for figure in FIGURES.values()} - RUNS == {"derivable", "closed_form"}


@pytest.mark.parametrize("place", PLANNED, ids=lambda place: f"{place[0]}-{place[1]}")
def test_the_plan_gives_the_printed_figure(place: tuple[int, str]):
    figure: Figure = FIGURES[place]
    figure.check(PLANNED[place]())


# 2.2 and 2.3 of the reconstruction taken at their word make 28.3052 ms.
GIVEN_LOOSELY = {"mean prefill, ms": 1e-3}


@pytest.mark.parametrize("place", PLANNED, ids=lambda place: f"{place[0]}-{place[1]}")
def test_the_plan_gives_all_digits_of_the_reconstruction(place: tuple[int, str]):
    figure = FIGURES[place]
    expected = pytest.approx(figure.reproduced, rel=GIVEN_LOOSELY.get(figure.name, 1e-5))
    assert PLANNED[place]() == expected
