"""The doctor's report on a file of usage: how answers end, and whether batching is worth it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.cli.simulated_machine import STEP_TIME_FLAGS
from headway.flags import FlagError
from headway.simulator.batching import BATCH_SIZES

if TYPE_CHECKING:
    from headway.cli.simulated_machine import Machine
    from headway.insight.doctor.findings import Diagnosis
    from headway.insight.doctor.readings import Observation
    from headway.insight.usage.advice import BatchingAdvice
    from headway.insight.usage.columns import Usage
    from headway.simulator.batching import BatchingPoint

MACHINE_FLAGS = tuple(flag for flag in STEP_TIME_FLAGS if flag != "--gpu-memory-utilization")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFlags:
    """What is said of a file of usage beside its name. `machine`: what steps are simulated on."""

    baseline: str | None
    plot: str | None
    machine: Mapping[str, str]
    token_budget: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """What is printed and written. `advice` is None where nothing could be simulated."""

    observation: Observation
    diagnosis: Diagnosis
    advice: BatchingAdvice | None
    about: str  # the machine of the simulation

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        told: dict[str, Any] = {"source": self.observation.source, **self.diagnosis.to_dict()}
        if self.advice is not None:
            points = [_point_values(point) for point in self.advice.points]
            told["batching"] = {
                "machine": self.about,
                "p50": self.advice.p50,
                "p99": self.advice.p99,
                "points": points,
            }
        return told


def usage_report(path: str, flags: UsageFlags) -> UsageReport:
    """Raises ValueError with a sentence for what cannot be read or simulated."""
    from headway.cli.readouts import refuse_undrawable
    from headway.cli.simulated_machine import machine_of
    from headway.insight.usage.read import read_usage

    refuse_undrawable("--plot", flags.plot)
    _check_machine(flags.machine)
    machine = machine_of(flags.machine)
    about = _about(machine)
    usage = read_usage(path)
    baseline = None if flags.baseline is None else read_usage(flags.baseline)
    advice, why_not = _advice(usage, machine, flags.token_budget)
    if flags.plot is not None:
        if advice is None:
            raise ValueError(f"--plot {flags.plot} has nothing to show: {why_not}")
        from headway.simulator.plot_batching import plot_batching

        plot_batching(advice.points, f"{path}, {about}", flags.plot)
    observation = _observation(path, usage, flags.baseline, why_not)
    return UsageReport(
        observation=observation,
        diagnosis=_diagnosis(observation, usage, baseline, advice),
        advice=advice,
        about=about,
    )


def print_usage_report(report: UsageReport) -> None:
    """The report, and the curve under it."""
    from headway.cli.doctor_report import print_report

    print_report(report.observation, report.diagnosis)
    if report.advice is not None:
        print()
        print(f"Output tokens per second, full batches, simulated: {report.about}")
        print_curve(report.advice.points)


def print_curve(points: Sequence[BatchingPoint]) -> None:
    """A row for each batch size."""
    from headway.cli.tables import number, print_table, share

    rows = [
        (
            f"{point.batch_size}",
            number(point.static_per_second),
            number(point.continuous_per_second),
            f"{point.gain:.2f}",
            f"{point.slot_gain:.2f}",
            share(point.slot_share),
        )
        for point in points
    ]
    header = ("slots", "static", "continuous", "times", "by slots alone", "slots used, static")
    print_table(header, rows)


def _check_machine(machine: Mapping[str, str]) -> None:
    if machine.get("--step-time", "roofline") == "roofline":
        return
    for flag in machine:
        if flag != "--step-time":
            raise FlagError(
                f"{flag} changes nothing, as {machine['--step-time']} has its own times: leave it "
                "out"
            )


def _about(machine: Machine) -> str:
    named = [str(machine.facts[name]) for name in ("model", "hardware") if name in machine.facts]
    return " on ".join(named) or f"steps of {machine.facts['step_time']}"


def _advice(
    usage: Usage, machine: Machine, token_budget: int | None
) -> tuple[BatchingAdvice | None, str]:
    """The advice, or why there is none."""
    from headway.insight.usage.advice import batching_advice
    from headway.simulator.config import usual_sizes

    def on_point(point: BatchingPoint) -> None:
        if sys.stderr.isatty():
            print(f"\rsimulated: {point.batch_size} slots", end="", file=sys.stderr, flush=True)

    try:
        budget = token_budget or usual_sizes(machine.hardware)[1]
        advice = batching_advice(
            usage, machine.model, token_budget=budget, batch_sizes=BATCH_SIZES, on_point=on_point
        )
        return advice, ""
    except ValueError as error:
        return None, str(error)
    finally:
        if sys.stderr.isatty():
            print("\r" + " " * 30 + "\r", end="", file=sys.stderr, flush=True)


def _observation(path: str, usage: Usage, baseline: str | None, why_not: str) -> Observation:
    from headway.insight.doctor.readings import Observation
    from headway.insight.usage.figures import usage_notes

    compared = f", beside {baseline}" if baseline else ""
    unsaid = (f"what batching is worth is not known: {why_not}",) if why_not else ()
    return Observation(
        source=f"{path}, {len(usage):,} answers{compared}",
        server="usage",
        notes=(*unsaid, *usage_notes(usage)),
    )


def _diagnosis(
    observation: Observation,
    usage: Usage,
    baseline: Usage | None,
    advice: BatchingAdvice | None,
) -> Diagnosis:
    """A file of usage does not tell what binds: its title is the verdict on batching."""
    from headway.insight.doctor.findings import Confidence, Diagnosis, Severity, Wall
    from headway.insight.usage.figures import usage_lines
    from headway.insight.usage.findings import findings_of_usage

    verdict = None if advice is None else advice.finding()
    return Diagnosis(
        wall=Wall.UNKNOWN,
        severity=Severity.HEALTHY,
        confidence=Confidence.LOW if verdict is None else verdict.confidence,
        title="Nothing is known of batching." if verdict is None else verdict.title,
        evidence=(*(verdict.evidence if verdict else ()), *usage_lines(usage)),
        findings=findings_of_usage(usage, baseline),
        notes=observation.notes,
    )


def _point_values(point: BatchingPoint) -> dict[str, float]:
    return {
        "batch_size": point.batch_size,
        "static_per_second": point.static_per_second,
        "continuous_per_second": point.continuous_per_second,
        "gain": point.gain,
        "slot_gain": point.slot_gain,
        "slot_share": point.slot_share,
    }
