"""What is known of lengths: worked by hand, and against sums over every length."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import make_request

from headway.core.policies.forecast import ONE, WINDOW, LengthForecast, Survival
from headway.core.sequence import Sequence


def sequence(number: int, num_output: int = 0, *, most: int = 1000, prompt: int = 3, **fields):
    request = make_request(f"r{number}", [1] * prompt, max_tokens=most, **fields)
    found = Sequence(sequence_id=number, request=request, index=0, max_num_tokens=prompt + most)
    found.token_ids += [2] * num_output
    return found


def seen(*lengths: int, forecast: LengthForecast | None = None, **fields) -> LengthForecast:
    forecast = forecast or LengthForecast()
    for number, length in enumerate(lengths):
        forecast.ended(sequence(number, length, **fields))
    return forecast


def test_nothing_seen_means_that_all_are_long_and_some_very():
    curve = LengthForecast().survival(sequence(1))
    assert curve.beyond(400) == ONE
    for length in (2000, 10_000, 10**6):
        assert 0.6 < curve.beyond(length) / (ONE * 512 / length) < 1.4


def test_kaplan_and_meier_by_hand():
    """Of 4 and 4 and 8 ended, one cut off at 6, one running at 5; each count has one more.

    At 4 there are five at risk and two end: 4/6. At 8 there is one and it ends: 1/2 of that.
    Four phantoms, faded to 61 of 64 by the three that ended, beside those three.
    """
    forecast = seen(4, 4, 8)
    forecast.ended(sequence(7, 6, most=6))
    forecast.entered(sequence(8, 5))
    curve = forecast.survival(sequence(9))
    phantoms, outputs = 61 * 4, 3 * 64
    whole = phantoms + outputs

    def share(of_outputs: int) -> int:
        return (phantoms * ONE + outputs * of_outputs) // whole

    assert [curve.beyond(n) for n in (0, 3)] == [ONE, ONE]
    assert [curve.beyond(n) for n in (4, 7)] == [share(ONE * 4 // 6)] * 2
    assert [curve.beyond(n) for n in (8, 9)] == [share(ONE * 4 // 6 // 2)] * 2
    assert curve.beyond(10) == share(ONE * 4 // 6 // 2 * 4 // 5)


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
        forecast.left(sequence(1000 + number))
    seen(*[10] * 20, forecast=forecast)
    assert forecast.num_tokens_left(sequence(1)) < 2 * short


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
        forecast.ended(sequence(number, length, most=length))
    for number, length in enumerate(running):
        forecast.entered(sequence(1000 + number, length))
    curve = forecast.survival(sequence(1))
    shares = [curve.beyond(n) for n in range(120)]
    assert shares[0] == ONE
    assert all(0 < b <= a for a, b in itertools.pairwise(shares))
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
