"""Several prompts in a step: a short one is not stuck behind a long one's whole prefill."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING

from headway.core.policies.guard import StallGuard
from headway.core.policies.ordering import Ordering
from headway.core.policies.prefill import Chunked
from headway.core.sequence import Sequence, SequenceStatus
from headway.core.step import Blocker, Step
from headway.core.step_builder import StepBuilder

if TYPE_CHECKING:  # it imports the policies
    from headway.core.stride import Stride

_RUNNING = SequenceStatus.RUNNING


class Shared(Chunked):
    """Cuts prompts to what a step has for them, and shares that among several.

        step   [decodes | shorter prompts, at most half | first prompt, at least half ........]
        or     [decodes | first prompt, half ....... | who is admitted | first prompt, the rest]

    The first in order of service keeps half of what a step has for prompts, so that none takes
    more than twice its time once it is first. The other half goes to those with less to compute
    than it, the shortest first, and to who is admitted; what these leave is for the first again.

    A waiting prompt may join those under way if it is at most half as long as what the shortest of
    them has left, or if it is served before the first of them, up to `most_under_way` prompts.
    Lengths halve from one to the next, so that few are under way; others wait for the first to end.

    What a step has is the token budget, and, with a guard and while somebody decodes, the time
    that the guard allows. Decodes are placed before prompts.
    """

    def __init__(
        self,
        ordering: Ordering,
        *,
        holds_decodes: bool,
        max_chunk_tokens: int,
        most_under_way: int,
        guard: StallGuard | None,
    ) -> None:
        super().__init__(holds_decodes, max_chunk_tokens)
        self._ordering = ordering
        self._most_under_way = most_under_way
        self._guard = guard
        self._prompts: list[Sequence] = []  # of the running, the shortest first
        self._first: Sequence | None = None  # of them in order of service
        self._entering: list[tuple[Sequence, int, int]] = []  # with what each was offered
        self._under_way: list[Sequence] | None = None
        self._num_waiting = 0
        self._purse: _Purse | None = None  # open from the first prompt of a step on
        self._is_first_served = False
        self._most_of_first = 0  # what it may have once those who wait have had their turn

    # ---- Who comes when ----

    def order(
        self, running: list[Sequence], prompts: list[Sequence], num_waiting: int, step: StepBuilder
    ) -> list[Sequence]:
        self._purse = self._first = self._under_way = None
        self._entering = []
        self._is_first_served, self._most_of_first = False, 0
        self._num_waiting = num_waiting
        ids = {s.sequence_id for s in prompts if s.num_wanted_tokens() > 1}
        self._prompts = [s for s in running if s.sequence_id in ids] if ids else []
        if not self._prompts:
            return running
        self._first = self._prompts[0]
        self._prompts.sort(key=Sequence.num_wanted_tokens)
        return [s for s in running if s.sequence_id not in ids] + self._prompts

    def bars(self, sequence: Sequence) -> Blocker | None:
        if self._under_way is None:
            prompts = (*self._prompts, *(entering for entering, _, _ in self._entering))
            self._under_way = [
                s for s in prompts if s.status is _RUNNING and s.num_wanted_tokens() > 1
            ]
        if not self._under_way or self._may_join(sequence, self._under_way):
            return None
        return Blocker.PREFILL

    def _may_join(self, sequence: Sequence, under_way: list[Sequence]) -> bool:
        if len(under_way) >= self._most_under_way:
            return False
        least_left = min(s.num_wanted_tokens() for s in under_way)
        if 2 * sequence.num_queued_tokens <= least_left:
            return True
        first = self._first if self._first in under_way else under_way[0]
        return self._ordering.is_before(sequence, first)

    # ---- How much ----

    def chunk(
        self, sequence: Sequence, first_position: int, num_wanted: int, step: StepBuilder
    ) -> int:
        purse = self._purse = self._purse or _Purse(step, self._guard)
        most = min(num_wanted, self._max_chunk_tokens, step.tokens_left)
        num_tokens = purse.fitting(first_position, most, self._share(sequence, purse))
        if sequence is self._first:
            self._is_first_served, self._most_of_first = True, num_wanted
        if not num_tokens and self._must_get_on(sequence, purse):
            num_tokens = min(1, most)
        if sequence.status is not _RUNNING:
            self._entering.append((sequence, first_position, num_tokens))
            self._under_way = None
        purse.spend(first_position, num_tokens)
        return num_tokens

    def _share(self, sequence: Sequence, purse: _Purse) -> int:
        half = purse.total // 2
        if sequence is self._first:
            return purse.total - half if self._num_waiting else purse.left
        if self._first is not None and not self._is_first_served:
            return half - purse.spent
        return purse.left

    def _must_get_on(self, sequence: Sequence, purse: _Purse) -> bool:
        return sequence is self._first or (self._first is None and not purse.num_tokens)

    def finish(
        self, step: StepBuilder, try_grow: Callable[[Sequence, int], bool]
    ) -> list[Sequence]:
        self._under_way = None  # who asks before the next step begins asks of what is then
        if self._purse is None:
            return []
        for sequence, first_position, num_tokens in self._entering:
            if sequence.status is not _RUNNING:  # it was offered a part and found no room
                self._purse.spend(first_position, -num_tokens)
        grown = self._give_the_rest(step, self._purse, try_grow)
        if self._purse.num_tokens:
            step.predicted_ns = self._purse.predicted_ns
        return grown

    def _give_the_rest(
        self, step: StepBuilder, purse: _Purse, try_grow: Callable[[Sequence, int], bool]
    ) -> list[Sequence]:
        """What was held back for the waiting, and not needed, to the prompt that it is from."""
        first = self._first
        chunk = step.chunk_of(first) if first is not None else None
        if first is None or chunk is None or not self._num_waiting:
            return []
        most = min(self._most_of_first, self._max_chunk_tokens, step.tokens_left + chunk.num_tokens)
        purse.spend(chunk.first_position, -chunk.num_tokens)
        num_tokens = purse.fitting(chunk.first_position, most, purse.left)
        if num_tokens <= chunk.num_tokens or not try_grow(first, num_tokens - chunk.num_tokens):
            purse.spend(chunk.first_position, chunk.num_tokens)
            return []
        step.drop(first)
        step.add(first, num_tokens, samples=num_tokens == self._most_of_first)
        purse.spend(chunk.first_position, num_tokens)
        return [first]

    # ---- What became of it ----

    def launched(self, step: Step, now_ns: int) -> None:
        if self._guard:
            self._guard.launched(step, now_ns)

    def completed(self, step: Step, now_ns: int | None) -> None:
        if self._guard and now_ns is not None:
            self._guard.completed(step, now_ns)

    def took(self, stride: Stride, start_ns: int, ends_ns: SequenceOf[int]) -> None:
        if self._guard:
            self._guard.took(stride, start_ns, ends_ns)


class _Purse:
    """What a step has for prompts: tokens, or nanoseconds where a guard watches and some decode.

    Opened when the decodes are placed and no prompt is.
    """

    def __init__(self, step: StepBuilder, guard: StallGuard | None) -> None:
        decodes = step.chunks()
        self._guard = guard if decodes else None
        self._decodes_ns = self._guard.decodes_ns(decodes) if self._guard else 0
        self.total = self._guard.prompts_ns(self._decodes_ns) if self._guard else step.budget_left
        self.spent = 0
        self.num_tokens = 0

    @property
    def left(self) -> int:
        return self.total - self.spent

    @property
    def predicted_ns(self) -> int | None:
        return self._decodes_ns + self.spent if self._guard else None

    def fitting(self, first_position: int, most: int, share: int) -> int:
        """How many of `most` tokens a share of the purse pays for."""
        if self._guard is None:
            return max(0, min(most, share))
        return self._guard.fitting(first_position, most, share, self.num_tokens)

    def spend(self, first_position: int, num_tokens: int) -> None:
        """Pay for so many tokens; a negative number gives them back."""
        self.num_tokens += num_tokens
        cost = abs(num_tokens)
        if self._guard:
            cost = self._guard.cost_ns(first_position, cost)
        self.spent += cost if num_tokens > 0 else -cost
