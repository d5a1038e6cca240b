"""Laws that hold for the metrics of any history of the real scheduler and loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.config import SchedulerConfig
from headway.core.events import (
    AbortCause,
    Aborted,
    Admitted,
    Advanced,
    Event,
    Preempted,
    Queued,
    Rejected,
    Resumed,
    Retired,
)
from headway.core.request import FinishReason, Request
from headway.insight.metrics import Metrics
from headway.wire import EngineStats, StepTrace
from tests.insight.histories import CONFIGS, FAILING_STEPS, HAPPENINGS, MS, Happening, World
from tests.insight.readings import new_metrics, stats, total, value


class Waiting:
    """A fold that checks after every turn that the waiting are waiting for something."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def on_submitted(self, request: Request, now_ns: int) -> None:
        """Nothing waits yet."""

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        """What counts comes with the stats."""

    def on_stats(self, stats: EngineStats) -> None:
        waiting = value(self._metrics, "vllm:num_requests_waiting")
        assert waiting == stats.num_waiting
        assert waiting == total(self._metrics, "vllm:num_requests_waiting_by_reason")
        usage = value(self._metrics, "vllm:kv_cache_usage_perc")
        held = value(self._metrics, "headway:blocks", state="held")
        assert usage == held / total(self._metrics, "headway:blocks")


def played(happenings: list, config: SchedulerConfig, failing: set[int]) -> tuple[Metrics, World]:
    metrics = new_metrics()
    world = World([metrics, Waiting(metrics)], config, failing)
    world.play(happenings)
    world.on_events((), world.clock.now_ns())  # the sign of life of an idle engine
    return metrics, world


def first_tokens(world: World) -> set[int]:
    return {event.sequence_id for event in world.of(Advanced)}


@settings(deadline=None, max_examples=50)
@given(HAPPENINGS, CONFIGS, FAILING_STEPS)
def test_counts_agree_for_any_history(
    happenings: list, config: SchedulerConfig, failing: set[int]
) -> None:
    metrics, world = played(happenings, config, failing)
    ends = [*world.of(Retired), *world.of(Aborted)]
    with_token = [end for end in ends if end.sequence_id in first_tokens(world)]
    num_first = len(with_token)
    for name in (
        "time_to_first_token_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_inference_time_seconds",
        "request_prefill_kv_computed_tokens",
    ):
        assert value(metrics, f"vllm:{name}_count") == num_first, name
    reasons = Counter(end.reason for end in ends)
    for reason in FinishReason:
        counted = value(metrics, "vllm:request_success_total", finished_reason=reason.value)
        assert counted == reasons[reason]
    assert len(ends) == len(world.of(Queued))
    assert value(metrics, "vllm:e2e_request_latency_seconds_count") == len(ends)
    assert value(metrics, "vllm:request_queue_time_seconds_count") == len(world.of(Admitted))
    refused = value(metrics, "vllm:admission_rejections_total", reason="never_fits")
    assert refused == len(world.of(Rejected))
    assert metrics.num_live == 0


@settings(deadline=None, max_examples=50)
@given(HAPPENINGS, CONFIGS, FAILING_STEPS)
def test_tokens_add_up(happenings: list, config: SchedulerConfig, failing: set[int]) -> None:
    metrics, world = played(happenings, config, failing)
    prompts = {asked.request_id: asked.num_prompt_tokens for asked in world.requests}
    begun = {event.sequence_id: prompts[event.request_id] for event in world.of(Advanced)}
    # What came from the cache at the first admission, whatever preemptions came after (P71).
    cached = {e.sequence_id: e.num_cached_tokens for e in world.of(Admitted)}
    prompt = value(metrics, "vllm:prompt_tokens_total")
    assert prompt == sum(begun.values())
    assert prompt == total(metrics, "vllm:prompt_tokens_by_source_total")
    from_cache = value(metrics, "vllm:prompt_tokens_cached_total")
    assert from_cache == sum(cached[sequence_id] for sequence_id in begun)
    computed = value(metrics, "vllm:request_prefill_kv_computed_tokens_sum")
    assert prompt == from_cache + computed
    assert value(metrics, "vllm:prefix_cache_hits_total") == sum(cached.values())
    output = value(metrics, "vllm:generation_tokens_total")
    assert output == sum(len(event.token_ids) for event in world.of(Advanced))
    assert output == value(metrics, "vllm:request_generation_tokens_sum")
    gaps = value(metrics, "vllm:inter_token_latency_seconds_count")
    assert gaps == output - len(begun)
    assert value(metrics, "vllm:iteration_tokens_total_sum") == prompt + output


