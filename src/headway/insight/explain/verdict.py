"""An explanation in one sentence, and its cause in one word or two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headway.core.step import Blocker
from headway.insight.explain.report import (
    DECODE,
    DELIVERY,
    PREEMPTED,
    PREFILL,
    QUEUE,
    RECOMPUTE,
    STALL,
    STEP,
    SequenceExplanation,
    Wait,
)
from headway.insight.figures import listed, nanoseconds

WALLS = {
    STEP: "the step under way",
    Blocker.SLOTS.value: "a slot",
    Blocker.BLOCKS.value: "blocks of KV cache",
    Blocker.EVICTION.value: "blocks of KV cache after evictions",
    Blocker.BUDGET.value: "room in a step's token budget",
    Blocker.ADAPTER.value: "its adapter",
    Blocker.GRAMMAR.value: "its grammar",
    Blocker.TENANT.value: "a slot of its tenant",
    Blocker.STATIC_BATCH.value: "the end of the static batch",
    Blocker.PREFILL.value: "prompts under way",
}
_LEAST_SHARE = 10  # a tenth of the whole is worth a word
_MOST_CLAUSES = 3
_NAMED = 2


def cause_of(sequence: SequenceExplanation) -> str:
    """What took most of what was not its own work; its own work if that was less than a tenth."""
    parts = sequence.parts_ns
    others = _walls(sequence.waits)
    others[STALL] = parts[STALL]
    others[PREEMPTED] = parts[PREEMPTED] + parts[RECOMPUTE]
    others[DELIVERY] = parts[DELIVERY]
    largest = max(others, key=lambda name: others[name])
    if others[largest] and others[largest] * _LEAST_SHARE >= sequence.e2e_ns:
        return largest
    return DECODE if parts[DECODE] >= parts[PREFILL] else PREFILL


def _walls(waits: Iterable[Wait]) -> dict[str, int]:
    """An admission that an eviction forbids waits for blocks as well."""
    walls: dict[str, int] = {}
    for wait in waits:
        is_eviction = wait.reason == Blocker.EVICTION.value
        name = f"{QUEUE}: {Blocker.BLOCKS.value if is_eviction else wait.reason}"
        walls[name] = walls.get(name, 0) + wait.ns
    return walls


def verdict_of(sequence: SequenceExplanation) -> str:
    """The largest parts in words."""
    clauses = sorted(_clauses(sequence), key=lambda clause: -clause[0])
    least_ns = sequence.e2e_ns // _LEAST_SHARE
    told = [words for ns, words in clauses[:_MOST_CLAUSES] if ns >= least_ns]
    if not told:
        return f"{nanoseconds(sequence.e2e_ns)}: nothing of it stands out."
    return f"{nanoseconds(sequence.e2e_ns)}: {'; '.join(told)}."


def _clauses(sequence: SequenceExplanation) -> Iterator[tuple[int, str]]:
    parts, shown = sequence.parts_ns, {k: nanoseconds(v) for k, v in sequence.parts_ns.items()}
    for wait in sequence.waits:
        yield wait.ns, _waiting(wait)
    yield parts[PREFILL], _prefilling(sequence, shown[PREFILL])
    yield parts[DECODE], f"decoded {_count(sequence.output_tokens, 'token')} in {shown[DECODE]}"
    whose = _mostly(" of", [one.request_id for one in sequence.stall.by])
    yield parts[STALL], f"stalled {shown[STALL]} by prompts{whose or ' of others'}"
    away_ns = parts[PREEMPTED] + parts[RECOMPUTE]
    if away_ns:
        times = _count(sequence.preemptions, "preemption")
        names = _mostly(" for", [one.beneficiary for one in sequence.evictions])
        yield away_ns, f"lost {nanoseconds(away_ns)} to {times}{names}"
    yield parts[DELIVERY], f"{shown[DELIVERY]} until its client had the rest of the answer"


def _waiting(wait: Wait) -> str:
    names = _mostly(", mostly held by", [holder.request_id for holder in wait.held_by])
    return f"waited {nanoseconds(wait.ns)} for {WALLS.get(wait.reason, wait.reason)}{names}"


def _prefilling(sequence: SequenceExplanation, shown: str) -> str:
    prefill = sequence.prefill
    tokens = _count(prefill.computed_tokens, "prompt token")
    if prefill.between_ns * 2 > sequence.parts_ns[PREFILL]:
        between = nanoseconds(prefill.between_ns)
        return f"took {shown} for {tokens}, {between} of it while others were computed"
    return f"took {shown} for {tokens} in {_count(prefill.steps, 'step')}"


def _mostly(lead: str, names: list[str]) -> str:
    distinct = list(dict.fromkeys(names))[:_NAMED]
    return f"{lead} {listed(distinct)}" if distinct else ""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
