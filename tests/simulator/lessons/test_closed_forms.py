"""What both published articles compute without a simulation comes out of the roofline.

`expected.json` holds every printed figure with its tolerance. The articles' clocks leave out what
the roofline counts by default; they are spelled out here as RooflineModels.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest

from headway.core.config import SchedulerConfig
from headway.simulator.step_time.base import PlacedChunk, StepShape, shape_of
from headway.simulator.step_time.hardware import hardware_named
from headway.simulator.step_time.models import shape_named
from headway.simulator.step_time.roofline import RooflineModel

ITEMS = json.loads((Path(__file__).parent / "expected.json").read_text())["items"]
H100 = hardware_named("h100")
PEAK_READ, PEAK_BF16 = H100.memory_bytes_per_second, H100.peak_flops["bf16"]
QWEN = shape_named("Qwen3-8B")
LLAMA = shape_named("Llama-3-8B")

WEIGHTS_1 = 15.26 * 2**30
CLOCK_1 = RooflineModel(
    weight_bytes=WEIGHTS_1,
    flops_per_token=WEIGHTS_1,
    decode_kv_bytes=QWEN.kv_bytes_per_token(),
    bytes_per_second=0.80 * PEAK_READ,
    flops_per_second=0.70 * PEAK_BF16,
)
PARAMETERS_2 = 8.0e9
CLOCK_2 = RooflineModel(
    weight_bytes=2 * PARAMETERS_2,
    flops_per_token=2 * PARAMETERS_2,
    prefill_flops_per_attended=LLAMA.attention_flops_per_pair,
    prefill_attended_shift=-0.5,
    decode_kv_bytes=LLAMA.kv_bytes_per_token(),
    bytes_per_second=0.80 * PEAK_READ,
    flops_per_second=0.60 * PEAK_BF16,
    overhead_ns=500_000,
)
CONTEXT_2 = 1125  # mean prompt and half the mean output


def check(article: int, name: str, value: float) -> None:
    """Against the printed figure, within its tolerance."""
    (item,) = (i for i in ITEMS if i["article"] == article and i["name"] == name)
    published, tolerance = item["published"], item["tolerance"]
    match tolerance["mode"]:
        case "equal":
            assert value == published
        case "abs":
            assert value == pytest.approx(published, rel=0, abs=tolerance["value"])
        case "rel":
            assert value == pytest.approx(published, rel=tolerance["value"], abs=0)


def decode_ms(batch: int) -> float:
    shape = StepShape(num_decode_tokens=batch, decode_attended=batch * CONTEXT_2, num_samples=batch)
    return CLOCK_2.step_ns(shape) / 1e6


def prefill_ms(num_tokens: int) -> float:
    return CLOCK_2.step_ns(shape_of([PlacedChunk(0, num_tokens, num_tokens, True)])) / 1e6


def lengths(mean: float, sigma: float, low: int, high: int) -> dict[int, float]:
    """Probabilities of a lognormal length, rounded, then clipped."""
    mu = math.log(mean) - sigma**2 / 2

    def below(value: float) -> float:
        return 0.5 * (1 + math.erf((math.log(value) - mu) / (sigma * math.sqrt(2))))

    edges = [0.0, *(below(n + 0.5) for n in range(low, high)), 1.0]
    return {low + i: b - a for i, (a, b) in enumerate(itertools.pairwise(edges))}


def mean_max(outputs: dict[int, float], count: int) -> float:
    """Of the longest of so many independent ones: the sum of P(max > n)."""
    below, total = 0.0, float(min(outputs))
    for probability in list(outputs.values())[:-1]:
        below += probability
        total += 1 - below**count
    return total


PROMPTS_2 = lengths(1000, 0.8, 32, 8192)
OUTPUTS_2 = lengths(250, 0.8, 8, 2048)


@pytest.mark.parametrize(
    ("prefill", "decodes"),
    [(0, (1, 16)), (0, (100, 2000, 8192)), (8192, ()), (8000, (1000,) * 192), (1, ()), (300, (5,))],
)
def test_the_clock_of_article_1(prefill, decodes):
    """Memory of weights and of decodes' contexts, or two operations a parameter and token."""
    chunks = [PlacedChunk(100, prefill, 20_000, False)] if prefill else []
    chunks += [PlacedChunk(cached, 1, 1, True) for cached in decodes]
    attended = sum(cached + 1 for cached in decodes)
    memory = (WEIGHTS_1 + 147_456 * attended) / (0.8 * 3.35e12)
    compute = WEIGHTS_1 * (prefill + len(decodes)) / (0.7 * 989e12)
    assert CLOCK_1.step_ns(shape_of(chunks)) == round(max(memory, compute) * 1e9)


