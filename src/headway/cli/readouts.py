"""The figures of runs as tables and as JSON."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from headway.cli.tables import number, print_table, seconds, share
from headway.flags import FlagError
from headway.simulator.config import Setup, engine_name
from headway.simulator.inert import InertReport, KnobReport
from headway.simulator.result import Result, Spread, Summary
from headway.simulator.step_time.base import StepShape, StepTimeModel
from headway.simulator.step_time.fitted import FittedModel
from headway.simulator.sweep import Point, mean_and_deviation

Figures = Sequence[Summary]  # of the same run under several seeds


@dataclass(frozen=True, slots=True)
class Readout:
    name: str
    read: Callable[[Summary], float]
    show: Callable[[float], str]

    def of(self, summaries: Figures) -> str:
        """The mean, with the standard deviation where there are several."""
        mean, deviation = mean_and_deviation([self.read(summary) for summary in summaries])
        shown = self.show(mean)
        return f"{shown} ± {self.show(deviation)}" if len(summaries) > 1 else shown


READOUTS = (
    Readout("requests served", lambda s: s.num_finished, number),
    Readout("output tokens per second", lambda s: s.output_tokens_per_second, number),
    Readout("prompt tokens per second", lambda s: s.prompt_tokens_per_second, number),
    Readout("requests per second", lambda s: s.requests_per_second, number),
    Readout("duration", lambda s: s.duration_s, seconds),
    Readout("steps", lambda s: s.num_steps, number),
    Readout("share of time in a step", lambda s: s.busy_share, share),
    Readout("largest batch", lambda s: s.peak_batch, number),
    Readout("mean batch", lambda s: s.mean_batch, number),
    Readout("slot efficiency", lambda s: s.slot_efficiency, share),
    Readout("preemptions", lambda s: s.num_preemptions, number),
    Readout("prompt tokens recomputed", lambda s: s.num_recomputed_prompt_tokens, number),
    Readout("prompt tokens found in the cache", lambda s: s.cache_hit_share, share),
    Readout("held cache that is live", lambda s: s.live_share, share),
    Readout("cache held at most", lambda s: s.peak_held_share, share),
)
_BILL = (
    Readout("tokens recomputed", lambda s: s.num_recomputed_tokens, number),
    Readout("refunded by the cache", lambda s: s.refunded_share, share),
    Readout("time lost to preemptions", lambda s: s.preempted_s, seconds),
)
_RARE = (
    Readout("refused", lambda s: s.num_refused, number),
    Readout("aborted", lambda s: s.num_aborted, number),
    Readout("failed", lambda s: s.num_failed, number),
    Readout("unfinished", lambda s: s.num_unfinished, number),
)
_IN_SWEEPS = (
    Readout("tokens/s", lambda s: s.output_tokens_per_second, number),
    Readout("largest batch", lambda s: s.peak_batch, number),
    Readout("mean batch", lambda s: s.mean_batch, number),
    Readout("preemptions", lambda s: s.num_preemptions, number),
    Readout("recomputed", lambda s: s.num_recomputed_prompt_tokens, number),
    Readout("live cache", lambda s: s.live_share, share),
    Readout("slot eff.", lambda s: s.slot_efficiency, share),
    Readout("queue p50", lambda s: s.queue_s.p50, seconds),
    Readout("TTFT p50", lambda s: s.ttft_s.p50, seconds),
    Readout("TTFT p99", lambda s: s.ttft_s.p99, seconds),
    Readout("ITL p50", lambda s: s.itl_s.p50, seconds),
    Readout("ITL p99", lambda s: s.itl_s.p99, seconds),
)
_SPREADS = (
    ("time in the queue", "queue_s"),
    ("time to first token (TTFT)", "ttft_s"),
    ("between tokens (ITL)", "itl_s"),
    ("mean between tokens (TPOT)", "tpot_s"),
    ("arrival to end (e2e)", "e2e_s"),
)
_SPREAD_FIGURES = tuple(field.name for field in dataclasses.fields(Spread))


def print_run(summaries: Figures) -> None:
    """All readouts of one run: figures, then times."""
    rare = [r for r in (*_BILL, *_RARE) if any(r.read(summary) for summary in summaries)]
    print_table(("", ""), [(r.name, r.of(summaries)) for r in (*READOUTS, *rare)])
    print()
    rows = [
        (name, *(_spread_readout(field, f).of(summaries) for f in _SPREAD_FIGURES))
        for name, field in _SPREADS
    ]
    print_table(("", *_SPREAD_FIGURES), rows)


def _spread_readout(field: str, figure: str) -> Readout:
    return Readout(field, lambda summary: getattr(getattr(summary, field), figure), seconds)


def print_sweep(points: Sequence[Point]) -> None:
    """A row for each point."""
    refused = [r for r in _RARE if any(r.read(s) for point in points for s in point.summaries)]
    readouts = (*_IN_SWEEPS, *refused)
    header = (*points[0].values, *(readout.name for readout in readouts))
    rows = [
        (*map(str, point.values.values()), *(r.of(point.summaries) for r in readouts))
        for point in points
    ]
    print_table(header, rows, num_names=len(points[0].values))


def print_side_by_side(columns: Mapping[str, Figures]) -> None:
    """The same readouts of several runs, a column for each."""
    listed = [s for figures in columns.values() for s in figures]
    rare = [r for r in (*_BILL, *_RARE) if any(map(r.read, listed))]
    rows = [(r.name, *map(r.of, columns.values())) for r in (*READOUTS, *rare)]
    for name, field in _SPREADS:
        for figure in ("mean", "p50", "p99"):
            readout = _spread_readout(field, figure)
            rows.append((f"{name}, {figure}", *map(readout.of, columns.values())))
    print_table(("", *columns), rows)


# ---- What binds and what does not ----


def inert_lines(report: InertReport) -> list[str]:
    """For people: what binds, what changes nothing, what there was no time for."""
    same = [f"  {_same(k)}" for k in report.inert]
    same += [
        f"  {_same(k)}; {_listed(k.other_values)} would not"
        for k in report.knobs
        if len(k.same_values) > 1 and k.other_values
    ]
    moving = [k.knob for k in report.knobs if len(k.same_values) == 1 and k.other_values]
    lines = [f"What binds: {report.binding.sentence()}."]
    lines += ["What changes nothing here, step by step:", *same] if same else []
    lines += [f"What would change something: {', '.join(moving)}."] if moving else []
    cut = [t.cut_after for k in report.knobs for t in k.trials if t.cut_after is not None]
    if cut:
        unknown = [k for k in report.knobs if k.unknown_values]
        listed = ", ".join(f"{k.knob} {_listed(k.unknown_values)}" for k in unknown)
        lines.append(f"No difference in the first {min(cut):,} steps, then time was up: {listed}.")
    return lines


def _same(knob: KnobReport) -> str:
    return f"{knob.knob}: {_listed(knob.same_values)} decide the same"


def _listed(values: Sequence[Any]) -> str:
    shown = [("off", "on")[v] if isinstance(v, bool) else str(v) for v in values]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


# ---- What to know of the figures ----


def note_lines(notes: Sequence[str]) -> list[str]:
    """What is not in the workload, or was taken for granted."""
    return [f"Of the workload: {note}." for note in dict.fromkeys(notes)]


def beyond_fit(model: StepTimeModel, result: Result) -> Mapping[str, tuple[int, int]]:
    """The least and the most of each count of a step in which the run left what was fitted."""
    if not isinstance(model, FittedModel):
        return {}
    columns = [result.steps[name] for name in StepShape._fields]
    return model.beyond(np.stack(columns, axis=1).astype(np.int64))


def beyond_lines(model: StepTimeModel, beyond: Mapping[str, tuple[int, int]]) -> list[str]:
    """One line, where there is something to say."""
    if not isinstance(model, FittedModel) or not beyond:
        return []
    parts = []
    for name, (least, most) in beyond.items():
        seen_least, seen_most = model.seen[name]
        if most > seen_most:
            parts.append(f"{name} up to {most:,} (seen: {seen_most:,})")
        if least < seen_least:
            parts.append(f"{name} down to {least:,} (seen: {seen_least:,})")
    return [f"Beyond the steps that the times were fitted to: {', '.join(parts)}."]


# ---- JSON ----


def settings_of(setup: Setup) -> dict[str, Any]:
    """Everything that the run was told."""
    fields = [f.name for f in dataclasses.fields(setup.config) if f.name != "prefix_salt"]
    config = {engine_name(name): getattr(setup.config, name) for name in fields}
    return {**config, "num_blocks": setup.num_blocks, **setup.facts}


def refuse_unwritable(flag: str, target: str | None) -> None:
    """Before a run, not after it. Raises FlagError for a file that could not be written."""
    if target is None or target == "-":
        return
    path = Path(target)
    if path.is_dir():
        why = os.strerror(errno.EISDIR)
    elif not path.parent.is_dir():
        why = os.strerror(errno.ENOENT)
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        why = os.strerror(errno.EACCES)
    else:
        return
    raise FlagError(f"{flag} {target} cannot be written: {why}")


def refuse_undrawable(flag: str, target: str | None) -> None:
    """The same of a picture: neither an ending nor a library that is missing is told afterwards."""
    if target is None:
        return
    if not target.endswith((".png", ".svg", ".pdf")):
        raise FlagError(f"{flag} takes a file that ends in .png or .svg, got {target!r}")
    if find_spec("matplotlib") is None:
        how = "pip install 'headway[plots]', or pip install matplotlib"
        raise FlagError(f"{flag} needs matplotlib: {how}")
    refuse_unwritable(flag, target)


def write_json(values: Any, target: str) -> None:
    """To a file, or to standard output for "-". NaN becomes null. Raises FlagError."""
    text = json.dumps(_plain(values), indent=1, default=str)
    if target == "-":
        print(text)
        return
    try:
        Path(target).write_text(text + "\n")
    except OSError as error:
        raise FlagError(f"--json {target} cannot be written: {error.strerror}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value
