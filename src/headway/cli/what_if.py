"""A recording's traffic, settings and step times, as a run of the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headway.flags import FlagError

if TYPE_CHECKING:
    from headway.core.config import SchedulerConfig
    from headway.drive.recording import Recording
    from headway.replay.traffic import RecordedTraffic
    from headway.simulator.config import Setup
    from headway.simulator.step_time.base import StepTimeModel


def fitted_model(recording: Recording, path: str | None) -> tuple[StepTimeModel, str]:
    """The step times, of the file at `path` or fitted, and a line about them. Raises FlagError."""
    from headway.simulator.step_time.files import read_model
    from headway.simulator.step_time.fitted import fit
    from headway.simulator.step_time.observations import observe

    if path is not None:
        return read_model(path), f"step times from {path}"
    try:
        model = fit(observe([recording]))
    except ValueError as error:
        raise FlagError(f"{error}, or give --step-time") from None
    errors = model.errors
    return model, (
        f"step times fitted to {errors.num_fitted:,} steps of this recording; on "
        f"{errors.num_held_out:,} others the error is {errors.median:.1%} in the median, "
        f"{errors.total:+.1%} in total"
    )


def _config(recording: Recording, settings: Mapping[str, Any]) -> SchedulerConfig:
    from headway.cli.simulation import in_flags
    from headway.replay.requests import recorded_config
    from headway.simulator.config import SCHEDULER_SETTINGS, changed_config

    asked = {name: value for name, value in settings.items() if name in SCHEDULER_SETTINGS}
    config = recorded_config(recording.header)
    try:
        return changed_config(config, asked)
    except ValueError as error:
        raise FlagError(in_flags(str(error))) from None


def recorded_traffic(recording: Recording, settings: Mapping[str, Any]) -> RecordedTraffic:
    """Its requests, as they are asked again under `settings`. Raises FlagError, ValueError."""
    from headway.replay.traffic import RecordedTraffic

    block_size = _config(recording, settings).block_size
    return RecordedTraffic(recording.header, recording.entries, block_size=block_size)


def recorded_setup(
    recording: Recording,
    settings: Mapping[str, Any],
    model: StepTimeModel,
    traffic: RecordedTraffic,
) -> Setup:
    """The recorded settings but for these. Raises FlagError for what does not go together."""
    from headway.simulator.config import Setup

    config = _config(recording, settings)
    return Setup(
        config=config,
        num_blocks=_num_blocks(recording, settings, config.block_size),
        model=model,
        workload=traffic,
        facts={"model": recording.header.model},
    )


def _num_blocks(recording: Recording, settings: Mapping[str, Any], block_size: int) -> int:
    """As many as asked for, or as fill the recorded pool."""
    header = recording.header
    num_blocks = settings.get("num_gpu_blocks_override")
    pool_bytes = settings.get("kv_cache_memory_bytes")
    if num_blocks is not None and pool_bytes is not None:
        raise FlagError(
            "--num-gpu-blocks-override and --kv-cache-memory-bytes both size the KV cache: give one"
        )
    if num_blocks is None and pool_bytes is not None:
        per_token = header.model.get("kv_bytes_per_token")
        if not isinstance(per_token, int) or per_token < 1:
            raise FlagError(
                "the recording does not say how many bytes a token takes: give "
                "--num-gpu-blocks-override"
            )
        num_blocks = pool_bytes // (per_token * block_size)
    elif num_blocks is None:
        recorded_size = header.scheduler["block_size"]
        assert isinstance(recorded_size, int)
        num_blocks = header.num_blocks * recorded_size // block_size
    if num_blocks < 1:
        raise FlagError("a KV cache of less than one block serves nobody")
    return num_blocks
