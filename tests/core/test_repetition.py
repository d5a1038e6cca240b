"""Outputs that go round in circles, against the plain definition and in a scheduler."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import make_request

from headway.core.config import SchedulerConfig
from headway.core.events import Retired
from headway.core.repetition import RepetitionWatch
from headway.core.request import FinishReason, RepetitionDetection
from headway.core.scheduler import Scheduler
from headway.core.step import StepResult
from headway.drive.invariants import ends_in_repetition


@st.composite
def rules(draw) -> RepetitionDetection:
    least = draw(st.integers(0, 4))
    return RepetitionDetection(
        min_pattern_size=least,
        max_pattern_size=draw(st.integers(max(1, least), 6)),
        min_count=draw(st.integers(2, 4)),
    )


@given(rule=rules(), prompt=st.lists(st.integers(0, 1)), output=st.lists(st.integers(0, 1)))
def test_the_watch_says_what_its_plain_twin_says_after_every_token(rule, prompt, output):
    watch = RepetitionWatch(rule)
    for end in range(1, len(output) + 1):
        told = watch.repeats(prompt + output[:end], end)
        assert told == ends_in_repetition(output[:end], rule)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ([5, 5], False),
        ([5, 5, 5], True),
        ([1, 2, 1, 2, 1], False),
        ([1, 2, 1, 2, 1, 2], True),
        ([1, 2, 3] * 3, False),  # longer than the longest pattern
        ([1, 2, 1, 2, 1, 2, 7], False),  # moved on
    ],
)
def test_examples(output, expected):
    rule = RepetitionDetection(max_pattern_size=2, min_count=3)
    assert ends_in_repetition(output, rule) is expected


def ending(tokens, *, min_tokens=0, prompt=(1,), max_tokens=30, **rule) -> tuple[Retired, int]:
    scheduler = Scheduler(SchedulerConfig(), num_blocks=10)
    detection = RepetitionDetection(**rule)
    asked = make_request(
        "a", prompt, max_tokens=max_tokens, min_tokens=min_tokens, repetition=detection, stops=True
    )
    scheduler.add(asked, 0)
    for number, token in enumerate(tokens, 1):
        events = scheduler.complete(scheduler.schedule(0), StepResult([token]))
        if isinstance(events[-1], Retired):
            return events[-1], number
    raise AssertionError("it goes on")


def test_a_repetition_ends_a_sequence_at_the_token_that_completes_it():
    end, number = ending([3, 1, 2, 1, 2, 1, 2, 1], max_pattern_size=2, min_count=3)
    assert (end.reason, number) == (FinishReason.REPETITION, 7)


def test_the_prompt_is_no_part_of_a_repetition():
    end, number = ending([2, 2, 2, 2], prompt=[2] * 9, max_pattern_size=1, min_count=3)
    assert (end.reason, number) == (FinishReason.REPETITION, 3)


def test_never_below_min_tokens_but_at_the_first_token_after():
    end, number = ending([2] * 9, min_tokens=7, max_pattern_size=1)
    assert (end.reason, number) == (FinishReason.REPETITION, 7)


def test_a_stop_id_and_a_full_output_come_before_a_repetition():
    assert ending([6, 6], min_tokens=2, max_pattern_size=1)[0].reason is FinishReason.STOP
    assert ending([2, 2], max_tokens=2, max_pattern_size=1)[0].reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"max_pattern_size": 0}, r"max_pattern_size must be in \[1, 1024\], got 0"),
        ({"max_pattern_size": 10**9}, r"max_pattern_size must be in \[1, 1024\]"),
        ({"max_pattern_size": 3, "min_pattern_size": 4}, r"must be in \[4, 1024\], got 3"),
        ({"max_pattern_size": 3, "min_pattern_size": -1}, r"min_pattern_size must be in \[0,"),
        ({"max_pattern_size": 3, "min_count": 1}, r"min_count must be in \[2,"),
    ],
)
def test_rules_that_cannot_be_are_refused(rule, sentence):
    with pytest.raises(ValueError, match=sentence):
        RepetitionDetection(**rule)
