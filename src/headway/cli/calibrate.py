"""`headway calibrate`: how long this engine's steps take, as a file for the simulator."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.help import print_command_help
from headway.cli.machine import processor_name
from headway.cli.own_flags import number_of, split_own
from headway.cli.parsing import ParsedFlags, parse_flags
from headway.flags import FlagError

if TYPE_CHECKING:
    from headway.simulator.step_time.fitted import FittedModel
    from headway.simulator.step_time.observations import Observations

_OWN = ("-o", "--output", "--seconds", "--from", "--seed", "--temperature")
_ABOUT = """Measure steps of every kind on an engine in this process and fit a model of their times.

  -o, --output FILE     where the model goes (JSON); step-time.json unless given
  --seconds S           how long to measure; 60 unless given
  --from RECORDING      fit to the steps of a recording (headway serve --record) instead
  --temperature T       of the requests; 0 unless given
  --seed N              of the load; 0 unless given

Nothing else should run on the machine meanwhile."""
_MODEL_FACTS = (
    "model",
    "dtype",
    "quantization",
    "backend",
    "num_threads",
    "kv_cache_dtype",
    "max_num_batched_tokens",
)


def main(argv: Sequence[str]) -> int:
    if "--help" in argv or "-h" in argv:
        print_command_help("calibrate", _ABOUT, ())
        return 0
    try:
        own, rest = split_own(argv, _OWN)
        numbers = _Numbers(own)
        flags = parse_flags(rest)
        _refuse_others(flags, own)
    except FlagError as error:
        print(f"headway calibrate: {error}", file=sys.stderr)
        return 2
    path = own.get("-o") or own.get("--output") or "step-time.json"
    try:
        if "--from" in own:
            observations, facts = _recorded(own["--from"])
        else:
            observations, facts = _measured(flags, numbers)
        _write(observations, facts, path)
    except (ValueError, OSError) as error:
        print(f"headway calibrate: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:  # a step failed
        print(f"headway calibrate: {error}", file=sys.stderr)
        return 1
    return 0


class _Numbers:
    """Our own flags that are numbers. Raises FlagError."""

    def __init__(self, own: Mapping[str, str]) -> None:
        self.seconds = number_of(own, "--seconds", 60.0, 1.0, 86_400.0)
        self.temperature = number_of(own, "--temperature", 0.0, 0.0, 100.0)
        self.seed = int(number_of(own, "--seed", 0.0, 0.0, 2.0**53))


def _refuse_others(flags: ParsedFlags, own: Mapping[str, str]) -> None:
    """What would have no effect is said, not swallowed."""
    for field in flags.server:
        raise FlagError(f"{flags.names[field]} is for headway serve: leave it out")
    if "--from" in own and flags.engine:
        raise FlagError("--from takes a recording, which has its own engine: leave the rest out")
    for name in ("--seconds", "--seed", "--temperature"):
        if "--from" in own and name in own:
            raise FlagError(
                f"--from takes a recording, where nothing is measured: leave {name} out"
            )
    if "-o" in own and "--output" in own:
        raise FlagError("-o and --output are the same flag: give it once")


def _recorded(path: str) -> tuple[Observations, dict[str, object]]:
    from headway.replay.files import load_recordings
    from headway.simulator.step_time.observations import observe

    recordings = load_recordings(path)
    models = [dict(recording.header.model) for recording in recordings]
    if any(model != models[0] for model in models):
        raise ValueError(f"{path} holds recordings of different engines: split it")
    return observe(recordings), {"recording": Path(path).name, **models[0]}


def _measured(flags: ParsedFlags, numbers: _Numbers) -> tuple[Observations, dict[str, object]]:
    from headway.cli.calibration import NoInbox, measure
    from headway.engine.build import build_engine
    from headway.engine.garbage import rarely_look_for_garbage

    config, _ = flags.configs()
    engine = build_engine(config, NoInbox())
    facts: dict[str, object] = {name: getattr(engine.facts, name) for name in _MODEL_FACTS}
    rarely_look_for_garbage()  # as the engine's process does
    print(f"measuring steps of {engine.facts.model} for {numbers.seconds:g} s", file=sys.stderr)
    observations = measure(
        engine,
        seconds=numbers.seconds,
        seed=numbers.seed,
        temperature=numbers.temperature,
        say=lambda line: print(line, file=sys.stderr),
    )
    return observations, {**facts, "temperature": numbers.temperature, "machine": processor_name()}


def _write(observations: Observations, facts: Mapping[str, object], path: str) -> None:
    from headway.simulator.step_time.files import write_model
    from headway.simulator.step_time.fitted import fit

    model = fit(observations, fitted_on=facts)
    write_model(model, path)
    print(_report(model))
    print(f"written to {path}")


def _report(model: FittedModel) -> str:
    errors = model.errors
    lines = [f"fitted to {errors.num_fitted} steps; {errors.num_left_out} left out as stalls"]
    for name, above, ns in model.terms:
        beyond = f" above {above}" if above else ""
        lines.append(f"  {ns / 1e3:14.4f} us for each of {name}{beyond}")
    lines.append(
        f"on {errors.num_held_out} steps that the fit did not see: error {errors.median:.1%} in "
        f"the median, {errors.p90:.1%} at the 90th percentile, {errors.total:+.1%} of the total"
    )
    return "\n".join(lines)
