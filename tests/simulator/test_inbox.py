"""A workload as an inbox: who comes when, in which order, and who goes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulator.worlds import Listed, Log, PerToken, asks

from headway.core.config import SchedulerConfig
from headway.core.events import Aborted, Queued, RefusalCause, Rejected, Retired
from headway.core.request import FinishReason
from headway.drive.clock import VirtualClock
from headway.drive.ports import Submit, Withdraw
from headway.simulator.inbox import Source, WorkloadInbox
from headway.simulator.script import SyntheticScript
from headway.simulator.simulate import simulate
from headway.simulator.workload.arrivals import ClosedLoop
from headway.simulator.workload.lengths import fixed, uniform
from headway.simulator.workload.synthetic import Synthetic
from headway.simulator.workload.waits import NO_WAIT, FixedWait

CONFIG = SchedulerConfig(max_num_seqs=2)


def play(requests, then=None, *, config=CONFIG, **options):
    return simulate(config, Listed(requests, then), PerToken(), num_blocks=100, **options)


class Door:
    """An inbox, with everybody who comes in accepted at once."""

    def __init__(self, clients, follow_up=lambda script, now_ns: ()) -> None:
        self.clock = VirtualClock()
        scripts = [SyntheticScript(client) for client in clients]
        self.inbox = WorkloadInbox(self.clock, Source(iter(scripts), follow_up))
        self.num_sequences = 0

    def take(self, *, accepts=True) -> list[str]:
        told = []
        for command in self.inbox.take():
            match command:
                case Submit(request):
                    told.append(f"+{request.request_id}")
                    if accepts:
                        self.accept(request.request_id)
                case Withdraw(request_id):
                    told.append(f"-{request_id}")
        return told

    def accept(self, request_id: str) -> None:
        self.tell(Queued(self.num_sequences, request_id, 0))
        self.num_sequences += 1

    def end(self, request_id: str) -> None:
        self.tell(Retired(0, request_id, FinishReason.STOP))

    def tell(self, event) -> None:
        self.inbox.on_events([event], self.clock.now_ns())


# ---- Arrivals ----


def test_requests_come_when_they_are_due_and_time_jumps_to_the_next():
    door = Door([asks(1, 4, 4), asks(2, 4, 4, at_ns=50), asks(3, 4, 4, at_ns=50)])
    assert door.take() == ["+1"]
    assert door.take() == []
    assert door.inbox.next_ns() == 50
    assert door.inbox.wait()
    assert door.clock.now_ns() == 50
    assert door.take() == ["+2", "+3"]
    assert not door.inbox.wait()


def test_waiting_ends_at_a_time_limit_that_is_due_before():
    door = Door([asks(1, 4, 4, at_ns=50)])
    assert door.inbox.wait(20)
    assert (door.clock.now_ns(), door.take()) == (20, [])
    assert door.inbox.wait(90)
    assert (door.clock.now_ns(), door.take()) == (50, ["+1"])


class Unsorted(Listed):
    def arrivals(self):
        return iter([asks(1, 4, 4, at_ns=70), asks(2, 4, 4, at_ns=60)])


def test_arrivals_out_of_order_are_refused_by_name():
    with pytest.raises(ValueError, match="request '2' arrives at 60 ns, after one at 70 ns"):
        simulate(CONFIG, Unsorted([]), PerToken(), num_blocks=100)


def test_no_requests_make_an_empty_run():
    summary = play([]).summary()
    assert (summary.num_requests, summary.num_steps, summary.duration_s) == (0, 0, 0.0)


# ---- Follow-ups ----


def test_what_follows_comes_at_its_time_and_before_others_of_that_time():
    following = {"1": [asks(8, 4, 4, at_ns=50), asks(7, 4, 4, at_ns=30)]}
    door = Door(
        [asks(1, 4, 4), asks(2, 4, 4, at_ns=50)],
        lambda script, _: map(SyntheticScript, following.get(script.request.request_id, ())),
    )
    assert door.take() == ["+1"]
    assert door.inbox.next_ns() == 50
    door.end("1")
    door.inbox.wait()
    assert (door.clock.now_ns(), door.take()) == (30, ["+7"])
    door.inbox.wait()
    assert (door.clock.now_ns(), door.take()) == (50, ["+8", "+2"])


def test_what_follows_cannot_arrive_before_what_it_follows_ends():
    with pytest.raises(ValueError, match=r"'9' follows '1', which .* arrive at 0 ns"):
        play([asks(1, 4, 4)], lambda ended, _: [asks(9, 4, 4)] if ended.request_id == "1" else [])


def test_a_refused_request_is_followed_too():
    """A client of a closed loop that got an error asks again."""
    too_long, follows = asks(1, 9000, 4), asks(2, 4, 4)
    result = play([too_long], lambda ended, _: [follows] if ended == too_long else [])
    assert result.sequences["request_id"].tolist() == ["2"]
    assert list(result.refused) == ["1"]
    assert result.summary().num_refused == 1


def test_a_request_for_several_is_followed_when_the_last_of_them_has_ended():
    script = SyntheticScript(asks(1, 4, 4))
    script.request = replace(script.request, sampling=replace(script.request.sampling, n=3))
    followed = []
    inbox = WorkloadInbox(
        VirtualClock(), Source(iter([script]), lambda *of: followed.append(of) or ())
    )
    assert inbox.take() == [Submit(script.request)]
    inbox.on_events([Queued(index, "1", index) for index in range(3)], 0)
    inbox.on_events([Retired(0, "1", FinishReason.STOP), Aborted(2, "1")], 5)
    assert inbox.script_of("1") is script
    assert followed == []
    inbox.on_events([Retired(1, "1", FinishReason.STOP)], 9)
    assert followed == [(script, 9)]


# ---- Clients that leave ----


def test_a_client_leaves_in_the_queue_or_while_it_is_served():
    slow = asks(1, 4, 50)
    served = asks(2, 4, 50, leaves_after_ns=5_000)
    queued = asks(3, 4, 50, at_ns=10, leaves_after_ns=3_000)
    log = Log()
    requests = play([slow, served, queued], step_listeners=(log,)).sequences
    assert requests["reason"].tolist() == ["stop", "abort", "abort"]
    assert requests["num_output_tokens"][0] == 50
    assert 0 < requests["num_output_tokens"][1] < 50
    assert (requests["num_output_tokens"][2], requests["admitted_ns"][2]) == (0, -1)
    # At the first border of steps behind it: a step that runs is not broken off.
    starts = [record.start_ns for record in log.records]
    assert requests["ended_ns"][1] == min(at for at in starts if at >= 5_000)
    assert requests["ended_ns"][2] == min(at for at in starts if at >= 3_010)


def test_a_client_that_left_before_anybody_could_look():
    requests = play([asks(1, 4, 50), asks(2, 4, 4, at_ns=1, leaves_after_ns=1)]).sequences
    assert requests["reason"].tolist() == ["stop", "abort"]
    assert requests["ended_ns"][1] == 1_410  # the end of the step in which it came and went


def test_a_client_that_has_its_answer_leaves_nothing_behind():
    door = Door([asks(1, 4, 4, leaves_after_ns=40), asks(2, 4, 4, leaves_after_ns=60)])
    assert door.take() == ["+1", "+2"]
    assert door.inbox.next_ns() == 40
    door.end("1")
    assert door.inbox.next_ns() == 60
    door.end("2")
    assert door.inbox.next_ns() is None
    with pytest.raises(KeyError):
        door.inbox.script_of("2")


# ---- Ids ----


def named(request, request_id):
    return replace(request, request_id=request_id)


def test_an_id_in_use_is_refused_and_the_one_that_has_it_goes_on():
    asked = [asks(1, 4, 50), named(asks(2, 6, 3, at_ns=2_000, leaves_after_ns=1), "1")]
    asked.append(named(asks(3, 6, 3, at_ns=2_000), "1"))
    result = play(asked)
    assert result.sequences["num_prompt_tokens"].tolist() == [4]
    assert result.sequences["num_output_tokens"].tolist() == [50]
    assert "is in use" in result.refused["1"]
    assert result.summary().num_refused == 2


def test_an_id_can_be_used_again_and_is_not_withdrawn_with_the_first():
    door = Door(
        [
            asks(5, 4, 4, leaves_after_ns=10),
            asks(1, 4, 4, leaves_after_ns=30),
            named(asks(2, 4, 4, at_ns=20), "1"),
        ]
    )
    assert door.take() == ["+5", "+1"]
    door.end("1")
    door.clock.advance_to(20)
    assert door.take() == ["+1", "-5"]
    door.clock.advance_to(30)
    assert door.take() == []


def test_of_one_id_the_first_that_is_not_refused_is_known():
    first, second = asks(1, 9000, 4), named(asks(2, 6, 3), "1")
    door = Door([first, second])
    assert door.take(accepts=False) == ["+1", "+1"]
    door.tell(Rejected("1", "too long", RefusalCause.NEVER_FITS))
    door.accept("1")
    assert door.inbox.script_of("1").client == second
    assert play([first, second]).sequences["num_prompt_tokens"].tolist() == [6]


# ---- Closed loops ----


@pytest.mark.parametrize(("think", "pause_ns"), [(NO_WAIT, 0), (FixedWait(2e-5), 20_000)])
def test_a_closed_loop_keeps_so_many_clients_busy_until_all_are_served(think, pause_ns):
    workload = Synthetic(
        arrivals=ClosedLoop(3, think),
        prompt_tokens=fixed(8),
        output_tokens=uniform(2, 30),
        num_requests=40,
    )
    config = SchedulerConfig(max_num_seqs=8)
    result = simulate(config, workload, PerToken(), num_blocks=100)
    requests = result.sequences
    assert requests["reason"].tolist() == ["stop"] * 40
    assert result.steps["num_running"].max() == 3
    arrivals, ends = requests["arrival_ns"], requests["ended_ns"]
    assert arrivals[:3].tolist() == [0, 0, 0]
    assert sorted(arrivals[3:]) == sorted(ends + pause_ns)[:37]
