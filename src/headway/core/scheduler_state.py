"""What a scheduler is made of, and what may be read of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from typing import NamedTuple

from headway.core.blocks import BlockPool
from headway.core.config import SchedulerConfig
from headway.core.constraints import Constraint, TenantSlots
from headway.core.decodes import Decodes
from headway.core.entrance import Entrance
from headway.core.eviction import Eviction
from headway.core.limits import Limits
from headway.core.live import LiveSequences
from headway.core.policies import Policies, build_policies
from headway.core.prefix import HashedPrefixCache, NoPrefixCache, PrefixCache
from headway.core.residents import Residents
from headway.core.right_of_way import RightOfWay
from headway.core.sequence import Sequence, SequenceStatus
from headway.core.step import Blocker, Step
from headway.core.stride import Outlook
from headway.core.time_limits import TimeKeeper
from headway.core.waiting import WaitingQueue


class SchedulerStats(NamedTuple):
    """The state between two steps. Blocks: total = held + cached + blank."""

    num_running: int
    num_waiting: int
    num_total_blocks: int
    num_held_blocks: int
    num_cached_blocks: int  # free, but findable by the prefix cache
    num_resident_tokens: int  # computed tokens of the running; a shared block counts for each
    num_backlog_tokens: int  # still to compute: of the waiting, and of prefills under way
    waiting_reasons: Mapping[Blocker, int]  # how many wait for what, as of the latest step


class SchedulerState:
    """The parts, put together as the configuration says, and views of them that change nothing."""

    def __init__(
        self,
        config: SchedulerConfig,
        num_blocks: int,
        policies: Policies | None = None,
        constraints: SequenceOf[Constraint] = (),
    ) -> None:
        policies = policies or build_policies(config)
        is_ours = not constraints  # they change when somebody gets a slot or loses it, only
        tenant_slots = TenantSlots(config.max_tenant_seqs) if config.max_tenant_seqs else None
        if tenant_slots is not None:
            constraints = (tenant_slots, *constraints)
        self.config = config
        self.pool = BlockPool(num_blocks)
        self._ordering = policies.ordering
        self._prefill = policies.prefill
        self._unit = policies.unit
        self._precedence = policies.precedence
        self._forecast = policies.forecast
        self._residents = Residents(self.pool, policies, tuple(constraints))
        self._limits = Limits(config, num_blocks, policies.admission)
        self._prefix: PrefixCache = NoPrefixCache()
        if config.enable_prefix_caching:
            self._prefix = HashedPrefixCache(self.pool, config.block_size, config.prefix_salt)
        self._live = LiveSequences()
        self._waiting = WaitingQueue(
            policies.ordering, self._prefix, config.block_size, tenant_slots
        )
        bars = (self._residents.constraints, tenant_slots)
        self._entrance = Entrance(config, policies, *bars, self.pool, self._prefix, self._residents)
        parts = (config, policies, self.pool, self._residents, self._waiting)
        self._eviction = Eviction(*parts, self._live)
        self._right_of_way = RightOfWay(*parts, self._entrance, self._eviction)
        self._time = TimeKeeper()
        self._decodes: Decodes | None = None  # of the latest step
        self._in_flight: deque[Step] = deque()
        self._waiting_reasons: dict[Blocker, int] = {}
        self._tokenless: list[Sequence] = []  # who ran in the latest step and got no token
        self._num_steps = self._num_sequences = 0
        self._outlook = Outlook(config, policies.unit, () if is_ours else constraints)

    def _prompts(self) -> list[Sequence]:
        """Of the running, in no order, those with more than one token to compute, or a whole
        prompt: nobody who got a token from the latest step that was decided."""
        return [s for s in self._tokenless if s.status is SequenceStatus.RUNNING]

    def _catch_up(self) -> None:
        """Let those that decode together know what they have computed and got."""
        if self._decodes:
            self._decodes.catch_up()

    def has_unfinished(self) -> bool:
        return len(self._live) > 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._residents.running)

    @property
    def num_steps(self) -> int:
        return self._num_steps

    @property
    def in_flight(self) -> tuple[Step, ...]:
        return tuple(self._in_flight)

    def stats(self) -> SchedulerStats:
        num_backlog_tokens = self._waiting.num_backlog_tokens
        if self._tokenless:
            num_backlog_tokens += sum([s.num_prefill_tokens_left for s in self._prompts()])
        pool, num_resident_tokens = self.pool, self._residents.num_computed_tokens
        counts = (self.num_running, self.num_waiting, pool.num_blocks, pool.num_held)
        tokens = (num_resident_tokens, num_backlog_tokens)
        return SchedulerStats(*counts, pool.num_cached, *tokens, self._waiting_reasons)

    def next_due_ns(self) -> int | None:
        """When a time limit ends somebody next, if nothing else happens; None for never."""
        times = (self._time.next_due_ns(), self._ordering.next_due_ns())
        return min((at_ns for at_ns in times if at_ns is not None), default=None)

    def live_request_ids(self) -> list[str]:
        """Requests with a sequence that has not ended, in order of arrival."""
        return self._live.request_ids()

    def waiting_sequences(self) -> list[Sequence]:
        """In order of arrival, whatever the order of admission."""
        self._catch_up()
        queued = (SequenceStatus.WAITING, SequenceStatus.PREEMPTED)
        return [s for s in self._live if s.status in queued]

    def running_sequences(self) -> list[Sequence]:
        """In order of admission."""
        self._catch_up()
        return list(self._residents.running.values())

    def parked_sequences(self) -> list[Sequence]:
        """Ended members of a static batch, whose slots and blocks stay idle until it drains."""
        return list(self._unit.parked)
