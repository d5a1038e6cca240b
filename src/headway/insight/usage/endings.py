"""Findings from how answers end: cut off too often, always, or all at one length; by model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headway.insight.doctor.findings import Change, Confidence, Finding, Severity
from headway.insight.usage.answer import Ending
from headway.insight.usage.columns import UNSAID, Group, Integers, Usage

ENOUGH = 20  # answers, to speak of shares
_NEVER = 0.98  # cut off: as good as all
_CUT_SHORT = 32  # tokens: answers that are cut at fewer are cut on purpose
_ONE_LENGTH = 0.8  # of those cut off, at one length: a cap
_Z = 4.0  # standard deviations apart: one in 30,000 by chance


@dataclass(frozen=True, slots=True)
class _Cuts:
    """Of one group, the answers whose ending is known, and those cut off."""

    num_known: int
    lengths: Integers  # of those cut off, tokens
    num_at_limit: int | None  # of those cut off at their own max_tokens; None: none is told

    @property
    def count(self) -> int:
        return len(self.lengths)

    @property
    def share(self) -> float:
        return self.count / self.num_known if self.num_known else 0.0

    @property
    def mode(self) -> tuple[int, float]:
        """The most frequent length, and its share of those cut off."""
        values, counts = np.unique(self.lengths, return_counts=True)
        most = int(counts.argmax())
        return int(values[most]), float(counts[most] / self.count)


@dataclass(frozen=True, slots=True)
class _Usual:
    """What the share of those cut off is compared with."""

    share: float
    count: int
    whose: str


def ending_findings(usage: Usage, baseline: Usage | None = None) -> Iterator[Finding]:
    """`baseline`: answers of better days; without it each model is compared with all others."""
    for index, group in enumerate(usage.groups):
        rows = usage.group == index
        cuts = _cuts_of(usage.of(rows))
        if cuts.num_known < ENOUGH:
            yield from _at_the_largest(group, usage.of(rows))
            continue
        usual = _usual(usage, index, baseline)
        finding = _never_stops(group, cuts, usual) or _runs_away(group, cuts, usual)
        finding = finding or _capped(group, cuts)
        if finding is not None:
            yield finding


def _cuts_of(usage: Usage) -> _Cuts:
    cut = usage.ended_by(Ending.LENGTH)
    known = cut | usage.ended_by(Ending.STOP) | usage.ended_by(Ending.REPETITION)
    declared = usage.max_tokens[cut]
    at_limit = None
    if (declared != UNSAID).any():
        at_limit = int((usage.lengths()[cut] >= declared)[declared != UNSAID].sum())
    return _Cuts(int(known.sum()), usage.lengths()[cut], at_limit)


def _usual(usage: Usage, index: int, baseline: Usage | None) -> _Usual | None:
    """The same model before, else everybody before; else all others of the same file."""
    if baseline is None:
        others = _cuts_of(usage.of(usage.group != index))
        return _usual_of(others, "of all others in the file")
    group = usage.groups[index]
    if group in baseline.groups:
        same = _cuts_of(baseline.of(baseline.group == baseline.groups.index(group)))
        if same.num_known >= ENOUGH:
            return _usual_of(same, "in the baseline")
    return _usual_of(_cuts_of(baseline), "of all in the baseline")


def _usual_of(cuts: _Cuts, whose: str) -> _Usual | None:
    return _Usual(cuts.share, cuts.num_known, whose) if cuts.num_known >= ENOUGH else None


# ---- The three findings ----


def _never_stops(group: Group, cuts: _Cuts, usual: _Usual | None) -> Finding | None:
    if cuts.share < _NEVER:
        return None
    length, share = cuts.mode
    is_one_length = share >= _ONE_LENGTH
    is_news = usual is not None and usual.share < 0.5
    severity = Severity.CRITICAL if is_news else Severity.WARNING
    return Finding(
        kind="stop-never-fires",
        severity=Severity.HEALTHY if is_one_length and length <= _CUT_SHORT else severity,
        title=(
            "No answer ends by itself: the model's stop token is not among those looked for, or "
            "clients ask for that (ignore_eos)."
        ),
        evidence=_evidence(cuts, usual),
        changes=(
            Change(
                what="stop token ids",
                after="all that end an answer in the model's chat template and generation_config",
                gain="answers as long as they are meant to be",
            ),
        ),
        confidence=Confidence.HIGH if is_news else Confidence.MEDIUM,
        subject=group.name or None,
    )


def _runs_away(group: Group, cuts: _Cuts, usual: _Usual | None) -> Finding | None:
    if usual is None:
        is_more, severity = cuts.share >= 0.5, Severity.WARNING
    else:
        is_more = _is_more(cuts, usual)
        severity = Severity.CRITICAL if cuts.share >= usual.share + 0.5 else Severity.WARNING
    if not is_more or _is_on_purpose(cuts):
        return None
    return Finding(
        kind="runaway-generations",
        severity=severity,
        title="Answers run on until they are cut off, more often than they should.",
        evidence=_evidence(cuts, usual),
        changes=(
            Change(
                what="model or chat template",
                after="the one before, or one whose answers end by themselves",
                gain=_saved(cuts, usual),
                basis="slots and cache that the others had, were cuts as rare as before",
            ),
        )
        if usual
        else (),
        confidence=Confidence.HIGH if usual else Confidence.LOW,
        subject=group.name or None,
    )


def _capped(group: Group, cuts: _Cuts) -> Finding | None:
    """A share of answers that the same limit cuts."""
    if cuts.share < 0.05 or cuts.count < 5:
        return None
    length, share = cuts.mode
    if share < _ONE_LENGTH:
        return None
    return Finding(
        kind="cut-at-a-cap",
        severity=Severity.HEALTHY if length <= _CUT_SHORT else Severity.WARNING,
        title=f"{cuts.share:.0%} of the answers are cut off, nearly all at {length:,} tokens.",
        evidence=_evidence(cuts, None),
        changes=(
            Change(
                what="max_tokens of clients",
                before=f"{length:,}",
                after="as long as answers are, or a prompt that asks for less",
                gain="answers with an end",
            ),
        ),
        confidence=Confidence.HIGH,
        subject=group.name or None,
    )


def _at_the_largest(group: Group, usage: Usage) -> Iterator[Finding]:
    """Where nobody says why answers ended, many at one round length say it."""
    lengths = usage.lengths()
    if len(lengths) < 2 * ENOUGH:
        return
    longest = int(lengths.max())
    count = int((lengths == longest).sum())
    is_round = longest % 50 == 0 or longest % 64 == 0
    if count / len(lengths) < 0.05 or longest <= _CUT_SHORT or not is_round:
        return
    if lengths.min() == longest:
        return  # of one length by their nature, as far as can be told
    yield Finding(
        kind="cut-at-a-cap",
        severity=Severity.WARNING,
        title=f"{count / len(lengths):.0%} of the answers end at exactly {longest:,} tokens.",
        evidence=(
            f"{count:,} of {len(lengths):,}, and none is longer; the file has no finish_reason",
        ),
        confidence=Confidence.MEDIUM,
        subject=group.name or None,
    )


# ---- Figures ----


def _is_more(cuts: _Cuts, usual: _Usual) -> bool:
    """More than twice as often and ten in a hundred, and not by chance."""
    if cuts.share < max(2 * usual.share, usual.share + 0.1):
        return False
    total = cuts.num_known + usual.count
    pooled = (cuts.count + usual.share * usual.count) / total
    variance = pooled * (1 - pooled) * (1 / cuts.num_known + 1 / usual.count)
    return cuts.share - usual.share >= _Z * math.sqrt(variance)


def _is_on_purpose(cuts: _Cuts) -> bool:
    length, share = cuts.mode
    return share >= _ONE_LENGTH and length <= _CUT_SHORT


def _saved(cuts: _Cuts, usual: _Usual | None) -> str:
    if usual is None:
        return "not predicted"
    excess = (cuts.share - usual.share) * cuts.num_known
    return f"up to {excess * float(cuts.lengths.mean()):,.0f} output tokens less in this file"


def _evidence(cuts: _Cuts, usual: _Usual | None) -> tuple[str, ...]:
    length, share = cuts.mode
    lines = [f"{cuts.count:,} of {cuts.num_known:,} answers were cut off ({cuts.share:.1%})"]
    if usual is not None:
        lines.append(f"{usual.whose} it is {usual.share:.1%}, {usual.count:,} answers")
    if share >= _ONE_LENGTH:
        lines.append(f"{share:.0%} of them at {length:,} tokens")
    else:
        middle, high = np.quantile(cuts.lengths, (0.5, 1.0))
        lines.append(f"at {middle:,.0f} tokens in the median, {high:,.0f} at most")
    if cuts.num_at_limit is not None:
        lines.append(f"{cuts.num_at_limit:,} of them at the max_tokens that their client declared")
    return tuple(lines)
