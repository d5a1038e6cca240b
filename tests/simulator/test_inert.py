"""Knobs that change nothing are named, and only those."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulator.worlds import Listed, PerToken, asks

from headway.core.config import SchedulerConfig
from headway.simulator.config import Setup, engine_name
from headway.simulator.inert import KnobReport, inert_knobs
from headway.simulator.same import digest, first_different_step

_KNOB = {engine_name(f.name): f.name for f in dataclasses.fields(SchedulerConfig)}


def setup(asked, num_blocks: int = 30, **knobs) -> Setup:
    config = SchedulerConfig(**{"block_size": 4, "max_model_len": 200, **knobs})
    return Setup(config=config, num_blocks=num_blocks, model=PerToken(), workload=Listed(asked))


def changed(one: Setup, knob: str, value: object) -> Setup:
    if knob == "num_gpu_blocks_override":
        return dataclasses.replace(one, num_blocks=value)
    config = dataclasses.replace(one.config, **{_KNOB[knob]: value})
    return dataclasses.replace(one, config=config)


def reports(one: Setup) -> dict[str, KnobReport]:
    report = inert_knobs(one, one.run(), seconds=600)
    return {knob.knob: knob for knob in report.knobs}


def test_slots_are_inert_where_blocks_bind():
    asked = [asks(name, 16, 12) for name in range(12)]
    one = setup(asked, num_blocks=24, max_num_seqs=64)
    report = inert_knobs(one, one.run(), seconds=600)
    knobs = {knob.knob: knob for knob in report.knobs}
    peak = report.binding.peak_batch
    assert peak < 12
    assert knobs["max_num_seqs"].same_values == (peak, 32, 64, 128)
    assert knobs["max_num_seqs"] in report.inert
    assert not knobs["num_gpu_blocks_override"].is_inert
    assert report.binding.wall == "KV blocks"
    assert "for KV blocks in" in report.binding.sentence()


def test_slots_are_not_where_they_bind():
    asked = [asks(name, 16, 12) for name in range(12)]
    one = setup(asked, num_blocks=400, max_num_seqs=4)
    report = inert_knobs(one, one.run(), seconds=600)
    [slots] = [knob for knob in report.knobs if knob.knob == "max_num_seqs"]
    assert slots.other_values == (2, 8)
    # Four prompts fit the first step in both cases, two do not.
    assert {trial.value: trial.differs_at for trial in slots.trials} == {2: 0, 8: 0}
    assert report.binding.wall == "slots (max_num_seqs)"


def test_nothing_binds_where_nobody_waits():
    report = inert_knobs(one := setup([asks(0, 5, 5)]), one.run(), seconds=600)
    assert report.binding.wall is None
    assert report.binding.sentence() == "nothing: hardly anybody waited, 1 ran at once at most"


def test_a_request_that_fares_otherwise_is_a_difference_though_all_steps_are_equal():
    """Two that differ in their names only, and the order in which they are served."""
    asked = [asks(0, 8, 4, priority=1), asks(1, 8, 4, priority=0)]
    one = setup(asked, max_num_seqs=1)
    other = changed(one, "scheduling_policy", "priority")
    assert first_different_step(one.run(), other.run()) == len(one.run().steps["end_ns"])
    assert digest(one.run()) != digest(other.run())
    assert not reports(one)["scheduling_policy"].is_inert


def test_what_there_was_no_time_for_is_said():
    one = setup([asks(0, 5, 5)])
    report = inert_knobs(one, one.run(), seconds=0)
    assert report.inert == ()
    [slots] = [knob for knob in report.knobs if knob.knob == "max_num_seqs"]
    assert slots.unknown_values == (1, 128, 512)
    assert {trial.cut_after for trial in slots.trials} == {0}
    assert slots.same_values == (256,)


@st.composite
def worlds(draw) -> Setup:
    asked = [
        asks(
            name,
            draw(st.integers(1, 30)),
            draw(st.integers(1, 20)),
            at_ns=draw(st.integers(0, 20_000)),
            prefix=draw(st.sampled_from([0, 0, 1])),
            max_tokens=draw(st.sampled_from([None, 20])),
            priority=draw(st.integers(0, 1)),
        )
        for name in range(draw(st.integers(1, 8)))
    ]
    return setup(
        asked,
        num_blocks=draw(st.integers(13, 40)),
        max_num_seqs=draw(st.integers(1, 8)),
        max_num_batched_tokens=draw(st.sampled_from([8, 64, 200])),
        enable_prefix_caching=draw(st.booleans()),
        kv_policy=draw(st.sampled_from(["on-demand", "reserve", "predict"])),
        max_model_len=50,
    )


@settings(max_examples=25, deadline=None)
@given(one=worlds())
def test_each_verdict_is_that_of_two_whole_runs(one):
    result = one.run()
    for knob, report in reports(one).items():
        for trial in report.trials:
            other = changed(one, knob, trial.value).run()
            differs_at = first_different_step(result, other)
            assert (digest(other) == digest(result)) == (differs_at is None)
            if differs_at is None:
                assert trial.differs_at is None, knob
            else:  # the times of a step may differ before what it computes
                assert trial.differs_at >= differs_at, knob
