"""A recording for the doctor: its walls are exact, and changes are tried on its own traffic."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from headway.flags import FlagError

if TYPE_CHECKING:
    from headway.drive.recording import Recording
    from headway.insight.doctor.readings import Observation
    from headway.insight.doctor.trials import Trials


def observe_recording(path: str, number: int | None) -> Observation:
    """Raises ValueError, with a sentence, for what is no recording of this scheduler's."""
    from headway.insight.doctor.runs import observe_run
    from headway.replay.files import load_recordings
    from headway.replay.measured import replay_and_measure

    recording = _chosen(load_recordings(path), number, path)
    replayed, measured = replay_and_measure(recording)
    notes = []
    if replayed.difference:
        notes.append(
            f"read up to where its decisions are no longer this scheduler's: {replayed.difference}"
        )
    observation = observe_run(measured, f"{path}, {replayed.num_steps:,} steps decided again")
    trials = None
    if not replayed.difference:
        try:
            trials = _trials(recording)
        except ValueError as error:
            notes.append(f"no change was tried: {error}")
    return dataclasses.replace(observation, notes=tuple(notes), trials=trials)


def _chosen(recordings: list[Recording], number: int | None, path: str) -> Recording:
    if number is not None and number > len(recordings):
        raise FlagError(f"--recording must be in [1, {len(recordings)}] for {path}, got {number}")
    if number is None and len(recordings) > 1:
        raise FlagError(
            f"{path} holds {len(recordings)} recordings, one for each start of the engine: choose "
            f"with --recording 1 to {len(recordings)}"
        )
    return recordings[(number or 1) - 1]


def _trials(recording: Recording) -> Trials:
    from headway.cli.what_if import fitted_model, recorded_setup, recorded_traffic
    from headway.insight.doctor.trials import Trials

    model, _ = fitted_model(recording, None)
    setup = recorded_setup(recording, {}, model, recorded_traffic(recording, {}))
    errors = getattr(model, "errors", None)
    known = f"step times fitted to it, {errors.median:.0%} off in the median" if errors else ""
    return Trials(setup, known)
