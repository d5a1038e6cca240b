"""From what was remembered to an explanation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from headway.insight.explain.fold import Account, Explainer
from headway.insight.explain.holders import Residents
from headway.insight.explain.life import Life
from headway.insight.explain.report import (
    DELIVERY,
    STALL,
    Explanation,
    Glance,
    Holder,
    Prefill,
    SequenceExplanation,
    Wait,
)
from headway.insight.explain.verdict import cause_of, verdict_of

# An answer's id, or the client's own part of it, to ids of requests.
_FORMS = ("{}", "{}-0", "chatcmpl-{}", "cmpl-{}-0", "resp-{}")
Show = Callable[[str], str]  # a request id as whoever asks may see it


def names_of(name: str) -> list[str]:
    """The ids that a request may have whose answer, or whose client, calls it so."""
    return [form.format(name) for form in _FORMS]


def explain(explainer: Explainer, account: Account, now_ns: int, show: Show = str) -> Explanation:
    """Why the request took so long, or takes so long as of `now_ns`."""
    end_ns = now_ns if account.end_ns is None else account.end_ns
    sequences = [
        _shown(
            _explained(explainer, life, end_ns if life.closed_ns is None else life.closed_ns), show
        )
        for life in account.lives
    ]
    last = max(sequences, key=lambda sequence: (_computed_ns(sequence), -sequence.index))
    return Explanation(
        request_id=account.request_id,
        status=_status(account, last),
        verdict=verdict_of(last),
        cause=cause_of(last),
        e2e_ns=last.e2e_ns,
        parts_ns=last.parts_ns,
        prompt_tokens=account.num_prompt_tokens,
        output_tokens=sum(sequence.output_tokens for sequence in sequences),
        tenant=account.tenant,
        sequences=tuple(sequences),
        others=tuple(_others(explainer, account)),
    )


def _computed_ns(sequence: SequenceExplanation) -> int:
    """Until it had ended: then all choices wait for the last of them to be delivered."""
    return sequence.e2e_ns - sequence.parts_ns[DELIVERY]


def glance(explanation: Explanation) -> Glance:
    return Glance(
        request_id=explanation.request_id,
        status=explanation.status,
        verdict=explanation.verdict,
        cause=explanation.cause,
        e2e_ns=explanation.e2e_ns,
        parts_ns=explanation.parts_ns,
    )


def _others(explainer: Explainer, account: Account) -> Iterator[str]:
    """Requests of the same body, one for each prompt: they came together, numbered from 0."""
    answer_id, _, number = account.request_id.rpartition("-")
    if not (answer_id.startswith("cmpl-") and number.isdecimal()):
        return
    for index in count():
        other = explainer.account(f"{answer_id}-{index}")
        if other is None or other.arrival_ns != account.arrival_ns:
            return
        if other is not account:
            yield other.request_id


def _status(account: Account, last: SequenceExplanation) -> str:
    """While one of its sequences lives, what that does."""
    living = [life.status for life in account.lives if life.ended_ns is None]
    return living[0] if living else last.status


def _explained(explainer: Explainer, life: Life, now_ns: int) -> SequenceExplanation:
    tally = life.tally_at(now_ns)
    parts = tally.parts_ns
    waited, again = life.waited_at(now_ns)
    return SequenceExplanation(
        index=life.index,
        status=life.status,
        e2e_ns=now_ns - life.arrival_ns,
        parts_ns=parts,
        output_tokens=life.num_output_tokens,
        preemptions=life.num_preemptions,
        waits=_waits(explainer, life, (waited, 0), now_ns),
        waits_again=_waits(explainer, life, (again, 1), now_ns),
        prefill=Prefill(
            computed_tokens=tally.num_prefill_tokens,
            cached_tokens=life.num_cached_tokens,
            steps=tally.num_prefill_steps,
            computing_ns=parts["prefill"] - tally.between_ns,
            between_ns=tally.between_ns,
        ),
        stall=explainer.steps.stall(tally.windows, parts[STALL]),
        evictions=tuple(life.evictions),
        lost_tokens=life.num_lost_tokens,
        recomputed_tokens=life.num_recomputed_tokens,
        refunded_tokens=life.num_refunded_tokens,
        segments=tuple(tally.segments),
        detail=life.detail,
    )


def _waits(
    explainer: Explainer, life: Life, waited: tuple[dict[str, int], int], now_ns: int
) -> tuple[Wait, ...]:
    """`waited`: by reason, and 0 for before its first step or 1 for after preemptions."""
    by_reason, which = waited
    if not by_reason:
        return ()
    windows = life.queue_windows(now_ns)[which]
    since_ns = min((start_ns for start_ns, _ in windows), default=now_ns)
    around = explainer.around(since_ns)
    residents = Residents(life, windows, around, now_ns, explainer.pool.block_size)
    return residents.waits(by_reason, explainer.steps)


def _shown(sequence: SequenceExplanation, show: Show) -> SequenceExplanation:
    if show is str:
        return sequence
    stall = sequence.stall
    by = tuple(replace(one, request_id=show(one.request_id)) for one in stall.by)
    evictions = tuple(replace(e, beneficiary=show(e.beneficiary)) for e in sequence.evictions)
    return replace(
        sequence,
        waits=tuple(_shown_wait(wait, show) for wait in sequence.waits),
        waits_again=tuple(_shown_wait(wait, show) for wait in sequence.waits_again),
        stall=replace(stall, by=by),
        evictions=evictions,
    )


def _shown_wait(wait: Wait, show: Show) -> Wait:
    holders: list[Holder] = [replace(h, request_id=show(h.request_id)) for h in wait.held_by]
    return replace(wait, held_by=tuple(holders))