@settings(deadline=None, max_examples=50)
@given(HAPPENINGS, CONFIGS, FAILING_STEPS)
def test_what_resumed_sequences_lost_is_recomputed_or_refunded(
    happenings: list, config: SchedulerConfig, failing: set[int]
) -> None:
    metrics, world = played(happenings, config, failing)
    lost: dict[int, int] = {}
    lost_of_resumed = 0
    for _, event in world.events:
        if isinstance(event, Preempted):
            lost[event.sequence_id] = event.num_lost_tokens
        elif isinstance(event, Resumed):
            lost_of_resumed += lost[event.sequence_id]
    recomputed = value(metrics, "headway:preemption_recomputed_tokens_total")
    refunded = value(metrics, "headway:preemption_refunded_tokens_total")
    assert recomputed + refunded == lost_of_resumed
    assert recomputed >= 0
    assert refunded >= 0
    num = len(world.of(Preempted))
    assert value(metrics, "vllm:num_preemptions_total") == num
    assert value(metrics, "vllm:request_num_preemptions_sum") == num


@settings(deadline=None, max_examples=50)
@given(HAPPENINGS, CONFIGS, FAILING_STEPS)
def test_every_step_is_counted_and_its_time(
    happenings: list, config: SchedulerConfig, failing: set[int]
) -> None:
    metrics, world = played(happenings, config, failing)
    num_steps = sum(bool(step.chunks) for step in world.steps)
    assert value(metrics, "vllm:iteration_tokens_total_count") == num_steps
    assert value(metrics, "headway:step_seconds_count") == num_steps
    ran_s = sum(step.end_ns - step.start_ns for step in world.steps) / 1e9
    assert value(metrics, "headway:step_seconds_sum") == pytest.approx(ran_s)


@settings(deadline=None, max_examples=50)
@given(HAPPENINGS, CONFIGS, FAILING_STEPS)
def test_the_longest_of_n_is_told_once_for_each_request(
    happenings: list, config: SchedulerConfig, failing: set[int]
) -> None:
    metrics, world = played(happenings, config, failing)
    longest: dict[str, Counter[int]] = {e.request_id: Counter() for e in world.of(Queued)}
    for event in world.of(Advanced):
        longest[event.request_id][event.sequence_id] += len(event.token_ids)
    name = "vllm:request_max_num_generation_tokens"
    assert value(metrics, f"{name}_count") == len(longest)
    assert value(metrics, f"{name}_sum") == sum(
        max(outputs.values(), default=0) for outputs in longest.values()
    )


@settings(deadline=None, max_examples=50)
@given(HAPPENINGS, CONFIGS)
def test_an_idle_engine_holds_nothing(happenings: list, config: SchedulerConfig) -> None:
    metrics, _ = played(happenings, config, set())
    for name in (
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "headway:resident_tokens",
        "headway:backlog_tokens",
    ):
        assert value(metrics, name) == 0, name


