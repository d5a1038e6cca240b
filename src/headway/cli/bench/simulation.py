"""The same load simulated, beside what is measured: with a recording's settings, or given ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.bench.flags import SIMULATION_FLAGS, BenchFlags
from headway.flags import FlagError

if TYPE_CHECKING:
    from headway.simulator.config import Setup
    from headway.simulator.result import Summary
    from headway.simulator.workload.base import Workload


@dataclass(frozen=True, slots=True)
class Simulation:
    """`about`: where settings and times come from."""

    setup: Setup
    about: str

    def of(self, workload: Workload) -> Summary:
        """Raises ValueError for a load that cannot be simulated."""
        return replace(self.setup, workload=workload).run().summary()


def split_settings(flags: BenchFlags) -> tuple[str | None, dict[str, Any]]:
    """The URL that stands alone, and the engine's settings. Raises FlagError."""
    from headway.cli.simulation import engine_settings

    own: dict[str, str] = {}
    settings = engine_settings(flags.rest, own)
    is_simulated = any(flags.has(name) for name in SIMULATION_FLAGS)
    if settings and not is_simulated:
        name = next(iter(settings)).replace("_", "-")
        raise FlagError(
            f"--{name} is a setting of a server: it goes with --simulate-from or --step-time only"
        )
    return own.get("--model-shape"), settings


def refuse_unreadable(flags: BenchFlags) -> None:
    """Before the load, after which a recording of the server holds it too. Raises ValueError.

    A server that has just come up may not have written a byte yet.
    """
    from headway.replay.files import stored_recordings

    path = flags.get("--simulate-from")
    if path and not (Path(path).is_file() and not Path(path).stat().st_size):
        next(stored_recordings(path))


def simulation_of(
    flags: BenchFlags, settings: Mapping[str, Any], workload: Workload
) -> Simulation | None:
    """None where none is asked for. Raises FlagError or ValueError with a sentence."""
    path, times = flags.get("--simulate-from"), flags.get("--step-time")
    if path is not None:
        return _from_recording(path, times, settings)
    if times is None:
        return None
    return _from_flags(times, settings, workload)


def _from_recording(path: str, times: str | None, settings: Mapping[str, Any]) -> Simulation:
    from headway.cli.what_if import fitted_model, recorded_setup, recorded_traffic
    from headway.replay.files import load_recordings

    recording = load_recordings(path)[-1]  # of the engine's last start
    model, about = fitted_model(recording, times)
    traffic = recorded_traffic(recording, settings)
    setup = recorded_setup(recording, settings, model, traffic)
    return Simulation(setup, f"{path}: {about}")


def _from_flags(times: str, settings: Mapping[str, Any], workload: Workload) -> Simulation:
    from headway.cli.simulated_machine import machine_of
    from headway.cli.simulation import config_of, pool_of
    from headway.simulator.config import Setup

    machine = machine_of({"--step-time": times})
    config = config_of(settings, machine)
    num_blocks, pool = pool_of(settings, config, machine)
    setup = Setup(config=config, num_blocks=num_blocks, model=machine.model, workload=workload)
    return Simulation(setup, f"step times from {times}, {num_blocks:,} KV blocks ({pool})")
