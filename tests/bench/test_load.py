"""Planted delays come out as planted: on a loop whose time jumps, to the nanosecond."""

from __future__ import annotations

import asyncio

import pytest

from headway.bench.figures import Objectives
from headway.bench.outcome import Ending
from headway.simulator.workload.arrivals import ClosedLoop
from headway.simulator.workload.lengths import fixed
from headway.simulator.workload.synthetic import Synthetic
from tests.bench.virtual import (
    CLOSE,
    DONE,
    HEAD,
    FakeServer,
    Fixed,
    event,
    load_of,
    measured,
    refusal,
    run,
    stream,
    token,
    usage,
)


def test_times_are_those_that_were_planted() -> None:
    """Request n: first token after n + 1 tenths, then gaps of 10, 20 and 30 ms."""

    def script(n: int):
        first = (n + 1) / 10
        return stream([first, first + 0.010, first + 0.030, first + 0.060])

    figures, _ = measured(Fixed([float(n) for n in range(10)]), FakeServer(script))
    times = figures.times
    assert figures.num_served == 10
    assert times["ttft"].at(50) == pytest.approx(0.5, abs=1e-6)
    assert times["ttft"].at(90) == pytest.approx(0.9, abs=1e-6)
    assert times["ttft"].at(99) == pytest.approx(1.0, abs=1e-6)
    assert [times["itl"].at(p) for p in (33, 50, 99)] == pytest.approx([0.01, 0.02, 0.03], abs=1e-6)
    assert len(times["itl"].ordered) == 30
    assert times["tpot"].mean == pytest.approx(0.02, abs=1e-6)
    assert times["e2el"].at(100) == pytest.approx(1.06, abs=1e-6)
    assert figures.num_output_tokens == 40
    assert figures.num_prompt_tokens == 40


def test_itl_is_of_gaps_and_tpot_of_requests() -> None:
    """One long answer of quick tokens, one short answer of slow ones: the two figures differ."""

    def script(n: int):
        gap, count = ((0.01, 99), (1.0, 1))[n]
        return stream([0.1 + gap * place for place in range(count + 1)])

    figures, _ = measured(Fixed([0.0, 5.0]), FakeServer(script))
    assert figures.times["itl"].at(50) == pytest.approx(0.01, abs=1e-6)
    assert figures.times["itl"].mean == pytest.approx((99 * 0.01 + 1.0) / 100, abs=1e-6)
    assert figures.times["tpot"].mean == pytest.approx((0.01 + 1.0) / 2, abs=1e-6)


def test_who_had_to_wait_for_a_server_that_stood_still_is_charged_with_it() -> None:
    """It serves one at a time in 10 ms and stands still for 2 s: a loop that waits for answers
    would charge one request with it. Here everybody who was due meanwhile waits, and it shows.
    """
    free_s = [0.0]

    def script(n: int):
        now = asyncio.get_running_loop().time()
        free_s[0] = max(free_s[0], now) + 0.010
        if n == 100:
            free_s[0] += 2.0
        return stream([free_s[0] - now])

    at_s = [n * 0.020 for n in range(400)]
    figures, tally = measured(Fixed(at_s, outputs=1), FakeServer(script))
    waits = [outcome.ttft_ns() / 1e9 for outcome in tally.outcomes]
    assert sum(wait > 0.1 for wait in waits) == pytest.approx(190, abs=2)
    assert figures.times["ttft"].at(50) == pytest.approx(0.06, abs=0.06)
    assert figures.times["ttft"].at(90) > 1.0


def test_waiting_for_a_place_counts_and_is_none_of_the_clients_lateness() -> None:
    server = FakeServer(lambda n: stream([1.0]))
    figures, tally = measured(Fixed([0.0, 0.0, 0.0], outputs=1), server, max_concurrency=1)
    ttfts = sorted(outcome.ttft_ns() / 1e9 for outcome in tally.outcomes)
    assert ttfts == pytest.approx([1.0, 2.0, 3.0], abs=1e-6)
    assert figures.client.lateness_s.max == pytest.approx(0.0, abs=1e-6)
    assert figures.peak_open == 1
    assert server.num_connections == 1


def test_a_closed_loop_asks_when_it_was_answered() -> None:
    workload = Synthetic(
        arrivals=ClosedLoop(2), prompt_tokens=fixed(4), output_tokens=fixed(1), num_requests=6
    )
    figures, tally = measured(workload, FakeServer(lambda n: stream([0.5])))
    assert figures.num_served == 6
    assert {outcome.ttft_ns() for outcome in tally.outcomes} == {500_000_000}
    assert figures.duration_s == pytest.approx(1.5, abs=1e-6)


