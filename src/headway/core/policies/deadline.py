"""Earliest deadline first while all can be met; otherwise whoever has most to lose by waiting."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from itertools import chain
from typing import NamedTuple

from headway.core.events import AbortCause
from headway.core.policies.forecast import ONE, LengthForecast
from headway.core.policies.ordering import Ordering
from headway.core.policies.pace import Pace
from headway.core.policies.ranked import RankedQueue
from headway.core.sequence import Sequence, SequenceStatus
from headway.core.step import Step
from headway.core.time_limits import Expiry

# Those without a deadline go first after so long, whatever is due.
LONGEST_PASSED_OVER_NS = 600 * 1_000_000_000
_QUEUED = (SequenceStatus.WAITING, SequenceStatus.PREEMPTED)
_AHEAD_OF_ALL = -(1 << 200)
_FEW = 64  # so many hopes of those who wait no more are never worth a rebuild


class _Odds(NamedTuple):
    """If it were admitted at some time: its chance, of ONE, and what it would take."""

    chance: int
    cost: int  # tokens held times nanoseconds, until its end or its deadline


class _Hope(NamedTuple):
    """Until when a waiting sequence may be admitted and still make its deadline."""

    last_ns: int
    serial: int  # makes the order total
    sequence: Sequence


class EarliestDeadline(Ordering):
    """Waiting sequences by deadline; those without one behind them, by arrival.

    Deadlines alone serve worst when there is too much to do: each is served just before it is too
    late, and what it took makes the next ones late. So whenever a quarter of the queue has changed,
    its chances are estimated, from how long outputs are (`forecast`) and steps take (`pace`), for
    being admitted now and when the queue has drained, twice over. If seven eighths will make it and
    waiting costs less than an eighth of a request, all can wait and deadlines decide. Otherwise
    whoever loses most by waiting goes first, for the memory and time that it takes: 2 p(now) -
    p(later) over the cost, near the c mu / theta rule (decision 38); of those who will hardly make
    it, whoever takes least.

    One that cannot make it even if admitted at once, with the shortest output seen and nobody's
    prompt beside it, is given up. The running go on until their deadline: theirs is the best chance
    there is. They are served in order of admission.
    """

    def __init__(self, forecast: LengthForecast) -> None:
        self.pace = Pace()
        self._forecast = forecast
        self._dated = RankedQueue()
        self._undated = RankedQueue()
        self._hopes: list[_Hope] = []
        self._num_hopes = 0
        self._most_hopes = _FEW
        self._running: list[Sequence] = []
        self._num_changes = 0  # of the queue, since it was ranked
        self._drained_in_ns = 0
        self._num_held_tokens = 1
        self._can_all_wait = True
        self._begun: deque[tuple[int, int]] = deque()  # steps in flight: index and time
        self._last_end_ns = 0

    def __len__(self) -> int:
        return len(self._dated) + len(self._undated)

    # ---- The queue ----

    def enqueue(self, sequence: Sequence, now_ns: int) -> None:
        self._num_changes += 1
        if sequence.request.limits.deadline_ns is None:
            self._undated.insert(sequence, sequence.request.arrival_ns)
            return
        self._dated.insert(sequence, self._rank(sequence, now_ns))
        self._hope(sequence)

    def remove(self, sequence: Sequence) -> None:
        self._num_changes += 1
        (self._dated if sequence in self._dated else self._undated).remove(sequence)

    def waiting(self, now_ns: int) -> Iterable[Sequence]:
        if not self.is_settled:
            self._rank_anew(now_ns)
        return chain(self._dated, self._undated)

    @property
    def is_settled(self) -> bool:
        return 4 * self._num_changes <= len(self)

    def running(self, running: Iterable[Sequence], now_ns: int) -> list[Sequence]:
        self._running = list(running)
        return self._running

    # ---- Ranks ----

    def _rank_anew(self, now_ns: int) -> None:
        self._num_changes = 0
        self._num_held_tokens = max(1, sum(len(s.token_ids) for s in self._running))
        dated = [s for s in self._dated if s.request.limits.deadline_ns is not None]
        odds = [self._odds(sequence, now_ns) for sequence in dated]
        work = sum(cost for chance, cost in odds if chance)
        self._drained_in_ns = 2 * work // self._num_held_tokens
        later_ns = now_ns + self._drained_in_ns
        later = [self._odds(sequence, later_ns).chance for sequence in dated]
        met = sum(o.chance for o in odds)
        self._can_all_wait = 8 * (met - sum(later)) < ONE and 8 * met >= 7 * ONE * len(odds)
        for place, sequence in enumerate(dated):
            self._dated.remove(sequence)
            self._dated.insert(sequence, self._rank_of(sequence, odds[place], later[place]))
        for sequence in list(self._undated):
            if now_ns - sequence.request.arrival_ns < LONGEST_PASSED_OVER_NS:
                break
            self._undated.remove(sequence)
            self._dated.insert(sequence, _AHEAD_OF_ALL + sequence.request.arrival_ns)

    def _rank(self, sequence: Sequence, now_ns: int) -> int:
        if self._can_all_wait:
            return _deadline_ns(sequence)
        later = self._odds(sequence, now_ns + self._drained_in_ns)
        return self._rank_of(sequence, self._odds(sequence, now_ns), later.chance)

    def _rank_of(self, sequence: Sequence, now: _Odds, chance_later: int) -> int:
        if self._can_all_wait:
            return _deadline_ns(sequence)
        return -((max(1, 2 * now.chance - chance_later) << 64) // now.cost)

    def _odds(self, sequence: Sequence, at_ns: int) -> _Odds:
        prefill_ns = self.pace.prefill_ns(sequence.num_queued_tokens)
        left_ns = _deadline_ns(sequence) - at_ns - prefill_ns
        num_fitting = 1 + left_ns // max(1, self.pace.step_ns)  # the prompt yields the first
        if num_fitting < 1:
            return _Odds(0, 1 << 80)  # behind all who might make it
        curve, said = self._forecast.survival(sequence), sequence.num_output_tokens
        most = sequence.max_num_tokens - sequence.num_prompt_tokens
        end = min(most, said + num_fitting)
        chance = ONE if end == most else ONE - ONE * curve.beyond(end) // curve.beyond(said)
        num_outputs = curve.num_tokens_left(said, end)
        stay_ns = prefill_ns + self.pace.step_ns * num_outputs
        held = stay_ns * (len(sequence.token_ids) + num_outputs)
        return _Odds(chance, max(1, held, prefill_ns * self._num_held_tokens))

    # ---- Giving up ----

    def _hope(self, sequence: Sequence) -> None:
        last_ns = _deadline_ns(sequence) - self._least_ns(sequence)
        heapq.heappush(self._hopes, _Hope(last_ns, self._num_hopes, sequence))
        self._num_hopes += 1
        if len(self._hopes) > self._most_hopes:
            self._hopes = [hope for hope in self._hopes if hope.sequence.status in _QUEUED]
            heapq.heapify(self._hopes)
            self._most_hopes = 2 * len(self._hopes) + _FEW

    def _least_ns(self, sequence: Sequence) -> int:
        """From its admission to its end, at the very least."""
        most = sequence.max_num_tokens - sequence.num_prompt_tokens
        shortest = min(most, self._forecast.shortest(sequence.request))
        num_outputs = max(1, shortest - sequence.num_output_tokens)
        prefill_ns = self.pace.prefill_ns(sequence.num_queued_tokens)
        return prefill_ns + self.pace.start_ns * (num_outputs - 1)

    def give_up(self, now_ns: int) -> list[Expiry]:
        hopeless: dict[int, Expiry] = {}
        while (last_ns := self.next_due_ns()) is not None and last_ns <= now_ns:
            sequence = heapq.heappop(self._hopes).sequence
            least_ns = self._least_ns(sequence)
            left_ns = _deadline_ns(sequence) - now_ns
            if least_ns < left_ns:  # steps have become faster
                self._hope(sequence)
                continue
            detail = (
                f"its deadline cannot be met: it needs at least {least_ns / 1e6:.0f} ms and has "
                f"{left_ns / 1e6:.0f} ms"
            )
            expiry = Expiry(sequence, AbortCause.UNREACHABLE, detail)
            hopeless.setdefault(sequence.sequence_id, expiry)
        return list(hopeless.values())

    def next_due_ns(self) -> int | None:
        while self._hopes and self._hopes[0].sequence.status not in _QUEUED:
            heapq.heappop(self._hopes)
        return self._hopes[0].last_ns if self._hopes else None

    # ---- How long steps take ----

    def launched(self, step: Step, tokenless: SequenceOf[Sequence], now_ns: int) -> None:
        self._begun.append((step.index, now_ns))

    def completed(self, step: Step, now_ns: int) -> None:
        while self._begun and self._begun[0][0] <= step.index:
            _, begun_ns = self._begun.popleft()
        if step.chunks:
            self.pace.learn(step.num_prefill_tokens, now_ns - max(begun_ns, self._last_end_ns))
        self._last_end_ns = now_ns

    def ran(self, start_ns: int, ends_ns: SequenceOf[int]) -> None:
        for end_ns in ends_ns:
            self.pace.learn(0, end_ns - start_ns)
            start_ns = end_ns
        self._last_end_ns = start_ns


def _deadline_ns(sequence: Sequence) -> int:
    deadline_ns = sequence.request.limits.deadline_ns
    assert deadline_ns is not None
    return deadline_ns
