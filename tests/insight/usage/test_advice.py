"""The verdict on batching, and its picture."""

from __future__ import annotations

import pytest

from headway.insight.doctor.findings import Confidence, Severity
from headway.insight.usage.advice import BatchingAdvice, batching_advice
from headway.insight.usage.answer import Answer, Ending
from headway.simulator.batching import BatchingPoint, slot_share
from headway.simulator.plot_batching import plot_batching
from headway.simulator.workload.lengths import empirical
from tests.insight.usage.days import chat, usage_of
from tests.lessons.clocks import CLOCK_2
from tests.simulator.worlds import PerToken

SIZES = (1, 64)
STEPS = PerToken(step=6_470_000, token=0, attended=49)  # article 2's a and gamma, in nanoseconds


def advice(answers: list[Answer], model=STEPS) -> BatchingAdvice:
    return batching_advice(usage_of(answers), model, token_budget=8192, batch_sizes=SIZES)


def test_chat_is_worth_it():
    answers = chat(1000)
    given = advice([*answers, Answer(0, 5), Answer(5000, 5, ending=Ending.ABORT)])
    lengths = sorted(answer.completion_tokens for answer in answers)
    assert (given.num_answers, given.p50, given.p99) == (1000, lengths[499], lengths[989])
    assert given.ratio == lengths[989] / lengths[499]
    assert given.judged.batch_size == 64
    assert given.judged.slot_share == slot_share(empirical(lengths), 64)
    assert given.judged.gain > 2
    assert given.verdict.startswith("Continuous batching is worth much here: ")
    finding = given.finding()
    assert (finding.severity, finding.confidence) == (Severity.HEALTHY, Confidence.HIGH)
    assert f"p99 {lengths[989]:,}" in finding.evidence[0]


def test_answers_of_one_length_gain_a_percent_or_two():
    given = advice([Answer(128, 700)] * 50)
    assert given.ratio == 1
    assert [point.slot_share for point in given.points] == [1, 1]
    assert 0.99 < given.judged.gain < 1.1
    assert "of much the same length" in given.verdict


def test_prompts_can_take_all_the_time():
    """Outputs of 1 to 4 tokens to prompts of 4,000: slots idle, and it hardly matters."""
    answers = [Answer(length, 4000) for length in (1, 1, 1, 4)] * 20
    given = advice(answers, CLOCK_2)
    assert given.judged.slot_gain > 2
    assert given.judged.gain < 1.1
    assert "most of the time goes into prompts" in given.verdict


def test_prompts_that_are_not_told_count_as_one_token():
    given = advice([Answer(answer.completion_tokens) for answer in chat(50)])
    assert given.mean_prompt is None
    assert given.finding().confidence is Confidence.MEDIUM


def test_what_gives_no_length():
    with pytest.raises(ValueError, match="no answer has an output"):
        advice([Answer(0, 5), Answer(7, 5, ending=Ending.ABORT)])
    with pytest.raises(ValueError, match="too long to be simulated"):
        advice([Answer(2**24, 5)])


def test_the_picture(tmp_path):
    points = [
        BatchingPoint(
            batch_size=n, slot_share=1 / n, static_per_second=9.0, continuous_per_second=9.0 * n
        )
        for n in SIZES
    ]
    plot_batching(points, "a file", tmp_path / "batching.png")
    assert (tmp_path / "batching.png").read_bytes().startswith(b"\x89PNG")