def test_every_ending_is_counted_by_what_it_was() -> None:
    scripts = [
        stream([0.1]),
        refusal(503, "the queue is full"),
        refusal(429, "slow down"),
        [(0.0, HEAD + token()), (0.1, CLOSE)],
        [(0.0, CLOSE)],
        [(0.0, HEAD + b"5\r\nhello\r\n"), (0.1, b"garbage that is no chunk\r\n")],
        [(0.0, b"SSH-2.0-OpenSSH_9.6\r\n")],
        [(0.0, HEAD + token() + event(error={"message": "the engine died"}) + DONE)],
        [(0.0, HEAD + event(choices=[]) + DONE)],
        [
            (
                0.0,
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
            )
        ],
        [(0.0, HEAD + b"e\r\ndata: {{{{{\n\n\r\n")],
        [(0.0, HEAD + token())],  # and then nothing
        [(0.0, HEAD + token() + b"0\r\n\r\n")],
    ]
    at_s = [float(n) for n in range(len(scripts))]
    figures, _ = measured(Fixed(at_s), FakeServer(scripts.__getitem__), stall_s=5.0)
    assert figures.endings == {
        "served": 1,
        "refused with 503": 1,
        "refused with 429": 1,
        "broken off": 3,
        "not an event stream": 5,
        "error in the stream": 1,
        "stalled": 1,
    }
    assert sum(figures.endings.values()) == figures.num_requests == len(scripts)
    assert figures.messages["refused with 503"] == "the queue is full"
    assert figures.messages["error in the stream"] == "the engine died"
    assert len(figures.times["ttft"].ordered) == 1


def test_a_server_that_is_not_there_is_counted_and_at_last_given_up() -> None:
    def refuse(n: int):
        raise AssertionError("nobody can have asked")

    at_s = [n * 0.01 for n in range(500)]
    figures, tally = measured(Fixed(at_s), FakeServer(refuse, opens_s=1e9))
    assert figures.endings == {"no connection": 100}
    assert "found no server: nobody is there" in tally.why_cut


def test_a_kept_connection_that_the_server_closed_is_replaced_once() -> None:
    def script(n: int):
        return [(0.0, CLOSE)] if n == 1 else stream([0.1])

    server = FakeServer(script)
    figures, _ = measured(Fixed([0.0, 1.0], outputs=1), server)
    assert figures.num_served == 2
    assert len(server.requests) == 3
    assert server.num_connections == 2


def test_clients_that_leave_are_no_failures_of_the_server() -> None:
    server = FakeServer(lambda n: stream([3.0]))
    figures, tally = measured(Fixed([1.0], leaves_after_ns=500_000_000), server)
    assert figures.endings == {"left, as the workload says": 1}
    assert tally.outcomes[0].e2e_ns() == 500_000_000


def test_what_is_cut_off_is_told() -> None:
    async def whole():
        load = load_of(Fixed([0.0, 1.0, 2.0, 90.0]), FakeServer(lambda n: stream([1.5])))
        asyncio.get_running_loop().call_later(2.25, load.stop, "interrupted")
        return await load.run()

    tally = run(whole())
    assert [outcome.ending for outcome in tally.outcomes] == [
        Ending.SERVED,
        Ending.CUT,
        Ending.CUT,
    ]
    assert tally.is_cut
    assert tally.why_cut == "interrupted"


def test_a_drain_can_be_limited() -> None:
    server = FakeServer(lambda n: stream([10.0]))
    figures, tally = measured(Fixed([0.0, 8.0]), server, drain_s=3.0)
    assert figures.endings == {"served": 1, "cut off by the end of the run": 1}
    assert figures.drain_s == pytest.approx(3.0, abs=1e-6)
    assert "3 s after the last arrival" in tally.why_cut


def test_goodput_counts_requests_that_meet_every_objective() -> None:
    """TTFT of 0.1, 0.2 … 1.0 s, each with a TPOT of 20 ms but the first, with 200."""

    def script(n: int):
        gap, first = (0.2 if n == 0 else 0.02), (n + 1) / 10
        return stream([first, first + gap])

    objectives = Objectives((("ttft", 0.5001), ("tpot", 0.05)))
    figures, _ = measured(Fixed([float(n) for n in range(10)]), FakeServer(script), objectives)
    assert figures.num_good == 4
    assert figures.good_share == 0.4
    assert figures.good_per_second == pytest.approx(4 / figures.duration_s)


def test_tokens_are_those_of_the_usage_and_events_where_there_is_none() -> None:
    """Two tokens to an event, as servers do that stream in intervals."""
    told = [(0.1, HEAD + token() + token()), (0.3, token() + usage(4, 6) + DONE)]
    silent = [(0.1, HEAD + token()), (0.3, token() + DONE)]
    figures, tally = measured(Fixed([0.0, 1.0]), FakeServer([told, silent].__getitem__))
    assert [outcome.num_output_tokens for outcome in tally.outcomes] == [6, 2]
    assert tally.outcomes[0].tpot_ns() == pytest.approx(0.2e9 / 5)
    assert not figures.is_usage_known


def test_a_queue_that_grows_is_seen() -> None:
    """Served one after another in 0.1 s each: 5 a second are kept up with, 20 are not."""

    def server() -> FakeServer:
        free_s = [0.0]

        def script(n: int):
            now = asyncio.get_running_loop().time()
            free_s[0] = max(free_s[0], now) + 0.1
            return stream([free_s[0] - now])

        return FakeServer(script)

    slow, _ = measured(Fixed([n / 5 for n in range(100)], outputs=1), server())
    fast, _ = measured(Fixed([n / 20 for n in range(400)], outputs=1), server())
    assert slow.kept_up_share > 0.99
    assert fast.kept_up_share < 0.6
    assert fast.steady_tokens_per_second == pytest.approx(10, rel=0.05)
