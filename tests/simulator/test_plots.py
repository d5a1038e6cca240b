"""Lanes exactly; pictures only that they are there and are pictures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.simulator.worlds import Listed, Log, PerToken, asks

from headway.core.config import SchedulerConfig
from headway.simulator.config import Setup
from headway.simulator.lanes import LaneLog, Span, spans_of
from headway.simulator.plots import NoPlotsError, plot_batch, plot_lanes, plot_latency
from headway.simulator.sweep import point

BEGINS = {".png": b"\x89PNG", ".svg": b"<?xml"}


def setup(asked, **knobs) -> Setup:
    config = SchedulerConfig(**{"block_size": 4, "enable_prefix_caching": False, **knobs})
    return Setup(config=config, num_blocks=8, model=PerToken(), workload=Listed(asked))


def lanes(one: Setup):
    result = one.run((log := LaneLog(),))
    return result, log


def test_lanes_of_one_who_waits_and_one_who_is_preempted():
    """Eight blocks: both grow to five, so the second loses its own and computes them again."""
    asked = [asks(0, 8, 12), asks(1, 8, 12), asks(2, 4, 2)]
    spans = spans_of(*lanes(setup(asked, max_num_seqs=2)))
    assert [span for span in spans if span.lane == 0] == [
        Span(0, 0, 1, "prefill"),
        Span(0, 1, 12, "decode"),
    ]
    assert [span for span in spans if span.lane == 1] == [
        Span(1, 0, 1, "prefill"),
        Span(1, 1, 9, "decode"),
        Span(1, 9, 12, "preempted"),
        Span(1, 12, 13, "computed again"),
        Span(1, 13, 15, "decode"),
    ]
    assert [span.kind for span in spans if span.lane == 2] == ["waiting", "prefill", "decode"]


def test_decisions_that_run_nothing_are_no_steps():
    """The second gives up in the first one's only step: a decision that serves nobody."""
    asked = [asks(0, 8, 1), asks(1, 8, 3, at_ns=100, max_queue_ns=50), asks(2, 8, 3, at_ns=10**6)]
    log, records = LaneLog(), Log()
    result = setup(asked, max_num_seqs=1).run((log, records))
    assert [len(record.chunks) for record in records.records] == [1, 0, 1, 1, 1]
    assert log.num_steps == len(result.steps["end_ns"]) == 4
    assert spans_of(result, log) == [
        Span(0, 0, 1, "prefill"),
        Span(2, 1, 2, "prefill"),
        Span(2, 2, 4, "decode"),
    ]


def test_only_the_first_have_lanes():
    log = LaneLog(max_lanes=2)
    setup([asks(name, 4, 3) for name in range(5)]).run((log,))
    assert sorted(log.chunks) == [0, 1]
    assert log.num_steps > 3


@pytest.mark.parametrize("suffix", BEGINS)
def test_pictures_of_each_kind(tmp_path: Path, suffix: str):
    pytest.importorskip("matplotlib")
    one = setup([asks(name, 8, 12, at_ns=300 * name) for name in range(5)])
    result, log = lanes(one)
    points = [
        point({"slots": slots, "unit": unit}, [setup([asks(0, 8, 4)], max_num_seqs=slots)])
        for slots in (1, 2)
        for unit in ("step", "request")
    ]
    plot_batch(result, tmp_path / f"batch{suffix}")
    plot_lanes(result, log, tmp_path / f"lanes{suffix}")
    plot_latency(points, tmp_path / f"latency{suffix}")
    for name in ("batch", "lanes", "latency"):
        content = (tmp_path / f"{name}{suffix}").read_bytes()
        assert content.startswith(BEGINS[suffix])
        assert len(content) > 5000


def test_without_matplotlib_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    result, _ = lanes(setup([asks(0, 8, 4)]))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NoPlotsError, match="plots need matplotlib: pip install"):
        plot_batch(result, tmp_path / "batch.png")


def test_a_picture_that_cannot_be_written_is_a_sentence(tmp_path: Path):
    pytest.importorskip("matplotlib")
    result, _ = lanes(setup([asks(0, 8, 4)]))
    with pytest.raises(NoPlotsError, match="cannot be written"):
        plot_batch(result, tmp_path / "no" / "batch.png")
