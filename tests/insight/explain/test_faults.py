"""What others cannot tell their users, told here."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.config import SchedulerConfig
from headway.core.request import Request, SamplingParams
from headway.core.scheduler import Scheduler
from headway.core.sequence import Sequence as TokenStream
from headway.core.step import Blocker, Step, StepResult
from headway.drive.clock import VirtualClock
from headway.drive.loop import EngineLoop
from headway.drive.ports import Command, Submit
from headway.drive.recorder import RecordedInbox
from headway.insight.explain.explain import explain
from headway.insight.explain.fold import Explainer
from tests.insight.explain.worlds import check_sums, pool_of

MS = 1_000_000
CONFIG = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=64, block_size=8, max_model_len=512)


def ask(name: str, *, adapter: str = "", n: int = 1, max_tokens: int = 8) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=(1,) * 20,
        sampling=SamplingParams(n=n, max_tokens=max_tokens),
        adapter=adapter,
        arrival_ns=1,
    )


class OneAdapter:
    """There is room for one at a time."""

    def __init__(self) -> None:
        self._users: dict[int, str] = {}

    def bars(self, sequence: TokenStream) -> Blocker | None:
        others = set(self._users.values()) - {sequence.request.adapter}
        return Blocker.ADAPTER if others else None

    def entered(self, sequence: TokenStream) -> None:
        self._users[sequence.sequence_id] = sequence.request.adapter

    def left(self, sequence: TokenStream) -> None:
        del self._users[sequence.sequence_id]


class Machine:
    """Inbox and executor: all requests at once, ten milliseconds a step."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.clock = VirtualClock(1)
        self._commands: list[Command] = [Submit(request) for request in requests]

    def take(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands

    def wait(self, until_ns: int | None = None) -> bool:
        return False

    def run(self, step: Step) -> StepResult:
        self.clock.advance(10 * MS)
        return StepResult([2 for c in step.chunks if c.samples])


def play(explainer: Explainer, requests: Sequence[Request], *constraints: OneAdapter) -> Machine:
    machine = Machine(requests)
    EngineLoop(
        Scheduler(CONFIG, 200, constraints=constraints),
        clock=machine.clock,
        inbox=RecordedInbox(machine, explainer, machine.clock),
        executor=machine,
        listeners=(explainer,),
        run_listeners=(explainer,),
    ).run()
    return machine


def test_p18_who_waits_for_an_adapter_is_told_so() -> None:
    explainer = Explainer(pool_of(CONFIG), buffer=100, is_delivered_at_end=True)
    play(explainer, [ask(name, adapter=name) for name in "abcd"], OneAdapter())
    for name in "bcd":
        account = explainer.account(name)
        assert account is not None
        explanation = explain(explainer, account, 0)
        check_sums(explanation)
        assert explanation.cause == "queue: adapter"
        assert "for its adapter" in explanation.verdict


def test_a_client_that_reads_slowly_is_the_cause() -> None:
    explainer = Explainer(pool_of(CONFIG), buffer=100)
    requests = [ask("slow"), ask("quick")]
    machine = play(explainer, requests)
    ended_ns = machine.clock.now_ns()
    explainer.delivered(requests[1:], ended_ns + MS)
    account = explainer.account("slow")
    assert account is not None
    under_way = explain(explainer, account, ended_ns + 200 * MS)
    assert under_way.parts_ns["delivery"] == 200 * MS
    explainer.delivered(requests[:1], ended_ns + 900 * MS)
    for name, cause, delivery_ns in (("slow", "delivery", 900 * MS), ("quick", "decode", MS)):
        account = explainer.account(name)
        assert account is not None
        explanation = explain(explainer, account, 0)
        check_sums(explanation)
        assert (explanation.cause, explanation.parts_ns["delivery"]) == (cause, delivery_ns)
    assert len(explainer) == 0


def test_of_several_choices_each_has_its_own_and_the_last_speaks_for_all() -> None:
    explainer = Explainer(pool_of(CONFIG), buffer=100, is_delivered_at_end=True)
    play(explainer, [ask("many", n=12)])
    account = explainer.account("many")
    assert account is not None
    explanation = explain(explainer, account, 0)
    check_sums(explanation)
    assert [s.index for s in explanation.sequences] == list(range(12))
    last = max(explanation.sequences, key=lambda s: s.e2e_ns)
    assert explanation.e2e_ns == last.e2e_ns
    assert explanation.parts_ns == last.parts_ns
    assert {s.e2e_ns for s in explanation.sequences} != {last.e2e_ns}


def test_a_choice_that_waits_for_the_others_to_end_does_not_speak_for_all() -> None:
    explainer = Explainer(pool_of(CONFIG), buffer=100)
    request = ask("many", n=12)
    machine = play(explainer, [request])
    explainer.delivered([request], machine.clock.now_ns() + MS)
    account = explainer.account("many")
    assert account is not None
    explanation = explain(explainer, account, 0)
    check_sums(explanation)
    assert {s.e2e_ns for s in explanation.sequences} == {explanation.e2e_ns}
    assert explanation.parts_ns["delivery"] == MS
    assert explanation.cause == "queue: slots"


def test_a_long_life_is_remembered_in_bounded_room() -> None:
    """A thousand steps, an eviction in each: no row is kept for each of them."""
    explainer = Explainer(pool_of(CONFIG), buffer=4, is_delivered_at_end=True)
    for _ in range(40):
        play(explainer, [ask(f"r{number}", max_tokens=60) for number in range(8)])
    assert len(explainer) == 0
    assert sum(explainer.account(f"r{number}") is not None for number in range(8)) == 4
    account = explainer.account("r7")
    assert account is not None
    [life] = account.lives
    assert len(life.tally.segments) <= 3
    assert len(life.tally.windows) == 1
