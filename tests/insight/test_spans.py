"""Spans leave nothing out: laws over histories of the real scheduler, and examples by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings

from headway.core.config import SchedulerConfig
from headway.core.events import (
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
from headway.core.request import FinishReason, Request, SamplingParams
from headway.insight.deliveries import MAX_UNDELIVERED
from headway.insight.spans import RequestTrace, Traces
from headway.wire import StepTrace
from tests.insight.histories import CONFIGS, FAILING_STEPS, HAPPENINGS, MS, World

SECOND = 1_000_000_000


class TracesWithoutSteps:
    """Told of everything but the steps."""

    def __init__(self, traces: Traces) -> None:
        self.on_submitted = traces.on_submitted
        self.on_events = traces.on_events

    def on_stats(self, stats: object) -> None:
        """Nothing is learned from these."""


class TracesWithSteps(TracesWithoutSteps):
    def __init__(self, traces: Traces) -> None:
        super().__init__(traces)
        self.on_step = traces.on_step


def play(
    fold_type: type[TracesWithoutSteps],
    happenings: list,
    config: SchedulerConfig,
    failing: set[int],
) -> tuple[list[RequestTrace], World]:
    finished: list[RequestTrace] = []
    traces = Traces(finished.append)
    world = World([fold_type(traces)], config, failing)
    world.play(happenings)
    world.clock.advance(3 * MS)
    traces.delivered(world.requests, world.clock.now_ns())
    assert len(traces) == 0
    return finished, world


@pytest.mark.parametrize("fold_type", [TracesWithSteps, TracesWithoutSteps])
@settings(deadline=None, max_examples=60)
@given(happenings=HAPPENINGS, config=CONFIGS, failing=FAILING_STEPS)
def test_spans_of_a_sequence_tile_its_time(
    fold_type: type[TracesWithoutSteps],
    happenings: list,
    config: SchedulerConfig,
    failing: set[int],
) -> None:
    finished, world = play(fold_type, happenings, config, failing)
    assert len(finished) == len({event.request_id for event in world.of(Queued)})
    for trace in finished:
        for sequence in trace.sequences:
            ends = [trace.arrival_ns, *(span.end_ns for span in sequence.spans)]
            assert [span.start_ns for span in sequence.spans] == ends[:-1]
            assert ends[-1] == trace.end_ns
            e2e_ns = trace.end_ns - trace.arrival_ns
            assert sum(span.duration_ns for span in sequence.spans) == e2e_ns


@settings(deadline=None, max_examples=60)
@given(HAPPENINGS, CONFIGS)
def test_chunks_are_the_steps_and_add_up(happenings: list, config: SchedulerConfig) -> None:
    finished, world = play(TracesWithSteps, happenings, config, set())
    preempted = {event.sequence_id for event in world.of(Preempted)}
    by_name = {(e.request_id, e.index): e.sequence_id for e in world.of(Queued)}
    for trace in finished:
        for sequence in trace.sequences:
            chunks = [span for span in sequence.spans if "step" in span.attributes]
            steps = [world.steps[int(span.attributes["step"])] for span in chunks]
            for span, step in zip(chunks, steps, strict=True):
                assert step.start_ns <= span.start_ns < span.end_ns
            sequence_id = by_name[trace.request.request_id, sequence.index]
            if sequence_id in preempted or not sequence.first_token_ns:
                continue
            assert {span.name for span in chunks} <= {"prefill"}
            computed = sum(int(span.attributes["tokens"]) for span in chunks)
            assert computed == trace.request.num_prompt_tokens - sequence.num_cached_tokens


@settings(deadline=None, max_examples=60)
@given(HAPPENINGS, CONFIGS)
def test_every_preemption_is_a_span_that_says_what_it_cost(
    happenings: list, config: SchedulerConfig
) -> None:
    finished, world = play(TracesWithSteps, happenings, config, set())
    spans = [s for trace in finished for seq in trace.sequences for s in seq.spans]
    resumed = [span for span in spans if span.name == "preempted" and span.attributes]
    assert len(resumed) == len(world.of(Resumed))
    recomputed = sum(event.num_recomputed_tokens for event in world.of(Resumed))
    billed = [
        int(s.attributes["lost_tokens"]) - int(s.attributes["refunded_tokens"]) for s in resumed
    ]
    assert sum(billed) == recomputed


def request(name: str = "r", n: int = 1) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=(1,) * 9,
        sampling=SamplingParams(n=n, max_tokens=8),
        arrival_ns=SECOND,
    )


def names(trace: RequestTrace) -> list[tuple[str, int]]:
    [sequence] = trace.sequences
    return [(span.name, span.duration_ns // MS) for span in sequence.spans]


def tell(traces: Traces, at_ms: int, *events: Event) -> None:
    traces.on_events(events, SECOND + at_ms * MS)


def step(traces: Traces, index: int, start_ms: int, end_ms: int, *chunks: Sequence[int]) -> None:
    rows = [(chunk[0], chunk[1], chunk[2]) for chunk in chunks]
    traces.on_step(StepTrace(index, SECOND + start_ms * MS, SECOND + end_ms * MS, rows))


def test_a_request_with_everything_in_it() -> None:
    finished: list[RequestTrace] = []
    traces = Traces(finished.append)
    asked = request()
    traces.on_submitted(asked, SECOND)
    tell(traces, 1, Queued(0, "r", 0))
    tell(traces, 5, Admitted(0, "r", 0))
    step(traces, 3, 4, 10, (0, 0, 4))  # it began before its admission was told
    step(traces, 4, 10, 20, (1, 0, 9))  # somebody else's
    step(traces, 5, 20, 30, (0, 4, 5))
    tell(traces, 31, Advanced(0, "r", (7,)))
    step(traces, 6, 31, 35, (0, 9, 1))
    tell(traces, 35, Advanced(0, "r", (7,)))
    tell(traces, 36, Preempted(0, "r", 1, 10, 0, 3, 1))
    tell(traces, 50, Resumed(0, "r", 4, 6))
    step(traces, 9, 50, 60, (0, 4, 7))
    tell(traces, 60, Advanced(0, "r", (7,)))
    tell(traces, 70, Advanced(0, "r", (7,)), Retired(0, "r", FinishReason.LENGTH))
    assert not finished
    traces.delivered([asked], SECOND + 72 * MS)
    [trace] = finished
    assert names(trace) == [
        ("queue", 5),
        ("prefill", 5),
        ("prefill_wait", 10),
        ("prefill", 11),
        ("decode", 5),
        ("preempted", 14),
        ("recompute", 10),
        ("decode", 10),
        ("delivery", 2),
    ]
    [sequence] = trace.sequences
    assert sequence.spans[5].attributes == {"lost_tokens": 10, "refunded_tokens": 4}
    assert sequence.finish_reason is FinishReason.LENGTH
    assert sequence.num_output_tokens == 4
    assert sequence.num_preemptions == 1


def test_a_withdrawn_request_ends_when_the_engine_says_so() -> None:
    finished: list[RequestTrace] = []
    traces = Traces(finished.append)
    traces.on_submitted(request(), SECOND, origin="somewhere")
    tell(traces, 1, Queued(0, "r", 0))
    tell(traces, 9, Aborted(0, "r"))
    [trace] = finished
    assert names(trace) == [("queue", 9)]
    assert trace.origin == "somewhere"
    assert len(traces) == 0


def test_what_the_engine_did_after_the_answer_left_is_cut_off() -> None:
    finished: list[RequestTrace] = []
    traces = Traces(finished.append)
    asked = request()
    traces.on_submitted(asked, SECOND)
    tell(traces, 1, Queued(0, "r", 0), Admitted(0, "r", 0))
    tell(traces, 5, Advanced(0, "r", (7,)))
    traces.delivered([asked], SECOND + 8 * MS)  # a stop string
    tell(traces, 12, Preempted(0, "r", 1, 10, 0, 3, 1))
    tell(traces, 20, Aborted(0, "r", FinishReason.STOP))
    [trace] = finished
    assert names(trace) == [("queue", 1), ("prefill", 4), ("decode", 3)]


def test_memory_is_flat_whatever_is_not_said() -> None:
    finished: list[RequestTrace] = []
    traces = Traces(finished.append)
    for number in range(3 * MAX_UNDELIVERED):
        name = f"r{number}"
        traces.on_submitted(request(name), SECOND)
        if number % 3 == 0:
            tell(traces, 1, Rejected(name, "no"))
            continue
        tell(traces, 1, Queued(number, name, 0), Admitted(number, name, 0))
        tell(traces, 2, Advanced(number, name, (1,)), Retired(number, name, FinishReason.STOP))
    assert len(traces) <= 2 * MAX_UNDELIVERED
    assert len(finished) == MAX_UNDELIVERED
