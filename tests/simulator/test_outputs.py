"""What simulated sequences say, and where they end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulator.worlds import Listed, PerToken, asks

from headway.core.config import SchedulerConfig
from headway.core.scheduler import Scheduler
from headway.core.sequence import Sequence
from headway.drive.clock import VirtualClock
from headway.drive.loop import EngineLoop
from headway.simulator.collector import Collector
from headway.simulator.executor import CostModelExecutor
from headway.simulator.inbox import Source, WorkloadInbox
from headway.simulator.script import END_TOKEN, SyntheticScript
from headway.simulator.simulate import simulate
from headway.simulator.workload.base import MAX_NAME, Segment

CONFIG = SchedulerConfig(block_size=4, max_model_len=64, enable_prefix_caching=False)


class Witness:
    """Listener who keeps an eye on everybody who ever ran."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.seen: dict[int, Sequence] = {}

    def on_events(self, events, now_ns) -> None:
        self.seen |= {s.sequence_id: s for s in self._scheduler.running_sequences()}


def said(*scripts, skip_ahead, num_blocks=100, config=CONFIG) -> list[list[int]]:
    """The outputs, by sequence id."""
    clock, scheduler = VirtualClock(), Scheduler(config, num_blocks)
    inbox = WorkloadInbox(clock, Source(iter(scripts), lambda script, now_ns: ()))
    collector = Collector(scheduler, inbox)
    executor = CostModelExecutor(clock, PerToken(), inbox, collector)
    witness = Witness(scheduler)
    EngineLoop(
        scheduler,
        clock=clock,
        inbox=inbox,
        executor=executor,
        listeners=(inbox, collector, executor, witness),
        strider=executor if skip_ahead else None,
    ).run()
    sequences = [witness.seen[number] for number in sorted(witness.seen)]
    return [sequence.token_ids[sequence.num_prompt_tokens :] for sequence in sequences]


class Spoken:
    """A request for `len(outputs)` outputs of these very tokens."""

    filler = None
    leaves_ns = None

    def __init__(self, name: int, prompt: int, *outputs: list[int]) -> None:
        self._outputs = outputs
        request = SyntheticScript(asks(name, prompt, 1)).request
        self.request = replace(request, sampling=replace(request.sampling, n=len(outputs)))
        self.asked: list[tuple[int, int, int]] = []

    def num_output_tokens(self, index: int) -> int:
        return len(self._outputs[index])

    def output_token_ids(self, index: int, start: int, count: int) -> list[int]:
        self.asked.append((index, start, count))
        return self._outputs[index][start : start + count]


both_ways = pytest.mark.parametrize("skip_ahead", [True, False])


@both_ways
@pytest.mark.parametrize(
    ("max_tokens", "expected", "reason"),
    [
        (None, [9] * 19 + [END_TOKEN], "stop"),
        (21, [9] * 19 + [END_TOKEN], "stop"),
        (20, [9] * 19 + [END_TOKEN], "stop"),
        (19, [9] * 19, "length"),
        (1, [9], "length"),
    ],
)
def test_an_output_ends_with_its_last_token_or_with_max_tokens(
    max_tokens, expected, reason, skip_ahead
):
    client = replace(asks(1, 5, 20, max_tokens=max_tokens), output=Segment(9, 20))
    assert said(SyntheticScript(client), skip_ahead=skip_ahead) == [expected]
    result = simulate(CONFIG, Listed([client]), PerToken(), num_blocks=100, skip_ahead=skip_ahead)
    assert result.sequences["reason"].tolist() == [reason]
    assert result.sequences["num_output_tokens"].tolist() == [len(expected)]


@both_ways
def test_an_output_of_one_token_is_its_end(skip_ahead):
    assert said(SyntheticScript(asks(1, 5, 1)), skip_ahead=skip_ahead) == [[END_TOKEN]]


@both_ways
def test_the_length_of_the_model_ends_an_output(skip_ahead):
    (output,) = said(SyntheticScript(asks(1, 60, 20)), skip_ahead=skip_ahead)
    assert len(output) == CONFIG.max_model_len - 60
    assert END_TOKEN not in output


@both_ways
def test_given_tokens_are_said_as_they_are_but_for_the_last(skip_ahead):
    script = Spoken(1, 5, [*range(100, 130)], [7, 8, 7], [5])
    assert said(script, skip_ahead=skip_ahead) == [
        [*range(100, 129), END_TOKEN],
        [7, 8, END_TOKEN],
        [END_TOKEN],
    ]


@both_ways
def test_tokens_are_asked_for_once_though_they_are_computed_twice(skip_ahead):
    """The pool is too small for both, so one is preempted; it keeps what it has said."""
    scripts = [Spoken(name, 6, [*range(10, 30)]) for name in (1, 2)]
    outputs = said(*scripts, skip_ahead=skip_ahead, num_blocks=9)
    assert outputs == [[*range(10, 29), END_TOKEN]] * 2
    for script in scripts:
        given = [start + i for _, start, count in script.asked for i in range(count)]
        assert given == sorted(set(given))
        assert set(range(19)) <= set(given)


def test_a_refused_request_costs_no_step():
    result = simulate(CONFIG, Listed([asks(1, 64, 4)]), PerToken(), num_blocks=100)
    assert len(result.steps["end_ns"]) == len(result.sequences["reason"]) == 0
    assert "max_model_len is 64" in result.refused["1"]


@pytest.mark.parametrize("output", [Segment(9, 0), Segment(-1, 4), Segment(MAX_NAME + 1, 4)])
def test_an_output_that_cannot_be_is_refused_by_name(output):
    client = replace(asks(1, 5, 4), output=output)
    with pytest.raises(ValueError, match="request '1': an output has at least 1 token"):
        simulate(CONFIG, Listed([client]), PerToken(), num_blocks=100)


class Breaking(PerToken):
    def __init__(self, num_good_steps: int) -> None:
        super().__init__()
        self._num_left = num_good_steps

    def step_ns(self, shape):
        self._num_left -= 1
        if self._num_left < 0:
            raise ArithmeticError("no such step")
        return super().step_ns(shape)


@both_ways
@pytest.mark.parametrize("num_good_steps", [0, 1, 5])
def test_a_model_that_fails_ends_the_run_and_not_a_request(num_good_steps, skip_ahead):
    with pytest.raises(ArithmeticError, match="no such step"):
        simulate(
            CONFIG,
            Listed([asks(1, 5, 20), asks(2, 5, 20)]),
            Breaking(num_good_steps),
            num_blocks=100,
            skip_ahead=skip_ahead,
        )