class Resident:
    """A fold that counts computed tokens by itself, from chunks, and checks the gauge."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._computed: dict[int, int] = {}
        self._has_run = False  # since events came last: a step under way is counted beforehand
        self.most = self.num_checked = 0

    def on_submitted(self, request: Request, now_ns: int) -> None:
        """Nothing is computed yet."""

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        for event in events:
            match event:
                case Preempted() | Retired() | Aborted():
                    self._computed.pop(event.sequence_id, None)
                case Admitted() | Resumed():
                    self._computed[event.sequence_id] = event.num_cached_tokens

    def on_step(self, step: StepTrace) -> None:
        self._has_run = bool(step.chunks)  # of an empty step nobody may be told
        for sequence_id, first_position, num_tokens in step.chunks:
            if sequence_id in self._computed:
                self._computed[sequence_id] = first_position + num_tokens

    def on_stats(self, stats: EngineStats) -> None:
        if not self._has_run:
            return
        self._has_run = False
        self.num_checked += 1
        told = value(self._metrics, "headway:resident_tokens")
        assert told == sum(self._computed.values())
        self.most = max(self.most, int(told))


@settings(deadline=None, max_examples=50)
@given(HAPPENINGS, CONFIGS, FAILING_STEPS)
def test_p72_resident_tokens_are_those_computed_of_the_running(
    happenings: list, config: SchedulerConfig, failing: set[int]
) -> None:
    metrics = new_metrics()
    resident = Resident(metrics)
    world = World([metrics, resident], config, failing)
    world.play(happenings)
    assert resident.num_checked >= sum(bool(step.chunks) for step in world.steps)


def test_p72_resident_tokens_of_a_known_history() -> None:
    metrics = new_metrics()
    resident = Resident(metrics)
    asked = [Happening(1000 * MS, num_prompt_tokens=9, max_tokens=4, n=2)]
    World([metrics, resident], SchedulerConfig(block_size=4)).play(asked)
    assert resident.most == 2 * (9 + 2)  # the last token of an output is never computed
    counted = value(metrics, "vllm:prompt_tokens_total") + total(
        metrics, "vllm:generation_tokens_total"
    )
    assert counted == 2 * (9 + 4)  # for ever
    assert value(metrics, "headway:resident_tokens") == 0


class Tape:
    """A fold that keeps what it was told, to tell it again as far as it pleases."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple]] = []

    def on_submitted(self, *args: object) -> None:
        self.calls.append(("on_submitted", args))

    def on_events(self, *args: object) -> None:
        self.calls.append(("on_events", args))

    def on_stats(self, *args: object) -> None:
        self.calls.append(("on_stats", args))


def obituary(calls: list[tuple[str, tuple]]) -> list[Event]:
    """What the API process says for an engine that died: everything ends, once."""
    submitted = [args[0] for name, args in calls if name == "on_submitted"]
    told = [event for name, args in calls if name == "on_events" for event in args[0]]
    ended = {e.sequence_id for e in told if isinstance(e, Retired | Aborted)}
    queued = [e for e in told if isinstance(e, Queued)]
    answered = {e.request_id for e in told if isinstance(e, Queued | Rejected)}
    events: list[Event] = [
        Aborted(e.sequence_id, e.request_id, cause=AbortCause.ENGINE)
        for e in queued
        if e.sequence_id not in ended
    ]
    unknown = -1
    for asked in submitted:
        for index in range(asked.sampling.n if asked.request_id not in answered else 0):
            events.append(Queued(unknown, asked.request_id, index))
            events.append(Aborted(unknown, asked.request_id, cause=AbortCause.ENGINE))
            unknown -= 1
    return events


@settings(deadline=None, max_examples=50)
@given(HAPPENINGS, CONFIGS, st.floats(0, 1))
def test_an_engine_that_dies_leaves_no_life_behind(
    happenings: list, config: SchedulerConfig, share: float
) -> None:
    tape = Tape()
    world = World([tape], config)
    world.play(happenings)
    calls = tape.calls[: int(share * len(tape.calls))]
    metrics = new_metrics()
    for name, args in calls:
        getattr(metrics, name)(*args)
    metrics.on_events(obituary(calls), world.clock.now_ns())
    metrics.on_stats(stats())
    assert metrics.num_live == 0
    metrics.on_restarted()
    ended_before = total(metrics, "vllm:request_success_total")
    again = World([metrics], config)  # its sequence ids begin at 0 again
    again.play(happenings)
    ended = total(metrics, "vllm:request_success_total") - ended_before
    assert ended == len(again.of(Queued))
    assert metrics.num_live == 0
