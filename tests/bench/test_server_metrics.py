"""What a server's own histograms say of a load: the difference of two pages."""

from __future__ import annotations

import contextlib
import math

import pytest

from headway.bench.server_metrics import parse_histograms, since

PAGE = """\
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{engine="0",le="0.1",model_name="m"}} {0}
vllm:time_to_first_token_seconds_bucket{{engine="0",le="0.5",model_name="m"}} {1}
vllm:time_to_first_token_seconds_bucket{{engine="0",le="+Inf",model_name="m"}} {2}
vllm:time_to_first_token_seconds_count{{engine="0",model_name="m"}} {2}
vllm:time_to_first_token_seconds_sum{{engine="0",model_name="m"}} {3}
"""


def test_only_what_came_between_counts() -> None:
    before, after = PAGE.format(5, 9, 10, 4.0), PAGE.format(6, 18, 20, 9.0)
    histogram = since(parse_histograms(before), parse_histograms(after))["ttft"]
    assert histogram.count == 10
    assert histogram.mean_s == pytest.approx(0.5)
    assert histogram.between_s(50) == (0.1, 0.5)
    assert histogram.between_s(99) == (0.5, math.inf)


def test_several_engines_are_one_server() -> None:
    other = PAGE.format(1, 2, 3, 1.0).replace('engine="0"', 'engine="1"')
    histogram = parse_histograms(PAGE.format(5, 9, 10, 4.0) + other)["ttft"]
    assert histogram.count == 13
    assert histogram.total_s == 5.0


def test_a_server_that_started_again_says_nothing() -> None:
    before, after = PAGE.format(5, 9, 10, 4.0), PAGE.format(1, 1, 2, 0.2)
    assert since(parse_histograms(before), parse_histograms(after)) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00\xff",
        "{}",
        "vllm:time_to_first_token_seconds_bucket{le=",
        PAGE.format("x", "y", "z", "nan"),
        PAGE.format(1, 2, 3, 1).replace("+Inf", "abc"),
    ],
)
def test_garbage_raises_one_kind_of_error_or_says_nothing(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse_histograms(text) == {}
