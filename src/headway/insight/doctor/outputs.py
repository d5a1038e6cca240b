"""What is wrong with outputs: how they end, and how long they were said to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headway.insight.doctor.course import Course
from headway.insight.doctor.findings import Change, Confidence, Finding, Severity

_ENOUGH = 20  # requests, to speak of shares
_CUT_SHORT = 32  # tokens: outputs that end at fewer are cut on purpose


def endings(course: Course) -> Iterator[Finding]:
    """Models whose outputs end at max_tokens more often than they used to, or always."""
    now = (course.watched.ended_by_model if course.watched else None) or {}
    before = (course.life.ended_by_model if course.life else None) or {}
    for model in dict.fromkeys((*now, *before)):
        tally, usual = now.get(model, {}), before.get(model, {})
        if sum(tally.values()) < _ENOUGH:
            tally, usual = usual, {}
        if finding := _ending(course, model, tally, usual):
            yield finding


def _ending(
    course: Course, model: str, tally: Mapping[str, float], usual: Mapping[str, float]
) -> Finding | None:
    count, base = sum(tally.values()), sum(usual.values())
    if count < _ENOUGH:
        return None
    share = tally.get("length", 0.0) / count
    usual_share = usual.get("length", 0.0) / base if base >= _ENOUGH else None
    evidence = [
        f"{tally.get('length', 0.0):,.0f} of {count:,.0f} outputs ended at their max_tokens"
    ]
    if usual_share is not None:
        evidence.append(f"before that it was {usual_share:.0%} of {base:,.0f}")
    lengths = (course.watched or course.life or course.state).output_tokens
    length = lengths.mean if lengths and lengths.mean else None
    if length is not None:
        evidence.append(f"outputs are {length:,.0f} tokens long on average")
    never = share >= 0.98
    more = usual_share is not None and share >= max(2 * usual_share, usual_share + 0.2)
    if not (never or more or (usual_share is None and share >= 0.5)):
        return None
    on_purpose = length is not None and length <= _CUT_SHORT
    return Finding(
        kind="stop-never-fires" if never else "runaway-generations",
        severity=Severity.HEALTHY if on_purpose else Severity.WARNING,
        title=(
            "No output ends by itself: the model's stop token is not among those looked for, or "
            "clients ask for that."
            if never
            else "Outputs run up to max_tokens more often than they should."
        ),
        evidence=tuple(evidence),
        changes=(Change(what="stop token ids", after="those of the model's chat template"),),
        confidence=Confidence.MEDIUM if more or never else Confidence.LOW,
        subject=model or None,
    )


def declared_above_use(course: Course) -> Iterator[Finding]:
    reading = course.watched or course.life
    if reading is None or reading.max_tokens is None or reading.output_tokens is None:
        return
    declared, used = reading.max_tokens, reading.output_tokens
    if min(declared.count, used.count) < _ENOUGH or not used.mean or not declared.mean:
        return
    times = declared.mean / used.mean
    if times < 8:
        return
    reserves = course.state.reserves
    high = used.quantile(0.99)
    yield Finding(
        kind="max-tokens-above-use",
        severity=Severity.WARNING if reserves else Severity.HEALTHY,
        title=(
            "Clients declare far more than they use, and memory is set aside for it."
            if reserves
            else "Clients declare far more than they use; it costs nothing while memory is taken "
            "as needed."
        ),
        evidence=(
            f"max_tokens {declared.mean:,.0f} on average, used {used.mean:,.0f}: {times:.0f} times",
        ),
        changes=(
            Change(
                what="max_tokens of clients",
                before=f"{declared.mean:,.0f}",
                after=f"{high or used.mean:,.0f}, the 99th percentile of what is used",
            ),
        ),
    )
