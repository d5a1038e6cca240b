"""What is known of lengths: worked by hand, and against sums over every length."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import make_request

from headway.core.policies.forecast import ONE, WINDOW, LengthForecast, Survival
from headway.core.sequence import Sequence

NUMBERS = itertools.count(10_000)


def sequence(number: int, num_output: int = 0, *, most: int = 1000, prompt: int = 3, **fields):
    request = make_request(f"r{number}", [1] * prompt, max_tokens=most, **fields)
    found = Sequence(sequence_id=number, request=request, index=0, max_num_tokens=prompt + most)
    found.token_ids += [2] * num_output
    return found


def seen(*lengths: int, forecast: LengthForecast | None = None, **fields) -> LengthForecast:
    forecast = forecast or LengthForecast()
    for length in lengths:
        finish(forecast, sequence(next(NUMBERS), length, **fields))
    return forecast


def finish(forecast: LengthForecast, ended: Sequence) -> None:
    forecast.entered(ended)
    forecast.ended(ended)
    ended.finish()
    forecast.left(ended)


def test_nothing_seen_means_that_all_are_long_and_some_very():
    curve = LengthForecast().survival(sequence(1))
    assert curve.beyond(400) == ONE
    for length in (2000, 10_000, 10**6):
        assert 0.6 < curve.beyond(length) / (ONE * 512 / length) < 1.4


def test_kaplan_and_meier_by_hand():
    """Of 4 and 4 and 8 ended, one cut off at 6, one running at 5, and three phantoms, of four.

    At 4 there are eight at risk and two end: 6/8. At 8 there are four and one ends: 3/4 of that.
    What is longer than all of them has 512 tokens, less three of 64 parts of that, and from there
    on doubles as likely as not.
    """
    forecast = seen(4, 4, 8)
    finish(forecast, sequence(7, 6, most=6))
    forecast.entered(sequence(8, 5))
    curve = forecast.survival(sequence(9))
    assert [curve.beyond(n) for n in (0, 3)] == [ONE, ONE]
    assert [curve.beyond(n) for n in (4, 7)] == [ONE * 6 // 8] * 2
    assert [curve.beyond(n) for n in (8, 487)] == [ONE * 6 // 8 * 3 // 4] * 2
    assert curve.beyond(488) == ONE * 6 // 8 * 3 // 4 * 4 // 5


def test_of_who_leaves_without_an_end_nothing_is_known():
    forecast = seen(*[10] * 100)
    for number in range(1000):
        withdrawn = sequence(number)
        forecast.entered(withdrawn)
        withdrawn.finish()
        forecast.left(withdrawn)
    fresh = seen(*[10] * 100)
    assert forecast.survival(sequence(1)).shares == fresh.survival(sequence(1)).shares


def test_outputs_that_are_all_cut_off_go_on_to_their_limits():
    forecast = LengthForecast()
    for number in range(100):
        finish(forecast, sequence(number, 300, most=300))
    assert forecast.survival(sequence(1000)).beyond(299) == ONE


@pytest.mark.parametrize(("before", "after"), [(300, 900), (300, 100), (30, 3000)])
def test_a_shift_is_seen_before_those_after_it_have_filled_the_window(before, after):
    forecast = seen(*[before, before // 2, 2 * before] * 200)
    forecast.survival(sequence(1))
    for turn in range(40):
        if turn % 4 == 0:  # while some run
            forecast.entered(sequence(turn, after // 4, most=10**4))
        seen(after, after // 2, forecast=forecast, most=10**4)
        forecast.survival(sequence(1))
    curve = forecast.survival(sequence(1))
    assert curve.beyond(after) < ONE // 3 < curve.beyond(after - 1) + ONE // 50


def test_without_a_shift_the_window_stays_full():
    forecast, rng = LengthForecast(), Random(1)
    for _ in range(4000):
        seen(int(rng.expovariate(1 / 300)) + 1, forecast=forecast)
        forecast.survival(sequence(1))
    assert len(forecast.survival(sequence(1)).lengths) > WINDOW // 2


def test_who_outlives_all_that_was_seen_goes_on_for_about_as_long_again():
    forecast = seen(*[100] * WINDOW)
    left = forecast.num_tokens_left(sequence(1, 400, most=1600))
    assert 400 <= left <= 700  # a law that halves with each doubling: 400 x ln 4 is 555


def test_those_who_still_run_count():
    forecast = seen(*[10] * 100)
    short = forecast.num_tokens_left(sequence(1))
    for number in range(100):
        forecast.entered(sequence(1000 + number, 500))
    seen(*[10] * 10, forecast=forecast)  # enough news for another look
    assert forecast.num_tokens_left(sequence(1)) > 20 * short
    for number in range(100):
        gone = sequence(1000 + number)
        gone.finish()
        forecast.left(gone)
    seen(*[10] * 60, forecast=forecast)
    assert forecast.num_tokens_left(sequence(1)) < 5 * short


def test_after_a_shift_nothing_older_than_the_window_counts():
    forecast = seen(*[500] * 1000)
    shifted = seen(*[20] * WINDOW, forecast=forecast)
    fresh = seen(*[20] * WINDOW)
    new = sequence(1)
    for length in (0, 19, 20, 100, 500, 2000):
        assert shifted.survival(new).beyond(length) == fresh.survival(new).beyond(length)


def test_a_class_is_believed_once_it_has_seen_enough():
    forecast = seen(*[300] * WINDOW)
    long, short = sequence(1, prompt=3), sequence(1, prompt=100)
    seen(*[5] * 63, forecast=forecast, prompt=100)
    assert 100 < forecast.num_tokens_left(short) < forecast.num_tokens_left(long)  # everybody's
    seen(5, forecast=forecast, prompt=100)
    assert forecast.num_tokens_left(short) < 10 < 100 < forecast.num_tokens_left(long)


@pytest.mark.parametrize("most", [1, 7, 30])
def test_max_tokens_is_a_bound(most):
    forecast = seen(*[500] * WINDOW)
    assert forecast.num_tokens_left(sequence(1, most=most)) == most
    assert forecast.num_tokens_left(sequence(1, most, most=most)) == 0


lengths = st.lists(st.integers(1, 40), max_size=90)


@settings(max_examples=100, deadline=None)
@given(ended=lengths, cut=lengths, running=lengths, num_tokens=st.integers(0, 90))
def test_the_laws_of_a_forecast(ended, cut, running, num_tokens):
    forecast = seen(*ended)
    for number, length in enumerate(cut):
        finish(forecast, sequence(number, length, most=length))
    for number, length in enumerate(running):
        forecast.entered(sequence(1000 + number, length))
    curve = forecast.survival(sequence(1))
    shares = [curve.beyond(n) for n in range(120)]
    assert shares[0] == ONE
    assert all(0 < b <= a for a, b in itertools.pairwise(shares))
    assert len(curve.shares) == len(curve.lengths) + 1
    most = num_tokens + 20
    mean = sum(shares[num_tokens:most]) // shares[num_tokens]
    assert curve.num_tokens_left(num_tokens, most) == max(1, mean)
    reach = curve.reach(ONE // 2)
    assert curve.beyond(reach) <= ONE // 2 or reach == curve.lengths[-1]
    assert curve.beyond(reach - 1) > ONE // 2


def test_steps_hold_from_their_length_on():
    curve = Survival([2, 5, 1000], [ONE, ONE // 2, ONE // 4, 1])
    assert [curve.beyond(n) for n in (1, 2, 4, 5)] == [ONE, ONE // 2, ONE // 2, ONE // 4]
    assert curve.num_tokens_left(0, 5) == 2 + 1  # 1 + 1 + three halves, cut to whole tokens
