"""Hypothesis looks for a sequence of moves that breaks a law, for every combination of choices."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from scheduler_world import World, make_request

from headway.core.config import UNITS, SchedulerConfig
from headway.core.request import RepetitionDetection, TimeLimits
from headway.drive.invariants import check


@st.composite
def time_limits(draw) -> TimeLimits:
    span = st.sampled_from([None, None, None, 0, 1, 3, 9])
    return TimeLimits(max_queue_ns=draw(span), max_run_ns=draw(span), deadline_ns=draw(span))


@st.composite
def configs(draw) -> SchedulerConfig:
    max_model_len = draw(st.integers(2, 20))
    chunked = draw(st.booleans())
    prefill, unit = draw(st.sampled_from(["mixed", "first"])), draw(st.sampled_from(UNITS))
    may_guard = chunked and (prefill, unit) == ("mixed", "step")
    least_budget = 1 if chunked else max_model_len
    ordering = draw(st.sampled_from(["fcfs", "priority", "sjf", "fair", "edf"]))
    return SchedulerConfig(
        max_num_seqs=draw(st.integers(1, 4)),
        max_num_batched_tokens=least_budget + draw(st.integers(0, 12)),
        block_size=draw(st.integers(1, 4)),
        max_model_len=max_model_len,
        enable_prefix_caching=draw(st.booleans()),
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=draw(st.integers(0, 3)) if chunked else 0,
        kv_policy=draw(st.sampled_from(["on-demand", "reserve", "predict"])),
        max_num_partial_prefills=draw(st.sampled_from([0, 2, 3])) if chunked else 0,
        target_itl_ms=draw(st.sampled_from([0, 0.001, 0.002])) if may_guard else 0,
        unit=unit,
        prefill=prefill,
        ordering=ordering,
        tenant_weights=draw(st.sampled_from(["", "a=3"])) if ordering == "fair" else "",
        max_tenant_seqs=draw(st.sampled_from([0, 0, 1, 2])),
        victim=draw(st.sampled_from(["auto", "newest", "least-lost", "lowest-priority"])),
        reserve_full_isl=draw(st.booleans()),
        skip_blocked_ms=draw(st.sampled_from([0, 1])),
        watermark=draw(st.sampled_from([0.0, 0.2, 0.9])),
    )


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(config=configs(), num_blocks=st.integers(1, 10))
    def start(self, config, num_blocks):
        self.world = World(config, num_blocks)
        self.num_requests = 0

    @rule(
        prompt=st.lists(st.integers(1, 2), max_size=14),
        max_tokens=st.sampled_from([None, 1, 2, 3, 8]),
        n=st.integers(1, 2),
        stops=st.booleans(),
        prompt_logprobs=st.sampled_from([None, None, 0]),
        priority=st.integers(-1, 1),
        tenant=st.sampled_from(["", "a", "b"]),
        limits=time_limits(),
        repetition=st.sampled_from([None, None, RepetitionDetection(max_pattern_size=3)]),
    )
    def submit(self, limits, **asked):
        now_ns = self.world.now_ns
        if limits.deadline_ns is not None:
            limits = replace(limits, deadline_ns=now_ns + limits.deadline_ns)
        request = make_request(f"r{self.num_requests}", arrival_ns=now_ns, limits=limits, **asked)
        self.world.submit(request)
        self.num_requests += 1

    @rule(span_ns=st.sampled_from([1, 2, 4, 600_000]))
    def time_passes(self, span_ns):
        self.world.now_ns += span_ns

    @precondition(lambda self: not self.world.scheduler.in_flight)
    @rule()
    def reset_prefix_cache(self):
        self.world.scheduler.reset_prefix_cache()
        assert not self.world.scheduler.pool.num_cached

    @rule(number=st.integers(0, 30), index=st.sampled_from([None, 0, 1]))
    def abort(self, number, index):
        self.world.abort(f"r{number}", index)

    @precondition(lambda self: len(self.world.scheduler.in_flight) < 2)
    @rule()
    def schedule(self):
        step = self.world.schedule()
        due_ns = self.world.scheduler.next_due_ns()
        assert due_ns is None or due_ns > self.world.now_ns or step.admitted

    @precondition(lambda self: self.world.scheduler.in_flight)
    @rule()
    def complete(self):
        self.world.complete()

    @precondition(lambda self: self.world.scheduler.in_flight)
    @rule()
    def fail(self):
        self.world.fail()

    @rule(num_turns=st.integers(1, 5))
    def turns(self, num_turns):
        while self.world.scheduler.in_flight:
            self.world.complete()
        for _ in range(num_turns):
            self.world.turn()

    @invariant()
    def laws_hold(self):
        if hasattr(self, "world"):
            check(self.world.scheduler)

    def teardown(self):
        if hasattr(self, "world"):
            self.world.drain()


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
