"""Planted faults are found in a day of answers, and healthy days are left alone."""

from __future__ import annotations

import pytest

from headway.insight.doctor.findings import Finding, Severity
from headway.insight.usage.answer import Answer, Ending
from headway.insight.usage.columns import LeftOut
from headway.insight.usage.findings import findings_of_usage
from tests.insight.usage.days import chat, usage_of

HEALTHY, WARNING, CRITICAL = Severity.HEALTHY, Severity.WARNING, Severity.CRITICAL


def found(answers, baseline=None, left_out=None) -> dict[tuple[str, str | None], Finding]:
    usage = usage_of(answers, left_out)
    findings = findings_of_usage(usage, None if baseline is None else usage_of(baseline))
    severities = [finding.severity for finding in findings]
    assert severities == sorted(severities, reverse=True)
    return {(finding.kind, finding.subject): finding for finding in findings}


def kinds(*arguments, **named) -> set[str]:
    """Of what is worse than a note."""
    findings = found(*arguments, **named)
    return {kind for (kind, _), finding in findings.items() if finding.severity > HEALTHY}


@pytest.mark.parametrize(
    "answers",
    [
        chat(),
        chat(5000, seed=1, cap=4000),
        chat(300, cut=0.02),
        [*chat(model="a"), *chat(200, seed=2, cut=0.03, model="b")],
        # a classifier whose one token is cut on purpose
        [Answer(1, 300, ending=Ending.LENGTH)] * 300,
        [Answer(4, 300)] * 300,
        chat(10, cut=1.0),  # too few to speak of
        [*chat(300), *[Answer(9, 30, ending=Ending.ABORT)] * 4],
    ],
)
def test_healthy_days(answers):
    assert not kinds(answers)


def test_a_stop_token_that_never_fires_is_critical_beside_models_whose_does():
    bad = chat(200, cut=1.0, limit=4096, model="tuned", max_tokens=4096)
    finding = found([*chat(model="base"), *bad])["stop-never-fires", "tuned"]
    assert finding.severity is CRITICAL
    assert finding.evidence == (
        "200 of 200 answers were cut off (100.0%)",
        "of all others in the file it is 0.0%, 400 answers",
        "100% of them at 4,096 tokens",
        "200 of them at the max_tokens that their client declared",
    )
    assert found(bad)["stop-never-fires", "tuned"].severity is WARNING


def test_runaways_by_adapter_against_the_rest_of_the_file():
    good = chat(1000, cut=0.02, model="base")
    bad = chat(200, seed=3, cut=0.3, model="base", adapter="sql", limit=1024)
    findings = found([*good, *bad])
    finding = findings["runaway-generations", "base + sql"]
    assert (finding.severity, finding.confidence) == (WARNING, "high")
    assert ("runaway-generations", "base") not in findings
    assert len(finding.changes) == 1


def test_runaways_against_a_baseline_of_the_same_model():
    before, after = chat(500, cut=0.05, model="m"), chat(500, seed=4, cut=0.6, model="m")
    finding = found(after, before)["runaway-generations", "m"]
    assert finding.severity is CRITICAL
    assert "in the baseline it is 4.6%, 500 answers" in finding.evidence
    assert not kinds(before, before)
    other = [answer._replace(model="other") for answer in before]
    evidence = found(after, other)["runaway-generations", "m"].evidence
    assert "of all in the baseline it is 4.6%, 500 answers" in evidence


def test_without_anything_to_compare_with_half_of_all_is_suspicious():
    finding = found(chat(cut=0.7))["runaway-generations", None]
    assert (finding.severity, finding.confidence) == (WARNING, "low")
    assert "runaway-generations" not in kinds(chat(cut=0.3))


def test_a_small_difference_is_chance():
    """3 of 20 against 4 in a hundred: one day in twenty is like that."""
    few = [*chat(17, seed=5, model="b"), *chat(3, cut=1.0, model="b")]
    assert not kinds([*chat(1000, cut=0.04, model="a"), *few])


@pytest.mark.parametrize("is_told", [True, False])
def test_a_cap_that_cuts(is_told):
    answers = chat(1000, cap=256)
    if not is_told:
        answers = [answer._replace(ending=Ending.UNKNOWN) for answer in answers]
    finding = found(answers)["cut-at-a-cap", None]
    assert finding.severity is WARNING
    assert "256" in finding.title
    short = [Answer(16, 9, ending=Ending.LENGTH)] * 50 + [Answer(7, 9, ending=Ending.STOP)] * 200
    assert found(short)["cut-at-a-cap", None].severity is HEALTHY


def test_declared_far_above_use():
    """4,096 declared, 100 used, prompts of 400: 500 of 4,496 tokens are live at the end."""
    answers = [Answer(100, 400, max_tokens=4096, ending=Ending.STOP)] * 1000
    finding = found(answers)["max-tokens-above-use", None]
    assert finding.severity is HEALTHY
    assert "leave 89% of the cache" in finding.evidence[1]
    (change,) = finding.changes
    assert (change.before, change.after) == ("4,096 in the median", "112")
    assert change.gain.startswith("8.8 times")  # 4,496 / 512
    assert "0 of 1,000 answers would be cut" in change.basis
    assert not found([Answer(100, 400, max_tokens=300, ending=Ending.STOP)] * 1000)


def test_one_that_went_on_and_on():
    """LM Studio's issue 1143: 19,988 tokens, some 130 times what is normal."""
    answers = [*chat(600), Answer(19_988, 30, ending=Ending.STOP), *chat(100, seed=6)]
    finding = found(answers)["endless-generation", None]
    assert finding.severity is WARNING
    assert finding.evidence[0].startswith("answer 601 of the file has 19,988 tokens, 16")
    assert finding.evidence[1] == "1 of 701 answers are like that"


def test_empty_aborted_and_failed():
    empty = [Answer(0, 50, ending=Ending.STOP)] * 40
    aborted = [Answer(30, 50, ending=Ending.ABORT)] * 60
    failed = [Answer(0, 50, ending=Ending.ERROR)] * 30
    left_out = {"an error in place of an answer": LeftOut(7, 20)}
    findings = found([*chat(), *empty, *aborted, *failed], left_out=left_out)
    lines = {kind: finding.evidence[0] for (kind, _), finding in findings.items()}
    assert lines == {
        "empty-answers": "40 of 530 answers are empty (7.5%)",
        "aborted": "60 of 530 answers were aborted, after 1,800 output tokens that nobody read "
        "(11.3%)",
        "errors": "50 of 550 lines are errors in place of an answer (9.1%)",
    }
    assert "aborted" in kinds([Answer(9, 9, ending=Ending.ABORT)] * 9)


def test_preempted_and_cached_as_answers_tell():
    answers = chat(cached_tokens=0, num_preemptions=0)
    assert found(answers)["prompt-sharing", None].title.startswith("The prefix cache gave nothing")
    some = [answer._replace(cached_tokens=16, num_preemptions=2) for answer in answers[:100]]
    findings = found([*some, *answers[100:]])
    assert findings["preemption-thrash", None].evidence == (
        "100 of 400 answers were preempted, 200 times in all (25.0%)",
    )
    prompts = sum(answer.prompt_tokens for answer in answers)
    assert findings["prompt-sharing", None].evidence == (
        f"1,600 of {prompts:,} tokens; 100 of 400 answers found some",
    )
