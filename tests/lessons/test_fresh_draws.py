"""Article 1 on draws of its own law: medians over seeds lie where those of the lesson do."""

from __future__ import annotations

import pytest

from tests.lessons.drain import Drained
from tests.lessons.fresh import SEEDS, drained, middle
from tests.lessons.published import FIGURES, Figure

READINGS = {
    "throughput": lambda d: d.tokens_per_second,
    "peak batch": lambda d: d.summary.peak_batch,
    "preemptions": lambda d: d.summary.num_preemptions,
    "recomputed prompt tokens": lambda d: d.summary.num_recomputed_prompt_tokens,
    "mean batch": lambda d: d.summary.mean_batch,
    "live share": lambda d: 100 * d.summary.live_share,
}
DRAWN = [f for f in FIGURES.values() if f.article == 1 and f.band]


def reading_of(figure: Figure) -> tuple[str, str]:
    """What is read, and of which run."""
    (reading,) = (reading for reading in READINGS if figure.name.startswith(reading))
    return reading, figure.name.removeprefix(f"{reading} ").removesuffix(", percent")


@pytest.mark.parametrize("figure", DRAWN, ids=lambda figure: figure.name.replace(" ", "_"))
def test_the_median_is_in_the_band(figure):
    reading, name = reading_of(figure)
    low, _, high = figure.band
    assert low <= middle(READINGS[reading], name) <= high


@pytest.mark.parametrize(
    ("reading", "low", "high"),
    [
        ("preemptions", 37, 56),
        ("recomputed prompt tokens", 44_000, 79_000),
        ("throughput", 995, 1090),
    ],
)
def test_keeping_the_generated_tokens_has_bands_of_its_own(reading, low, high):
    """At 2 GiB: the lesson's row for vLLM's rule, which is Headway's."""
    assert low <= middle(READINGS[reading], "pool_2", starts_over=False) <= high


def test_starting_over_preempts_more_often_than_that():
    assert middle(READINGS["preemptions"], "pool_2") > 56


def rate(name: str, seed: int) -> float:
    return drained(name, seed).tokens_per_second


@pytest.mark.parametrize("seed", SEEDS)
def test_law_7_the_order_of_throughputs(seed):
    assert rate("seqs_8", seed) < rate("seqs_32", seed) < rate("seqs_64", seed)
    pools = ["pool_2", "pool_8", "seqs_256", "pool_32", "pool_64"]
    assert sorted(pools, key=lambda name: rate(name, seed)) == pools
    declared: list[Drained] = [drained(f"reserve_{m}x", seed) for m in (8, 4, 2, 1)]
    for order in (
        [d.tokens_per_second for d in declared],
        [d.summary.peak_batch for d in declared],
        [d.summary.live_share for d in declared],
    ):
        assert order == sorted(set(order))
    assert rate("static", seed) < rate("reserve_4x", seed) < rate("seqs_256", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_law_8_64_slots_beat_256_with_a_smaller_mean_batch(seed):
    few, many = drained("seqs_64", seed), drained("seqs_256", seed)
    assert few.tokens_per_second > many.tokens_per_second
    assert few.summary.mean_batch < many.summary.mean_batch


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("allocator", ["reserve", "demand"])
def test_law_9_at_spread_1x_a_pass_gains_a_little_over_a_request(allocator, seed):
    per_pass, per_request = f"uniform_{allocator}_pass", f"uniform_{allocator}_request"
    assert 1.01 < rate(per_pass, seed) / rate(per_request, seed) < 1.025
