"""`headway replay`: a recording decided again, exactly as it was or under other settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headway.cli.help import print_about
from headway.cli.own_flags import split_repeated
from headway.flags import FlagError

if TYPE_CHECKING:
    from headway.drive.recording import Recording
    from headway.replay.traffic import RecordedTraffic
    from headway.simulator.config import Setup
    from headway.simulator.result import Result

_SWITCHES = ("--what-if",)
_TAKEN = ("--step-time", "--recording", "--record", "--json")
_ABOUT = """\
usage: headway replay RECORDING [flags]

RECORDING is a file of headway serve --record. Without flags the scheduler decides every step again,
with the recorded times, and it is said whether all decisions are the same (exit code 1 if not).

With flags of the scheduler (--max-num-seqs, --kv-policy, ...: headway simulate --help has them) the
recorded traffic is simulated under the recorded settings and under the changed ones, and both stand
beside what was measured. Steps take as long as a model says that is fitted to this recording.

  --what-if             simulate, even if no setting is changed
  --step-time FILE      take the times of headway calibrate's model instead
  --recording N         which one, where a file holds several (one for each start of the engine)
  --record FILE         write the simulated run down, with the changes: for headway explain
  --json FILE|-         all figures and settings"""


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 2 for what cannot be replayed, 1 for another decision."""
    if "--help" in argv or "-h" in argv:
        print_about(_ABOUT)
        return 0
    try:
        return _replay(argv)
    except (FlagError, ValueError) as error:
        print(f"headway replay: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _replay(argv: Sequence[str]) -> int:
    from headway.cli.readouts import refuse_unwritable
    from headway.cli.simulation import engine_settings
    from headway.replay.files import load_recordings

    values, rest = split_repeated(argv, _TAKEN, _SWITCHES)
    own = {name: given[-1] for name, given in values.items()}
    settings = engine_settings(rest, own)
    path = own.pop("--model-shape", None)  # what stands alone on a line is a model elsewhere
    if path is None:
        raise FlagError("which recording? Give the file that headway serve --record wrote")
    refuse_unwritable("--json", own.get("--json"))
    _check_record(path, own.get("--record"))
    recordings = _chosen(load_recordings(path), own.get("--recording"), path)
    is_exact = not settings and not {"--what-if", "--step-time"} & set(own)
    if is_exact and "--record" in own:
        raise FlagError("--record is of a simulated run: change a setting, or give --what-if")
    if is_exact:
        return _exactly(recordings, own.get("--json"))
    if len(recordings) > 1:
        raise FlagError(
            f"{path} holds {len(recordings)} recordings, one for each start of the engine: choose "
            f"with --recording 1 to {len(recordings)}"
        )
    return _what_if(recordings[0], settings, own)


def _check_record(replayed: str, path: str | None) -> None:
    """Raises FlagError for a file that cannot be written, or is the one that is replayed."""
    from headway.cli.readouts import refuse_unwritable

    refuse_unwritable("--record", path)
    if path is not None and os.path.realpath(path) == os.path.realpath(replayed):
        raise FlagError(f"--record would write into {path}, which is replayed: give another file")


def _chosen(recordings: list[Recording], given: str | None, path: str) -> list[Recording]:
    if given is None:
        return recordings
    if not given.isdecimal() or not 1 <= int(given) <= len(recordings):
        raise FlagError(f"--recording must be in [1, {len(recordings)}] for {path}, got {given!r}")
    return [recordings[int(given) - 1]]


def _exactly(recordings: Sequence[Recording], json_target: str | None) -> int:
    from headway.cli.readouts import write_json
    from headway.replay.exact import replay_exactly

    told: list[dict[str, Any]] = []
    for number, recording in enumerate(recordings, 1):
        replayed = replay_exactly(recording)
        is_same = replayed.difference is None
        told.append(
            {
                "identical": is_same,
                "num_steps": replayed.num_steps,
                "difference": replayed.difference,
            }
        )
        if json_target != "-":
            which = f"recording {number}: " if len(recordings) > 1 else ""
            answer = "yes" if is_same else f"no, {replayed.difference}; before that"
            print(f"{which}decisions identical: {answer}, {replayed.num_steps:,} steps")
    if json_target:
        write_json(told, json_target)
    return 0 if all(one["identical"] for one in told) else 1


def _what_if(recording: Recording, settings: Mapping[str, Any], own: Mapping[str, str]) -> int:
    from headway.cli.readouts import print_side_by_side, settings_of, write_json
    from headway.cli.tables import print_text
    from headway.cli.what_if import fitted_model, recorded_setup, recorded_traffic
    from headway.replay.measured import replay_and_measure
    from headway.simulator.binding import Binding

    replayed, measured = replay_and_measure(recording)
    if replayed.difference:
        raise ValueError(f"these decisions are not this scheduler's: {replayed.difference}")
    model, about = fitted_model(recording, own.get("--step-time"))
    traffic = recorded_traffic(recording, settings)
    notes = _notes(traffic)
    setups = {"same settings": recorded_setup(recording, {}, model, traffic)}
    if settings:
        setups["with the changes"] = recorded_setup(recording, settings, model, traffic)
    results: dict[str, Result] = {"as recorded": measured}
    results |= _runs(setups, own.get("--record"))
    for name in setups:
        _check_served(name, results[name])
    if own.get("--json") != "-":
        print_text(about, "")
        print_side_by_side({name: [result.summary()] for name, result in results.items()})
        print()
        for name, result in results.items():
            print_text(f"What binds, {name}: {Binding.of(result).sentence()}.")
        print_text(*notes)
    if "--json" in own:
        told: dict[str, Any] = {
            name: {
                "summary": result.summary().to_dict(),
                "settings": settings_of(setups[name]) if name in setups else None,
                "refused": result.refused,
            }
            for name, result in results.items()
        }
        write_json({**told, "notes": notes}, own["--json"])
    return 0


def _runs(setups: Mapping[str, Setup], record: str | None) -> dict[str, Result]:
    """By name; the last of them is written down if there is a file for it."""
    from headway.cli.simulated_recording import recorded_run

    *others, last = setups
    results = {name: setups[name].run() for name in others}
    results[last] = setups[last].run() if record is None else recorded_run(setups[last], record)
    return results


def _check_served(name: str, result: Result) -> None:
    """Raises ValueError for a run that refused everybody: it has no figures."""
    if result.refused and not len(result.sequences["ended_ns"]):
        count, reason = len(result.refused), next(iter(result.refused.values()))
        raise ValueError(f"{name}, all {count} requests are refused; of the first: {reason}")


def _notes(traffic: RecordedTraffic) -> list[str]:
    """What of the recording is not as it was."""
    notes = []
    if traffic.num_cut_off:
        notes.append(
            f"{traffic.num_cut_off} sequences were cut off by the end of the recording or a failed "
            f"step; they end there in the simulation too."
        )
    if traffic.num_left_out:
        notes.append(f"{traffic.num_left_out} requests are left out: their ids were in use.")
    return notes
