"""`headway simulate` and `headway sweep`: the scheduler over a workload, with no engine."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.cli.own_flags import split_repeated
from headway.flags import FlagError

if TYPE_CHECKING:
    from headway.simulator.config import Setup
    from headway.simulator.inert import InertReport
    from headway.simulator.result import Result, Summary
    from headway.simulator.step_time.base import StepTimeModel
    from headway.simulator.sweep import Point

_OUTPUT_FLAGS = {
    "--sweep": ("FLAG=A,B,...", "Runs for each value of a flag; again: for each combination."),
    "--seeds": ("N", "Runs under so many seeds: mean and standard deviation."),
    "--json": ("FILE|-", "All figures and settings."),
    "--plot": ("[KIND:]FILE", "PNG or SVG; KIND is batch or lanes of a run, latency of a sweep."),
    "--record": ("FILE", "A recording of the run, for headway explain and headway replay."),
    "--no-inert": ("", "Leave out which knobs change nothing here."),
}
_NOT_SWEPT = ("--sweep", "--seeds", "--json", "--plot", "--record", "--no-inert")
_PLOTS = ("batch", "lanes", "latency")


@dataclass(frozen=True, slots=True)
class _Output:
    axes: Mapping[str, Sequence[str]]
    num_seeds: int
    json: str | None
    plots: Sequence[tuple[str, str]]  # kind and file
    record: str | None
    tells_inert: bool

    @property
    def is_quiet(self) -> bool:
        return self.json == "-"


def main(argv: Sequence[str], *, command: str = "simulate") -> int:
    """Returns the exit code: 2 for a command line that cannot be simulated."""
    if "--help" in argv or "-h" in argv:
        from headway.cli.simulate_help import print_simulate_help

        print_simulate_help(command, _OUTPUT_FLAGS)
        return 0
    try:
        values, rest = split_repeated(
            argv, [name for name, (usage, _) in _OUTPUT_FLAGS.items() if usage], ("--no-inert",)
        )
        output = _output(values)
        if command == "sweep" and not output.axes:
            raise FlagError("--sweep says what is swept, as in --sweep max-num-seqs=8,32,128")
        _sweep(rest, output) if output.axes else _simulate(rest, output)
    except (FlagError, ValueError) as error:
        print(f"headway {command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _output(values: Mapping[str, Sequence[str]]) -> _Output:
    from headway.cli.readouts import refuse_undrawable, refuse_unwritable

    axes: dict[str, Sequence[str]] = {}
    for given in values.get("--sweep", ()):
        name, choices = _axis(given)
        if name in axes:
            raise FlagError(f"--sweep {name} is there twice: list all its values in one")
        axes[name] = choices
    plots = [_plot(given, is_sweep=bool(axes)) for given in values.get("--plot", ())]
    refuse_unwritable("--json", values.get("--json", (None,))[-1])
    record = values.get("--record", (None,))[-1]
    refuse_unwritable("--record", record)
    if record is not None and axes:
        raise FlagError("--record is of one run, not of a sweep")
    for _, path in plots:
        refuse_undrawable("--plot", path)
    return _Output(
        axes,
        _num_seeds(values.get("--seeds", ("1",))[-1]),
        values.get("--json", (None,))[-1],
        plots,
        record,
        "--no-inert" not in values,
    )


def _axis(given: str) -> tuple[str, list[str]]:
    """`max-num-seqs=1,8`; values that hold commas themselves are parted by semicolons."""
    name, found, listed = given.partition("=")
    name = name.removeprefix("--").replace("_", "-")
    values = [value.strip() for value in listed.split(";" if ";" in listed else ",")]
    if not found or not name or not all(values):
        raise FlagError(f"--sweep takes FLAG=A,B,..., as max-num-seqs=8,32, got {given!r}")
    if f"--{name}" in _NOT_SWEPT:
        raise FlagError(f"--{name} changes nothing about a run and cannot be swept")
    if len(set(values)) < len(values):
        raise FlagError(f"--sweep {name} has a value twice: {listed}")
    return name, values


def _num_seeds(given: str) -> int:
    if not given.isdecimal() or not 1 <= int(given) <= 1000:
        raise FlagError(f"--seeds must be a whole number in [1, 1000], got {given!r}")
    return int(given)


def _plot(given: str, *, is_sweep: bool) -> tuple[str, str]:
    kind, found, path = given.partition(":")
    if not found or kind not in _PLOTS:
        kind, path = "latency" if is_sweep else "batch", given
    if (kind == "latency") != is_sweep:
        raise FlagError(f"--plot {kind} is of {'one run' if is_sweep else 'a sweep'}")
    return kind, path


# ---- One run ----


def _simulate(argv: Sequence[str], output: _Output) -> None:
    from headway.cli.readouts import beyond_fit, settings_of, write_json
    from headway.cli.simulation import setup_of
    from headway.simulator.inert import inert_knobs

    setup = setup_of(argv)
    result = _first_run(setup, output)
    others = (setup_of(argv, number).run() for number in range(1, output.num_seeds))
    summaries = [result.summary(), *(other.summary() for other in others)]
    report = inert_knobs(setup, result) if output.tells_inert else None
    beyond = beyond_fit(setup.model, result)
    if not output.is_quiet:
        _print_all(setup, result, summaries, report, beyond)
    if output.json:
        told = {
            "settings": settings_of(setup),
            "summaries": [summary.to_dict() for summary in summaries],
            "refused": result.refused,
            "beyond_fit": beyond,
            "inert": report.to_dict() if report else None,
        }
        write_json(told, output.json)


def _print_all(
    setup: Setup,
    result: Result,
    summaries: Sequence[Summary],
    report: InertReport | None,
    beyond: Mapping[str, tuple[int, int]],
) -> None:
    from headway.cli.readouts import beyond_lines, inert_lines, note_lines, print_run
    from headway.cli.tables import print_text
    from headway.simulator.binding import Binding

    print_text(_heading(setup), *note_lines(setup.facts["notes"]))
    print()
    print_run(summaries)
    print()
    binding = Binding.of(result)
    lines = inert_lines(report) if report else [f"What binds: {binding.sentence()}."]
    print_text(*beyond_lines(setup.model, beyond), *lines)


def _first_run(setup: Setup, output: _Output) -> Result:
    """The run that is drawn and explained. Raises ValueError if it could serve nobody."""
    from headway.simulator.lanes import LaneLog

    log = LaneLog() if any(kind == "lanes" for kind, _ in output.plots) else None
    step_listeners = (log,) if log else ()
    if output.record is None:
        result = setup.run(step_listeners)
    else:
        from headway.cli.simulated_recording import recorded_run

        result = recorded_run(setup, output.record, step_listeners)
    check_served(result)
    for kind, path in output.plots:
        from headway.simulator import plots

        if kind == "lanes":
            assert log is not None
            plots.plot_lanes(result, log, path)
        else:
            plots.plot_batch(result, path)
    return result


def check_served(result: Result) -> None:
    """Raises ValueError for a run in which nobody was served."""
    if len(result.sequences["ended_ns"]):
        return
    if result.refused:
        count, reason = len(result.refused), next(iter(result.refused.values()))
        raise ValueError(f"all {count} requests are refused; of the first: {reason}")
    raise ValueError("the workload has no requests")


def _heading(setup: Setup) -> str:
    config, facts = setup.config, setup.facts
    machine = ", ".join(
        str(facts[name]) for name in ("model", "hardware", "step_time") if name in facts
    )
    pool = f"{setup.num_blocks:,} KV blocks of {config.block_size} tokens ({facts['pool']})"
    return (
        f"{machine}: {pool}, max_num_seqs {config.max_num_seqs}, "
        f"max_num_batched_tokens {config.max_num_batched_tokens}"
    )


# ---- Many ----


class _Told:
    """Of each point of a sweep, its settings and where it left the fitted times."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = argv
        self._models: list[StepTimeModel] = []
        self.points: list[dict[str, Any]] = []

    def setup_at(self, values: Mapping[str, Any], number: int) -> Setup:
        from headway.cli.readouts import settings_of
        from headway.cli.simulation import setup_of

        flags = [f"--{name}={value}" for name, value in values.items()]
        setup = setup_of([*self._argv, *flags], number)
        if number == 0:
            self._models.append(setup.model)
            self.points.append({"settings": settings_of(setup)})
        return setup

    def on_result(self, values: Mapping[str, Any], result: Result) -> None:
        """Of several seeds, the first run's is told."""
        from headway.cli.readouts import beyond_fit

        if "beyond_fit" not in self.points[-1]:
            self.points[-1]["beyond_fit"] = beyond_fit(self._models[-1], result)

    def lines(self) -> list[str]:
        """What to know of the figures; of each file of times, how far it was left at most."""
        from headway.cli.readouts import beyond_lines, note_lines

        lines = note_lines([note for told in self.points for note in told["settings"]["notes"]])
        farthest: dict[str, tuple[StepTimeModel, dict[str, tuple[int, int]]]] = {}
        for model, told in zip(self._models, self.points, strict=True):
            _, ends = farthest.setdefault(told["settings"]["step_time"], (model, {}))
            for name, (least, most) in told["beyond_fit"].items():
                low, high = ends.get(name, (least, most))
                ends[name] = min(low, least), max(high, most)
        for model, ends in farthest.values():
            lines += beyond_lines(model, ends)
        return lines


