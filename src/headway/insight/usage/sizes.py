"""Findings from how many tokens answers take: declared and used, cached, none, far too many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from headway.insight.doctor.findings import Change, Confidence, Finding, Severity
from headway.insight.usage.answer import Ending
from headway.insight.usage.columns import UNSAID, Usage
from headway.insight.usage.endings import ENOUGH

_FAR_ABOVE = 4.0  # times the use: in the lesson a sixth of the throughput under `reserve`
_KEPT = 0.999  # of the answers, that a lower limit must not cut
_ENDLESS = 20  # times the median, and 5 times all but one in a hundred


def size_findings(usage: Usage) -> Iterator[Finding]:
    yield from _declared_above_use(usage)
    yield from _endless(usage)
    yield from _empty(usage)
    yield from _broken_off(usage)
    yield from _preempted(usage)
    yield from _shared_prompts(usage)


def _declared_above_use(usage: Usage) -> Iterator[Finding]:
    rows = (usage.max_tokens != UNSAID) & (usage.completion_tokens > 0)
    if rows.sum() < ENOUGH:
        return
    declared = usage.max_tokens[rows].astype(np.int64)
    used = usage.lengths()[rows].astype(np.int64)
    if declared.sum() < _FAR_ABOVE * used.sum():
        return
    prompts = np.maximum(usage.prompt_tokens[rows], 0)
    cap = _cap_for(used)
    lowered = np.minimum(declared, cap)
    held, fewer = (prompts + declared).sum(), (prompts + lowered).sum()
    wasted = 1 - (prompts + used).sum() / held
    num_cut = int((used > lowered).sum())
    yield Finding(
        kind="max-tokens-above-use",
        severity=Severity.HEALTHY,
        title="Clients declare far more tokens than they get.",
        evidence=(
            f"declared: {declared.mean():,.0f} tokens on average; used: {used.mean():,.0f} "
            f"({declared.sum() / used.sum():.1f} times), p99 {np.quantile(used, 0.99):,.0f}",
            f"an engine that sets max_tokens aside (--kv-policy reserve) would leave "
            f"{wasted:.0%} of the cache that it holds empty at the end of an answer",
            "one that takes blocks as they are needed loses nothing by it (vLLM, on-demand)",
        ),
        changes=(
            Change(
                what="max_tokens of clients",
                before=f"{np.median(declared):,.0f} in the median",
                after=f"{cap:,}",
                gain=f"{held / fewer:.2g} times as many at once, where max_tokens is set aside",
                basis=f"prompt and max_tokens of all answers; {num_cut:,} of {len(used):,} answers "
                "would be cut",
            ),
        ),
    )


def _cap_for(used: NDArray[np.int64]) -> int:
    """A round limit that cuts next to nobody."""
    longest = int(np.quantile(used, _KEPT, method="higher"))
    unit = max(16, 2 ** (longest.bit_length() - 3))
    return -(-longest // unit) * unit


def _endless(usage: Usage) -> Iterator[Finding]:
    """One that went on for ever: it had a slot for as long as hundreds of others."""
    for index, group in enumerate(usage.groups):
        rows = np.flatnonzero((usage.group == index) & (usage.completion_tokens > 0))
        if len(rows) < 5 * ENOUGH:
            continue
        lengths = usage.lengths()[rows]
        middle, high = np.quantile(lengths, (0.5, 0.99))
        longest = int(lengths.max())
        if longest < max(_ENDLESS * middle, 5 * high, 1000):
            continue
        place = int(rows[lengths.argmax()])
        yield Finding(
            kind="endless-generation",
            severity=Severity.WARNING,
            title="An answer went on and on: nothing but a limit ends it, if there is one.",
            evidence=(
                f"answer {place + 1:,} of the file has {longest:,} tokens, {longest / middle:,.0f} "
                f"times the median of {middle:,.0f} (p99 {high:,.0f})",
                f"{int((lengths >= max(_ENDLESS * middle, 5 * high)).sum()):,} of {len(rows):,} "
                "answers are like that",
            ),
            changes=(Change(what="--max-request-seconds", after="the longest that one may run"),),
            confidence=Confidence.MEDIUM,
            subject=group.name or None,
        )


def _empty(usage: Usage) -> Iterator[Finding]:
    is_broken = usage.ended_by(Ending.ABORT) | usage.ended_by(Ending.ERROR)
    count = int(((usage.completion_tokens == 0) & ~is_broken).sum())
    yield from _share_finding(
        "empty-answers",
        "Answers have no token at all: the model's first token is a stop token, or a client asked "
        "for none.",
        f"{count:,} of {len(usage):,} answers are empty",
        count / len(usage),
        0.01,
        count,
    )


def _broken_off(usage: Usage) -> Iterator[Finding]:
    aborted = usage.ended_by(Ending.ABORT)
    count, spent = int(aborted.sum()), int(usage.completion_tokens[aborted].sum())
    yield from _share_finding(
        "aborted",
        "Clients go away before their answer ends: time-outs that are too short, or waits too "
        "long.",
        f"{count:,} of {len(usage):,} answers were aborted, after {spent:,} output tokens that "
        "nobody read",
        count / len(usage),
        0.05,
        count,
    )
    errors = usage.left_out.get("an error in place of an answer")
    count = int(usage.ended_by(Ending.ERROR).sum()) + (errors.count if errors else 0)
    total = len(usage) + (errors.count if errors else 0)
    yield from _share_finding(
        "errors",
        "Requests end in errors.",
        f"{count:,} of {total:,} lines are errors in place of an answer",
        count / total,
        0.01,
        count,
    )


def _preempted(usage: Usage) -> Iterator[Finding]:
    known = usage.num_preemptions != UNSAID
    if known.sum() < ENOUGH:
        return
    counts = usage.num_preemptions[known]
    count = int((counts > 0).sum())
    yield from _share_finding(
        "preemption-thrash",
        "Requests are evicted and computed again: more are admitted than memory carries.",
        f"{count:,} of {len(counts):,} answers were preempted, {int(counts.sum()):,} times in all",
        count / len(counts),
        0.02,
        count,
    )


def _share_finding(
    kind: str, title: str, line: str, share: float, least: float, count: int
) -> Iterator[Finding]:
    """Where the share is at least so large, and not of one or two."""
    if share < least or count < 5:
        return
    yield Finding(
        kind=kind,
        severity=Severity.CRITICAL if share >= 0.5 else Severity.WARNING,
        title=title,
        evidence=(f"{line} ({share:.1%})",),
    )


def _shared_prompts(usage: Usage) -> Iterator[Finding]:
    known = (usage.cached_tokens != UNSAID) & (usage.prompt_tokens > 0)
    if known.sum() < ENOUGH:
        return
    prompts = int(usage.prompt_tokens[known].sum(dtype=np.int64))
    cached = int(usage.cached_tokens[known].sum(dtype=np.int64))
    num_hits = int((usage.cached_tokens[known] > 0).sum())
    title = f"The prefix cache gave {cached / prompts:.0%} of the prompt tokens."
    if not cached:
        title = (
            "The prefix cache gave nothing: it is off, or prompts differ from their first tokens."
        )
    yield Finding(
        kind="prompt-sharing",
        severity=Severity.HEALTHY,
        title=title,
        evidence=(
            f"{cached:,} of {prompts:,} tokens; {num_hits:,} of {known.sum():,} answers found some",
        ),
    )
