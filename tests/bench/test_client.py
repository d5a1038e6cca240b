"""A client that is too slow says so, and one that is not does not."""

from __future__ import annotations

import asyncio

from headway.bench.figures import figures_of
from headway.bench.watch import ClientFigures, Watch
from headway.simulator.result import Spread
from tests.bench.virtual import FakeServer, Fixed, VirtualLoop, load_of, measured, run, stream


def test_a_client_that_is_held_up_marks_its_figures() -> None:
    """Something takes the loop for 50 ms out of every 60: requests leave late, reads come late."""

    async def whole():
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)

        def hold_up() -> None:
            loop.now_s += 0.050
            loop.call_later(0.010, hold_up)

        server = FakeServer(lambda n: stream([0.02, 0.04, 0.06, 0.08]))
        load = load_of(Fixed([n * 0.05 for n in range(100)]), server)
        loop.call_later(0.010, hold_up)
        tally = await load.run()
        return figures_of(tally, load.watch)

    complaints = run(whole()).complaints()
    assert any("requests left" in complaint for complaint in complaints)
    assert any("reads came" in complaint for complaint in complaints)


def test_a_client_with_time_enough_says_nothing() -> None:
    server = FakeServer(lambda n: stream([0.02, 0.04]))
    figures, _ = measured(Fixed([n * 0.05 for n in range(100)]), server)
    assert figures.complaints() == []


def test_a_client_that_computes_all_the_time_is_told() -> None:
    nothing = Spread(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    client = ClientFigures(cpu_share=0.93, lateness_s=nothing, lag_s=nothing)
    (complaint,) = client.complaints(lambda percent: 1.0, lambda percent: 1.0)
    assert complaint == "the client was busy for 93% of the time"


def test_a_rare_delay_is_held_against_the_rare_figure_only() -> None:
    """One read in a hundred late by 20 ms moves no median of 30 ms, but a p99 of 40."""
    rare = Spread(0.001, 0.0, 0.0, 0.0, 0.020, 0.020)
    nothing = Spread(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    client = ClientFigures(cpu_share=0.1, lateness_s=nothing, lag_s=rare)

    def itl_s(percent: float) -> float:
        return 0.03 if percent == 50 else slowest_s

    slowest_s = 0.5
    assert client.complaints(lambda percent: 1.0, itl_s) == []
    slowest_s = 0.04
    (complaint,) = client.complaints(lambda percent: 1.0, itl_s)
    assert complaint == "at the percentile 99 reads came 20 ms late, and ITL is 40 ms"


def test_the_watch_measures_the_loop_and_the_processor() -> None:
    async def whole() -> Watch:
        loop, watch = asyncio.get_running_loop(), Watch()
        assert isinstance(loop, VirtualLoop)
        looking = asyncio.create_task(watch.look(lambda: loop.time() / 2))
        await asyncio.sleep(1.0)
        loop.now_s += 0.5
        await asyncio.sleep(0.5)
        looking.cancel()
        await asyncio.wait([looking])
        return watch

    watch = run(whole())
    assert max(watch.lags_s) > 0.4
    assert watch.cpu_s / watch.wall_s == 0.5