def _sweep(argv: Sequence[str], output: _Output) -> None:
    from headway.cli.readouts import print_sweep, write_json
    from headway.cli.tables import print_text
    from headway.simulator.sweep import sweep

    told = _Told(argv)
    points: list[Point] = []
    for point in sweep(
        output.axes, told.setup_at, num_seeds=output.num_seeds, on_result=told.on_result
    ):
        points.append(point)
        if sys.stderr.isatty():
            print(f"\r{len(points)} done", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    if not output.is_quiet:
        notes = told.lines()
        print_text(*notes)
        if notes:
            print()
        print_sweep(points)
        print()
        print_text(*_same_lines(points))
    if output.json:
        write_json(
            [_point_values(*both) for both in zip(points, told.points, strict=True)], output.json
        )
    for _, path in output.plots:
        from headway.simulator.plots import plot_latency

        plot_latency(points, path)


def _same_lines(points: Sequence[Point]) -> list[str]:
    """Points that decided the same, and what bound there."""
    from headway.simulator.sweep import same_points

    lines = []
    for group in same_points(points):
        *some, last = (_name(point) for point in group)
        lines.append(f"{', '.join(some)} and {last} decide the same, step by step.")
        lines.append(f"  What binds there: {group[0].binding.sentence()}.")
    return lines or ["No two of these decide the same."]


def _name(point: Point) -> str:
    return " ".join(f"{name}={value}" for name, value in point.values.items())


def _point_values(point: Point, told: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "values": point.values,
        **told,
        "summaries": [summary.to_dict() for summary in point.summaries],
        "waited": point.binding.waited,
        "digest": point.digest,
    }
