"""All that a run depends on, and the engine's names for the scheduler's knobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.core.config import SchedulerConfig
from headway.drive.ports import StepListener
from headway.drive.recorder import Recorder
from headway.simulator.result import Result
from headway.simulator.simulate import Scripts, simulate
from headway.simulator.step_time.base import StepTimeModel
from headway.simulator.step_time.hardware import Hardware
from headway.simulator.step_time.model_shape import ModelShape
from headway.simulator.workload.base import Workload

# Of the engine's settings, those that a scheduler obeys; called otherwise where there is a name.
_OTHER_NAMES = {
    "scheduling_policy": "ordering",
    "scheduler_reserve_full_isl": "reserve_full_isl",
    "batching_unit": "unit",
    "prefill_placement": "prefill",
    "preemption_victim": "victim",
}
MAX_BLOCKS = 100_000_000  # of a pool, each of which takes tens of bytes here
_OF_SCHEDULER = {f.name for f in dataclasses.fields(SchedulerConfig)} - {"prefix_salt"}
_ENGINE_NAME = {ours: theirs for theirs, ours in _OTHER_NAMES.items()}
SCHEDULER_SETTINGS = frozenset(_ENGINE_NAME.get(name, name) for name in _OF_SCHEDULER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One run, not begun. `facts`: what people want to know of it that is in no other field.

    Raises ValueError for a pool of no block, or of more than MAX_BLOCKS.
    """

    config: SchedulerConfig
    num_blocks: int
    model: StepTimeModel
    workload: Workload | Scripts
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_num_blocks(self.num_blocks)

    def run(
        self, step_listeners: Iterable[StepListener] = (), recorder: Recorder | None = None
    ) -> Result:
        """Raises what `simulate` raises."""
        return simulate(
            self.config,
            self.workload,
            self.model,
            num_blocks=self.num_blocks,
            step_listeners=step_listeners,
            recorder=recorder,
        )


def check_num_blocks(num_blocks: int) -> None:
    """Raises ValueError for a pool that cannot be simulated."""
    if not 1 <= num_blocks <= MAX_BLOCKS:
        raise ValueError(
            f"a pool of {num_blocks:,} KV blocks cannot be simulated: give it from 1 to "
            f"{MAX_BLOCKS:,}"
        )


def changed_config(config: SchedulerConfig, settings: Mapping[str, Any]) -> SchedulerConfig:
    """With these of the engine's settings, by its names. Raises ValueError that uses them."""
    changes = {_OTHER_NAMES.get(name, name): value for name, value in settings.items()}
    try:
        return dataclasses.replace(config, **changes)
    except ValueError as error:
        raise ValueError(_in_engine_names(str(error))) from None


def engine_name(knob: str) -> str:
    """What the engine, and its flag, call a field of SchedulerConfig."""
    return _ENGINE_NAME.get(knob, knob)


def _in_engine_names(message: str) -> str:
    for ours, theirs in _ENGINE_NAME.items():
        if message.startswith(f"{ours} "):
            return theirs + message[len(ours) :]
    return message


def usual_sizes(hardware: Hardware | None) -> tuple[int, int]:
    """`max_num_seqs` and `max_num_batched_tokens` where nobody says.

    On an accelerator those of a server of vLLM's; on a CPU, or one not named, those of ours.
    """
    if hardware is None or hardware.name.startswith("cpu"):
        return 256, 512
    is_large = hardware.memory_bytes >= 70 * 2**30 and not hardware.name.startswith("a100")
    return (1024, 8192) if is_large else (256, 2048)


def pool_bytes_left(
    shape: ModelShape,
    hardware: Hardware,
    *,
    utilization: float,
    weight_dtype: str = "bf16",
    tensor_parallel: int = 1,
) -> int:
    """Of a device's memory, what weights leave for the KV cache. Raises ValueError if nothing."""
    usable = int(hardware.memory_bytes * utilization)
    weights = shape.weight_bytes(weight_dtype) // tensor_parallel
    if weights >= usable:
        raise ValueError(
            f"the weights of {shape.name} take {weights / 2**30:.1f} GiB of each device and "
            f"{hardware.name} has {usable / 2**30:.1f} GiB at a memory utilization of "
            f"{utilization:g}: use more devices, or fewer bits"
        )
    return usable - weights