@pytest.mark.parametrize("prompts", [(1,), (32,), (1000,), (8192,), (5, 700, 4096)])
def test_the_prefill_clock_of_article_2(prompts):
    compute = sum(2 * 8e9 * p + 2 * 32 * 4096 * p * p for p in prompts) / (0.6 * 989e12)
    expected = 0.5e-3 + max(compute, 16e9 / (0.8 * 3.35e12))
    shape = shape_of(PlacedChunk(0, p, p, True) for p in prompts)
    assert CLOCK_2.step_ns(shape) == round(expected * 1e9)


@pytest.mark.parametrize("batch", [1, 4, 64, 256, 600])
def test_the_decode_clock_of_article_2(batch):
    memory = (16e9 + 131_072 * CONTEXT_2 * batch) / (0.8 * 3.35e12)
    expected = 0.5e-3 + max(16e9 * batch / (0.6 * 989e12), memory)
    assert decode_ms(batch) * 1e6 == round(expected * 1e9)


def test_memory_of_article_1():
    per_token, blocks = QWEN.kv_bytes_per_token(), QWEN.blocks_in(16 << 30)
    check(1, "KV bytes per token", per_token)
    check(1, "KV KiB per token", per_token / 1024)
    check(1, "16 GiB pool, blocks of 16", blocks)
    check(1, "16 GiB pool, tokens", blocks * 16)
    held = SchedulerConfig().num_blocks_for(1368 + 256)
    check(1, "blocks held by prompt 1368 + output 256", held)
    check(1, "sequences that fit at final size", blocks // held)
    assert round(QWEN.weight_bytes() / 2**30, 2) == 15.26


def test_curve_of_article_2():
    check(2, "ridge, FLOP/byte", round(PEAK_BF16 / PEAK_READ))
    alone = CLOCK_2.step_ns(StepShape()) / 1e6
    gamma = (decode_ms(200) - decode_ms(100)) / 100
    check(2, "a, ms", alone)
    check(2, "gamma at 1,125-token contexts, ms per sequence", gamma)
    check(2, "step latency at batch 1, ms", decode_ms(1))
    check(2, "step latency at batch 256, ms", decode_ms(256))
    for batch in (1, 64, 256):
        check(2, f"throughput at batch {batch}", batch / decode_ms(batch) * 1e3)
    check(2, "gain of batch 256 over 1", 256 * decode_ms(1) / decode_ms(256))
    check(2, "step latency ratio 256 over 1", decode_ms(256) / decode_ms(1))


def test_lengths_of_article_2():
    mean_output = sum(n * p for n, p in OUTPUTS_2.items())
    check(2, "mean output after clipping", mean_output)
    check(2, "mean prompt after clipping", sum(n * p for n, p in PROMPTS_2.items()))
    for batch in (4, 16, 64):
        longest = mean_max(OUTPUTS_2, batch)
        check(2, f"E[max output] B={batch}", longest)
        check(2, f"slot utilisation B={batch}", mean_output / longest)


def test_capacity_of_article_2():
    prefill = sum(prefill_ms(n) * p for n, p in PROMPTS_2.items())
    check(2, "mean prefill, ms", prefill)
    per_token = decode_ms(256) / 256
    check(2, "decode cost per token at batch 256, ms", per_token)
    per_request = 28.3 + 248 * per_token
    check(2, "GPU time per request, ms", per_request)
    check(2, "bound, requests/s", 1e3 / per_request)
    check(2, "bound, output tokens/s", 248 * 1e3 / per_request)
    check(2, "prefill share of GPU time, percent", 100 * 28.3 / per_request)


def test_littles_law_of_article_2():
    """b = rate x mean output x t(b), with t(b) = a + gamma b."""
    alone = CLOCK_2.step_ns(StepShape()) / 1e9
    gamma = (decode_ms(200) - decode_ms(100)) / 100 / 1e3
    tokens_per_second = 10 * 248
    batch = tokens_per_second * alone / (1 - tokens_per_second * gamma)
    check(2, "decode batch at 10 req/s", batch)
