"""What else is wrong, whichever wall binds: one function for each kind of trouble."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from headway.insight.doctor.course import Course
from headway.insight.doctor.findings import Change, Confidence, Finding, Severity
from headway.insight.doctor.outputs import declared_above_use, endings
from headway.insight.doctor.readings import Reading
from headway.insight.figures import counted, listed

_ENOUGH = 20  # requests, to speak of shares
_LEAST_STALL_S = 0.2
_PROMPTS = ": prompts of others share their steps"
_NOT_PROMPTS = ", and no prompt is long enough to be why; look at what else the machine does"


def findings_of(course: Course) -> tuple[Finding, ...]:
    """Worst first; of equal ones in the order of `_AILMENTS`."""
    found = [finding for ailment in _AILMENTS for finding in ailment(course)]
    return tuple(sorted(found, key=lambda finding: -finding.severity))


def _preemption_thrash(course: Course) -> Iterator[Finding]:
    watched = course.watched
    if watched is None or not watched.num_preemptions:
        return
    evidence = [f"{counted(watched.num_preemptions, 'preemption')} in {course.watched_s:.0f} s"]
    is_heavy = bool(course.num_ended) and watched.num_preemptions >= (course.num_ended or 0)
    again, prompt = watched.num_recomputed_tokens, watched.num_prompt_tokens
    if again is not None and prompt is not None:
        computed = prompt - (watched.num_cached_tokens or 0.0) + again
        share = again / computed if computed > 0 else 0.0
        is_heavy = is_heavy or share >= 0.2
        evidence.append(
            f"{again:,.0f} tokens computed again: {share:.0%} of the prompt tokens computed"
        )
    if course.num_ended is not None:
        evidence.append(f"{counted(course.num_ended, 'request')} ended meanwhile")
    evidence += _evicted(watched)
    yield Finding(
        kind="preemption-thrash",
        severity=Severity.CRITICAL if is_heavy else Severity.WARNING,
        title="Requests are evicted and computed again: more are admitted than memory carries.",
        evidence=tuple(evidence),
    )


def _evicted(reading: Reading) -> Iterator[str]:
    """By name, where a log has them."""
    names = sorted((reading.evicted or {}).items(), key=lambda item: -item[1])
    if names:
        told = [f"{name} ({times:.0f} times)" if times > 1 else name for name, times in names[:3]]
        yield f"evicted, of those that have a line: {listed(told)}"


def _decode_stalls(course: Course) -> Iterator[Finding]:
    gaps = course.watched.itl_s if course.watched else None
    if gaps is None or gaps.count < _ENOUGH or course.server == "tgi":  # TGI: means of requests
        return
    middle, high = gaps.quantile(0.5), gaps.quantile(0.99)
    if middle is None or high is None or high < max(_LEAST_STALL_S, 5 * middle):
        return
    by_prompts = _prompts_take(course) >= high / 2
    preempting = course.num_preempted > 0
    cause = _PROMPTS if by_prompts else _NOT_PROMPTS
    yield Finding(
        kind="decode-stalls",
        severity=Severity.WARNING,
        title=f"Tokens stop coming now and then{': evictions' if preempting else cause}.",
        evidence=(
            f"between two tokens: {middle * 1e3:,.0f} ms in the median, {high * 1e3:,.0f} ms in "
            f"the 99th percentile ({high / max(middle, 1e-9):.0f} times)",
        ),
        changes=_against_stalls(course) if by_prompts and not preempting else (),
        confidence=Confidence.MEDIUM if by_prompts or preempting else Confidence.LOW,
    )


def _prompts_take(course: Course) -> float:
    """Seconds of a prompt, on average: its steps are no longer than that."""
    reading = course.watched or course.life
    part = reading and (reading.prefill_s or reading.ttft_s)
    return (part.mean or 0.0) if part else 0.0


def _against_stalls(course: Course) -> tuple[Change, ...]:
    budget = course.state.max_num_batched_tokens
    if course.server == "headway":
        return (Change(what="--target-itl-ms", after="the longest gap that is all right"),)
    if course.server == "vllm":
        before = f"{budget:,}" if budget else None
        after = f"{budget // 2:,}" if budget else "half of it"
        return (Change(what="--max-num-batched-tokens", before=before, after=after),)
    return (Change(what="chunks of prompts", after="smaller ones"),)


def _queueing_collapse(course: Course) -> Iterator[Finding]:
    waiting = course.waiting
    if len(waiting) < 2 or not course.watched_s:
        return
    grown = waiting[-1] - waiting[0]
    if grown < max(5.0, 0.2 * waiting[-1]) or not _grows_throughout(waiting):
        return
    evidence = [
        f"{waiting[0]:,.0f} waited at first, {waiting[-1]:,.0f} {course.watched_s:.0f} s later"
    ]
    if course.num_ended is not None:
        running = course.running
        arrived = course.num_ended + grown + (running[-1] - running[0] if running else 0.0)
        evidence.append(
            f"{arrived / course.watched_s:,.2f} requests/s come, "
            f"{course.num_ended / course.watched_s:,.2f} requests/s are served"
        )
    # Of few requests the rates say little.
    is_sure = course.num_ended is None or course.num_ended >= 5
    confidence = Confidence.HIGH if course.watched_s >= 60 else Confidence.MEDIUM
    yield Finding(
        kind="queueing-collapse",
        severity=Severity.CRITICAL if is_sure else Severity.WARNING,
        title="The queue grows: more comes than is served, and waiting grows without end.",
        evidence=tuple(evidence),
        changes=_brakes(course),
        confidence=confidence if is_sure else Confidence.LOW,
    )


def _grows_throughout(waiting: Sequence[float]) -> bool:
    """In its last third as well: a queue that fills once and stays is no collapse."""
    third = max(1, len(waiting) // 3)
    first, last = waiting[:third], waiting[-third:]
    middle = waiting[third:-third] or first
    levels = [sum(part) / len(part) for part in (first, middle, last)]
    return levels[1] >= levels[0] and levels[2] >= 1.1 * levels[1]


def _brakes(course: Course) -> tuple[Change, ...]:
    if course.server in ("headway", "vllm"):
        served = course.num_ended / course.watched_s if course.num_ended else 0.0
        after = f"{max(1, round(10 * served)):,}" if served else "what is served in 10 s"
        return (
            Change(
                what="--max-num-queued-reqs",
                after=after,
                gain="nobody who is served waits longer than about 10 s",
                basis=f"{served:.2f} requests/s are served" if served else "",
            ),
        )
    return (Change(what="rate limits or replicas", after="more of them"),)


def _held_slots(course: Course) -> Iterator[Finding]:
    """Few run, many wait, tokens flow and nobody ends."""
    watched, running = course.watched, course.state.num_running or 0.0
    if watched is None or not course.is_queueing or course.num_ended != 0:
        return
    if not watched.num_output_tokens or running > 8:
        return
    usual_s = course.life.e2e_s.mean if course.life and course.life.e2e_s else None
    if course.watched_s < (2 * usual_s if usual_s else 60):
        return
    evidence = [
        f"{running:.0f} ran and {course.state.num_waiting or 0:.0f} waited for "
        f"{course.watched_s:.0f} s, and no request ended",
        f"{watched.num_output_tokens / course.watched_s:,.1f} output tokens/s all the while",
    ]
    if usual_s:
        evidence.append(f"until then a request took {usual_s:,.1f} s on average")
    holders = [r for r in course.under_way if r.status == "running"]
    evidence += [f"{r.request_id} runs, and came {r.age_s:,.0f} s ago" for r in holders[:3]]
    yield Finding(
        kind="slots-held",
        severity=Severity.CRITICAL,
        title="Whoever runs does not end, and everybody else waits behind it.",
        evidence=tuple(evidence),
        changes=_against_endless(course),
        confidence=Confidence.HIGH if holders else Confidence.MEDIUM,
        subject=holders[0].request_id if holders else None,
    )


def _against_endless(course: Course) -> tuple[Change, ...]:
    if course.server == "headway":
        return (Change(what="--max-request-seconds", after="the longest that a request may run"),)
    return (Change(what="max_tokens of clients", after="a limit that the server enforces"),)


def _adapter_churn(course: Course) -> Iterator[Finding]:
    known = [r for r in course.moments if r.adapters_running is not None]
    sets = [frozenset(r.adapters_running or ()) for r in known]
    num_changes = sum(a != b for a, b in pairwise(sets))
    waiting = sum(
        bool(set(r.adapters_waiting or ()) - set(r.adapters_running or ())) for r in known
    )
    if len(known) < 3 or num_changes < 2 or waiting * 2 < len(known):
        return
    names = sorted(frozenset().union(*sets))
    loras = course.state.max_loras
    yield Finding(
        kind="adapter-churn",
        severity=Severity.WARNING,
        title="Adapters take turns: requests wait until theirs is loaded again.",
        evidence=(
            f"the adapters at work changed {num_changes} times in {len(known)} samples",
            f"adapters waited in {waiting} of {len(known)} samples",
            f"seen at work: {', '.join(names[:8])}",
        ),
        changes=(
            Change(
                what="--max-loras",
                before=str(loras) if loras else None,
                after=str(max(len(names), (loras or 0) + 1)),
            ),
        ),
    )


def _refusals(course: Course) -> Iterator[Finding]:
    watched = course.watched
    if watched is None or not watched.num_refused:
        return
    served = course.num_ended or 0.0
    yield Finding(
        kind="refusals",
        severity=Severity.WARNING,
        title="Requests are refused at the door.",
        evidence=(f"{watched.num_refused:,.0f} refused while {served:,.0f} ended",),
    )


_AILMENTS = (
    *(_queueing_collapse, _preemption_thrash, _held_slots, _decode_stalls, endings),
    *(_adapter_churn, declared_above_use, _refusals),
)
