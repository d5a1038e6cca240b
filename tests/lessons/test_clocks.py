"""The roofline, told to leave things out, is the formula of either article."""

from __future__ import annotations

import pytest

from headway.simulator.step_time.base import PlacedChunk, shape_of
from tests.lessons.clocks import CLOCK_1, CLOCK_2, CONTEXT_2, QWEN, WEIGHTS_1, decode_ms


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


def test_the_weights_of_article_1_are_those_of_its_model():
    assert round(QWEN.weight_bytes() / 2**30, 2) == 15.26


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
