"""Admission by the memory that all who run are expected to need at their common peak."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf

from headway.core.blocks import BlockPool
from headway.core.policies.admission import OnDemand
from headway.core.policies.forecast import LengthForecast
from headway.core.policies.peak import Peak, Resident
from headway.core.sequence import Sequence
from headway.core.step import Blocker


class Predict(OnDemand):
    """Admits while the expected peak of held memory stays in the pool, at a stated risk.

    The peak is that of LightLLM's past-future scheduler (Gong et al., ASPLOS 2025): at each point
    to come, what those hold who are still there. There, each has a length drawn from the past; here
    each is there with the probability that the past gives it, and deviations of many cancel out.
    The risk is how many preemptions a start may cost: one if the sum is above the pool, and as many
    newcomers as hold what it is above on the mean, as the newest are preempted.

    While memory is short newcomers come one after another, not several in a step: a step with one
    prompt hides it behind the decodes, or the decodes behind it, where two prompts hide nothing.
    Small ones come together, up to `num_tokens_a_step`; and so do those for whom others make way.
    """

    def __init__(
        self,
        forecast: LengthForecast,
        *,
        block_size: int,
        reserve_full_isl: bool,
        risk_in_a_million: int,
        num_tokens_a_step: int,
    ) -> None:
        super().__init__(reserve_full_isl)
        self._forecast = forecast
        self._block_size = block_size
        self._risk_in_a_million = risk_in_a_million
        self._num_tokens_a_step = num_tokens_a_step
        self._running: dict[int, Sequence] = {}
        self._most_blocks = 0  # that all who run hold if each goes on to its limit
        self._refused: set[int] = set()
        self._peak: Peak | None = None
        self._narrow = 0  # how far off there was no room the last time
        self._step = 0  # whose questions these are
        self._num_entered_tokens = 0  # in it
        self._newcomer: tuple[Sequence, Resident] | None = None  # the latest that may start

    def entered(self, sequence: Sequence) -> None:
        self._refused.clear()
        self._running[sequence.sequence_id] = sequence
        self._most_blocks += self._blocks(sequence.max_num_tokens)
        newcomer, self._newcomer = self._newcomer, None
        if newcomer is None or newcomer[0] is not sequence:
            self._peak = None
            return
        self._num_entered_tokens += newcomer[1].size
        if self._peak is not None:
            self._peak.add(newcomer[1])

    def left(self, sequence: Sequence) -> None:
        self._refused.clear()
        self._peak = None
        del self._running[sequence.sequence_id]
        self._most_blocks -= self._blocks(sequence.max_num_tokens)

    def refuses(self, sequence: Sequence) -> bool:
        return sequence.sequence_id in self._refused

    def objection(
        self,
        sequence: Sequence,
        pool: BlockPool,
        num_shared: int,
        num_steps: int,
        beside: Mapping[int, Sequence] | None = None,
    ) -> Blocker | None:
        if num_steps != self._step:
            self._step, self._num_entered_tokens, self._peak = num_steps, 0, None
        if self._num_blocks_at_most(beside) + self._blocks(sequence.max_num_tokens) <= (
            pool.num_blocks
        ):
            self._peak = self._newcomer = None
            return None
        if beside is not None:
            self._peak = None
        elif self._num_entered_tokens > self._num_tokens_a_step:
            return Blocker.BUDGET
        peak = self._peak or self._look(pool, beside)
        newcomer = self._resident(sequence, num_shared)
        capacity = pool.num_blocks * self._block_size
        narrow = peak.lack(newcomer, capacity, self._risk_in_a_million, self._narrow)
        if beside is None:
            self._peak = peak
        if narrow is None:
            self._newcomer = sequence, newcomer
            return None
        self._narrow = narrow
        self._refused.add(sequence.sequence_id)
        return Blocker.BLOCKS

    def _num_blocks_at_most(self, beside: Mapping[int, Sequence] | None) -> int:
        if beside is None:
            return self._most_blocks
        return sum(self._blocks(sequence.max_num_tokens) for sequence in beside.values())

    def _look(self, pool: BlockPool, beside: Mapping[int, Sequence] | None) -> Peak:
        running, num_held = [*self._running.values()], pool.num_held
        if beside is not None:
            for sequence in running:
                if sequence.sequence_id not in beside:
                    num_held -= sum(pool.num_holders(b) == 1 for b in sequence.block_ids)
            running = [s for s in running if s.sequence_id in beside]
        residents = [self._resident(s, pool.num_shared(s.block_ids)) for s in running]
        num_held += self._num_blocks_to_come(running)
        peak = Peak(residents, num_held * self._block_size, self._block_size)
        for sequence in beside.values() if beside is not None else ():
            if sequence.sequence_id not in self._running:
                peak.add(self._resident(sequence, 0))
        return peak

    def _resident(self, sequence: Sequence, num_shared: int) -> Resident:
        num_tokens = len(sequence.token_ids)
        return Resident(
            self._forecast.survival(sequence),
            num_tokens - sequence.num_prompt_tokens,
            sequence.max_num_tokens - num_tokens,
            num_tokens + self._block_size // 2 - num_shared * self._block_size,
        )

    def _num_blocks_to_come(self, running: SequenceOf[Sequence]) -> int:
        """Of known tokens that are being computed, those that have no blocks yet."""
        num_blocks = 0
        for sequence in reversed(running):
            if sequence.num_computed_tokens >= len(sequence.token_ids) - 1:
                break  # a decode; prompts come behind those admitted before them
            missing = self._blocks(len(sequence.token_ids)) - len(sequence.block_ids)
            num_blocks += max(0, missing)
        return num_blocks

    def _blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self._block_size)
