"""The loop: commands in, one step, events out, and nothing that an executor does stops it."""

from __future__ import annotations

import pytest

from headway.core.config import SchedulerConfig
from headway.core.events import AbortCause, Aborted, Admitted, Advanced, Queued, Rejected, Retired
from headway.core.request import FinishReason, Request, SamplingParams, TimeLimits
from headway.core.scheduler import Scheduler
from headway.core.step import Blocker, StepResult
from headway.drive.clock import VirtualClock
from headway.drive.invariants import check_idle
from headway.drive.loop import EngineLoop
from headway.drive.ports import ResetPrefixCache, Submit, Withdraw
from headway.drive.record import StepRecord

STEP_NS = 5_000_000


class ScriptedInbox:
    """Commands at given times; waiting jumps the clock to the next."""

    def __init__(self, clock: VirtualClock, script) -> None:
        self._clock = clock
        self._script = sorted(script, key=lambda entry: entry[0])

    def take(self):
        due = [command for at, command in self._script if at <= self._clock.now_ns()]
        self._script = self._script[len(due) :]
        return due

    def wait(self, until_ns=None):
        times = [at for at in (until_ns, *(at for at, _ in self._script[:1])) if at is not None]
        if not times:
            return False
        self._clock.advance_to(min(times))
        return True


class TimedExecutor:
    """Says token 1 and takes five milliseconds; raises in the steps it is told to."""

    def __init__(self, clock: VirtualClock, *, raises_in=(), says_nothing_in=()) -> None:
        self._clock = clock
        self._raises_in = raises_in
        self._says_nothing_in = says_nothing_in
        self.num_runs = 0

    def run(self, step):
        self.num_runs += 1
        self._clock.advance(STEP_NS)
        if step.index in self._raises_in:
            raise MemoryError("no room")
        if step.index in self._says_nothing_in:
            return StepResult()
        return StepResult([1 for c in step.chunks if c.samples])


class Ledger:
    def __init__(self) -> None:
        self.turns = []
        self.records: list[StepRecord] = []
        self.turns_before_step: list[int] = []

    def on_events(self, events, now_ns):
        self.turns.append((now_ns, list(events)))

    def on_step(self, record):
        self.records.append(record)
        self.turns_before_step.append(len(self.turns))

    @property
    def events(self):
        return [event for _, events in self.turns for event in events]

    def kinds(self, request_id):
        return [type(e).__name__ for e in self.events if e.request_id == request_id]


def submit(request_id, *, prompt=3, max_tokens=2, **fields):
    sampling = SamplingParams(max_tokens=max_tokens)
    ids = (1,) * prompt
    return Submit(Request(request_id=request_id, prompt_token_ids=ids, sampling=sampling, **fields))


def play(script, *, constraints=(), raises_in=(), says_nothing_in=(), **knobs):
    clock = VirtualClock()
    scheduler = Scheduler(SchedulerConfig(**knobs), 20, constraints=constraints)
    executor = TimedExecutor(clock, raises_in=raises_in, says_nothing_in=says_nothing_in)
    ledger = Ledger()
    loop = EngineLoop(
        scheduler,
        clock=clock,
        inbox=ScriptedInbox(clock, script),
        executor=executor,
        listeners=[ledger],
        step_listeners=[ledger],
    )
    loop.run()
    check_idle(scheduler)
    return ledger, executor


def test_a_turn_tells_everything_once_and_in_order():
    ledger, _ = play([(0, submit("a")), (0, submit("big", prompt=9000))])
    told = [(now_ns, [type(event) for event in events]) for now_ns, events in ledger.turns]
    assert told == [
        (0, [Queued, Rejected, Admitted]),  # before the step, which takes STEP_NS
        (STEP_NS, [Advanced]),
        (2 * STEP_NS, [Advanced, Retired]),
    ]


def test_an_idle_loop_waits_for_what_comes_and_counts_no_steps():
    ledger, executor = play([(0, submit("a")), (10**9, submit("b"))])
    assert [record.index for record in ledger.records] == [0, 1, 2, 3]
    assert [record.start_ns for record in ledger.records] == [0, STEP_NS, 10**9, 10**9 + STEP_NS]
    assert executor.num_runs == 4


def test_a_withdrawal_reaches_the_scheduler_between_two_steps():
    stop = Withdraw("a", reason=FinishReason.STOP, detail="a stop string")
    ledger, _ = play([(0, submit("a", max_tokens=50)), (2 * STEP_NS, stop)])
    assert ledger.kinds("a") == ["Queued", "Admitted", "Advanced", "Advanced", "Aborted"]
    [end] = [event for event in ledger.events if isinstance(event, Aborted)]
    assert (end.reason, end.detail) == (FinishReason.STOP, "a stop string")


def test_an_executor_that_raises_ends_that_step_and_not_the_loop():
    script = [(0, submit("a")), (STEP_NS, submit("b"))]
    ledger, _ = play(script, raises_in=[0])
    [end] = [e for e in ledger.events if isinstance(e, Retired) and e.request_id == "a"]
    assert (end.reason, end.detail) == (FinishReason.ERROR, "the step failed: MemoryError: no room")
    assert ledger.kinds("b") == ["Queued", "Admitted", "Advanced", "Advanced", "Retired"]
    assert ledger.records[0].error == end.detail
    assert ledger.records[0].retired == ((0, "error"),)


