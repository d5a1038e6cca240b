"""The engine's names of knobs, and sizes that nobody gave."""

from __future__ import annotations

import pytest

from headway.core.config import SchedulerConfig
from headway.engine.config import EngineConfig
from headway.simulator.config import (
    SCHEDULER_SETTINGS,
    Setup,
    changed_config,
    pool_bytes_left,
    usual_sizes,
)
from headway.simulator.step_time.hardware import hardware_named
from headway.simulator.step_time.models import shape_named


def test_settings_are_fields_of_the_engine():
    assert set(EngineConfig.__dataclass_fields__) >= SCHEDULER_SETTINGS
    assert len(SCHEDULER_SETTINGS) == len(SchedulerConfig.__dataclass_fields__) - 1  # the salt


def test_knobs_by_their_engine_names():
    config = changed_config(
        SchedulerConfig(), {"batching_unit": "request", "scheduling_policy": "priority"}
    )
    assert (config.unit, config.ordering) == ("request", "priority")
    with pytest.raises(ValueError, match=r"^batching_unit must be one of step, request"):
        changed_config(config, {"batching_unit": "day"})


@pytest.mark.parametrize("num_blocks", [0, 100_000_001, 2_000_000_000])
def test_a_pool_has_as_many_blocks_as_can_be_listed(num_blocks):
    with pytest.raises(ValueError, match=f"{num_blocks:,} KV blocks cannot .* 1 to 100,000,000"):
        Setup(config=SchedulerConfig(), num_blocks=num_blocks, model=None, workload=None)
    Setup(config=SchedulerConfig(), num_blocks=100_000_000, model=None, workload=None)


def test_usual_sizes_are_those_of_a_server():
    assert usual_sizes(hardware_named("h100")) == (1024, 8192)
    assert usual_sizes(hardware_named("a100")) == (256, 2048)
    assert usual_sizes(hardware_named("l4")) == (256, 2048)
    assert usual_sizes(hardware_named("cpu")) == usual_sizes(None) == (256, 512)


def test_weights_leave_a_pool_or_a_sentence():
    h100, shape = hardware_named("h100"), shape_named("llama-3-70b")
    left = pool_bytes_left(shape, h100, utilization=0.9, tensor_parallel=4)
    assert left == int(80e9 * 0.9) - shape.weight_bytes() // 4
    with pytest.raises(ValueError, match="use more devices, or fewer bits"):
        pool_bytes_left(shape, h100, utilization=0.9)