def test_a_result_without_its_tokens_is_a_failure_too():
    ledger, _ = play([(0, submit("a")), (STEP_NS, submit("b"))], says_nothing_in=[0])
    [end] = [e for e in ledger.events if isinstance(e, Retired) and e.request_id == "a"]
    assert "samples 1, got 0" in end.detail
    assert ledger.kinds("b")[-1] == "Retired"


def test_a_step_is_told_after_its_admissions_and_before_its_tokens():
    ledger, _ = play([(0, submit("a"))])
    assert ledger.turns_before_step == [1, 2]
    assert [type(e) for e in ledger.turns[1][1]] == [Advanced]


def test_a_step_that_gives_nobody_a_token_is_told_too():
    """Else nobody would hear that a prompt is being computed and the backlog shrinks."""
    ledger, _ = play([(0, submit("a", prompt=10, max_tokens=1))], max_num_batched_tokens=4)
    assert [len(events) for _, events in ledger.turns] == [2, 0, 0, 2]


def test_a_time_limit_ends_an_idle_wait_where_nothing_can_run():
    class Never:
        def bars(self, sequence):
            return Blocker.ADAPTER

        def entered(self, sequence):
            raise AssertionError("barred")

        left = entered

    limits = TimeLimits(max_queue_ns=7 * STEP_NS)
    ledger, _ = play([(0, submit("a", limits=limits))], constraints=[Never()])
    told_ns, events = ledger.turns[-1]
    assert (told_ns, [type(e) for e in events]) == (7 * STEP_NS, [Aborted])
    assert events[0].cause is AbortCause.QUEUE_TIME


def test_who_is_given_up_is_told_before_the_step_and_stands_in_its_record():
    limits = TimeLimits(max_run_ns=2 * STEP_NS)
    script = [(0, submit("a", max_tokens=50, limits=limits)), (0, submit("b", max_tokens=9))]
    ledger, _ = play(script)
    assert ledger.kinds("a") == ["Queued", "Admitted", "Advanced", "Advanced", "Aborted"]
    assert [record.expired for record in ledger.records][:3] == [(), (), ((0, "run_time"),)]
    assert ledger.records[0].outputs == ((0, 1), (1, 1))
    at_ns = next(at for at, events in ledger.turns if Aborted in map(type, events))
    assert at_ns == ledger.records[2].start_ns


def test_a_reset_of_the_prefix_cache_arrives():
    script = [
        (0, submit("a", prompt=40)),
        (10**9, submit("b", prompt=40)),
        (2 * 10**9, ResetPrefixCache()),
        (2 * 10**9, submit("c", prompt=40)),
    ]
    ledger, _ = play(script)
    assert [e.num_cached_tokens for e in ledger.events if isinstance(e, Admitted)] == [0, 32, 0]


def test_what_stays_barred_when_nothing_more_comes_is_told_so():
    class Never:
        def bars(self, sequence):
            return Blocker.ADAPTER

        def entered(self, sequence):
            raise AssertionError("barred")

        left = entered

    ledger, executor = play([(0, submit("a"))], constraints=[Never()])
    assert executor.num_runs == 0
    assert ledger.kinds("a") == ["Queued", "Aborted"]
    assert "still barred" in ledger.events[-1].detail
    assert ledger.events[-1].cause is AbortCause.ENGINE
    assert ledger.records[0].blocker == "adapter"


def test_the_same_inputs_make_the_same_records():
    script = [(i * STEP_NS, submit(f"{i}", prompt=i + 1, max_tokens=9)) for i in range(20)]
    runs = [play(script, max_num_seqs=4, block_size=2)[0].records for _ in range(2)]
    assert runs[0] == runs[1]
    assert any(record.preempted for record in runs[0])


def test_records_survive_json_and_compare_without_their_times():
    script = [(0, submit(f"{i}", prompt=i + 1, max_tokens=9)) for i in range(9)]
    records = play(script, max_num_seqs=4, block_size=2)[0].records
    back = [StepRecord.from_json(record.to_json()) for record in records]
    assert back == records
    later = StepRecord.from_json(records[0].to_json().replace('"start_ns":0', '"start_ns":7'))
    assert later != records[0]
    assert later.decision == records[0].decision


@pytest.mark.parametrize("line", ["{}", "[]", "no json", '{"chunks":3}', "null"])
def test_garbage_is_no_record(line):
    with pytest.raises(ValueError, match=r"."):
        StepRecord.from_json(line)


def test_virtual_time_goes_forward_only():
    clock = VirtualClock(5)
    clock.advance(3)
    clock.advance_to(4)
    assert clock.now_ns() == 8
    with pytest.raises(ValueError, match="cannot go back by 1 ns"):
        clock.advance(-1)


def test_the_scheduler_is_told_of_the_end_that_is_recorded():
    told = []

    class Asked(Scheduler):
        def complete(self, step, result, now_ns=None):
            told.append(now_ns)
            return super().complete(step, result, now_ns)

    class Ticking(VirtualClock):
        def now_ns(self):
            self.advance(7)  # as a real clock: no two readings are the same
            return super().now_ns()

    clock, ledger = Ticking(), Ledger()
    loop = EngineLoop(
        Asked(SchedulerConfig(), 20),
        clock=clock,
        inbox=ScriptedInbox(clock, [(0, submit("a", max_tokens=3))]),
        executor=TimedExecutor(clock),
        step_listeners=[ledger],
    )
    loop.run()
    assert told == [record.end_ns for record in ledger.records]
    assert len(told) == 3
