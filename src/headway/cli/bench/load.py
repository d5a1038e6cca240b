"""Which load `headway bench serve` puts on a server, from flags."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.bench.recorded import RecordedWorkload
from headway.cli.bench.flags import BenchFlags, number_or_nan, read_list
from headway.cli.simulated_workload import (
    FILE_FLAGS,
    WORKLOAD_FLAGS,
    trace_format,
    workload_of,
)
from headway.flags import FlagError
from headway.simulator.workload.base import Workload
from headway.simulator.workload.describe import notes_of
from headway.simulator.workload.spec import changed_spec, from_spec

DEFAULT_PROMPTS, DEFAULT_INPUT, DEFAULT_OUTPUT = 1000, 1024, 128
_SECONDS_PER_RATE, _FEWEST_PER_RATE = 30.0, 20
_TRACES = ("sharegpt", "burstgpt", "azure", "mooncake", "headway")
_DRAWN = ("--random-input-len", "--random-output-len", "--random-range-ratio")
OTHER_FLAGS = tuple({**FILE_FLAGS, **WORKLOAD_FLAGS})


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A workload at any rate. `spec`: that it is made of, None for a recording.

    `rates`: that are asked for; none where the workload has its own times.
    """

    rates: tuple[float, ...]
    spec: Mapping[str, Any] | None
    recorded: RecordedWorkload | None
    flags: BenchFlags

    def at(self, rate: float | None) -> tuple[Workload, int | None]:
        """With the number of its requests, if that is known before. Raises ValueError."""
        if self.recorded is not None:
            workload = self.recorded if rate is None else self.recorded.at_rate(rate)
            return workload, workload.num_requests
        spec = self.spec_at(rate)
        count = None if "trace" in spec else spec.get("requests")
        return from_spec(spec), None if count is None else int(count)

    def first(self) -> tuple[Workload, int | None]:
        """At the first rate, or at any, to see whether it is a workload and what it asks."""
        if self.rates:
            return self.at(self.rates[0])
        return self.at(1.0 if self.is_sweep else None)

    def spec_at(self, rate: float | None) -> dict[str, Any]:
        assert self.spec is not None
        if rate is None:
            return dict(self.spec)
        changes = _arrivals_at(rate, self.flags, is_trace=_has_times(self.spec))
        counted = "first" if "trace" in self.spec else "requests"
        if self.is_sweep and counted not in self.spec and "duration_s" not in self.spec:
            changes[counted] = max(_FEWEST_PER_RATE, math.ceil(rate * _SECONDS_PER_RATE))
        return changed_spec(self.spec, changes)

    @property
    def is_sweep(self) -> bool:
        return len(self.rates) > 1 or self.flags.has("--sweep")

    def notes(self) -> list[str]:
        """What is not in the workload, or was taken for granted."""
        if self.recorded is None:
            return list(notes_of(self.first()[0]))
        notes = ["of requests with several outputs the first is asked for"]
        if self.recorded.recorded.num_left_out:
            notes.append(f"{self.recorded.recorded.num_left_out} requests are left out")
        return notes

    def arrivals(self) -> str:
        """In one line: when."""
        if self.recorded is not None or (self.spec is not None and _has_times(self.spec)):
            return "at its own times" if not self.rates else "its times stretched to the rate"
        if not self.rates:
            own = self.spec and (self.spec.get("arrivals") or self.spec.get("rate"))
            return "at rates round the limit" if self.is_sweep else f"arrivals {own}"
        if self.is_sweep:
            return "at several rates"
        changes = _arrivals_at(self.rates[0], self.flags, is_trace=False)
        return f"arrivals {changes['arrivals']}"

    def about(self) -> str:
        """In one line: what is asked."""
        if self.recorded is not None:
            return f"the recording {self.flags.get('--recording')}"
        assert self.spec is not None
        if "trace" in self.spec:
            return f"the trace {self.spec['trace']}"
        if "streams" in self.spec:
            return f"{len(self.spec['streams'])} streams"
        lengths = self.spec["prompt_tokens"], self.spec["output_tokens"]
        return f"prompts of {lengths[0]} tokens, outputs of {lengths[1]}"


def load_plan(flags: BenchFlags) -> LoadPlan:
    """Raises FlagError, or ValueError with a sentence."""
    rates = _rates(flags)
    if flags.has("--recording"):
        return LoadPlan(rates, None, _recorded(flags), flags)
    spec = _spec(flags)
    has_own_times = _has_times(spec) or not {"arrivals", "rate"}.isdisjoint(spec)
    if not rates and not has_own_times and not flags.has("--sweep"):
        rates = (math.inf,)
    return LoadPlan(rates, spec, None, flags)


def _rates(flags: BenchFlags) -> tuple[float, ...]:
    given = flags.get("--request-rate")
    if given is None:
        return ()
    if flags.has("--arrivals"):
        raise FlagError("--request-rate and --arrivals both say when requests come: give one")
    rates = read_list(given, number_or_nan)
    if not all(rate > 0 and (rate <= 1e6 or math.isinf(rate)) for rate in rates):
        raise FlagError(f"--request-rate must be above 0 and at most 1e6, or inf, got {given!r}")
    if len(set(rates)) < len(rates):
        raise FlagError(f"--request-rate has a rate twice: {given}")
    if len(rates) > 1 and (math.inf in rates or flags.has("--sweep")):
        why = "--sweep finds its own" if flags.has("--sweep") else "inf goes alone"
        raise FlagError(f"--request-rate {given}: {why}, so give one number")
    return tuple(rates)


def _spec(flags: BenchFlags) -> dict[str, Any]:
    own = {name: values[-1] for name, values in flags.values.items() if name in OTHER_FLAGS}
    own |= _dataset(flags, own)
    is_file = "--workload" in own or "--trace" in own
    if not is_file:
        own = {**_lengths(flags, own), **own}
    if flags.has("--num-prompts"):
        name = "--first" if "--trace" in own else "--requests"
        own[name] = str(flags.whole("--num-prompts", 0, 1))
    spec = _read(own)
    if "trace" not in spec and not {"requests", "duration_s", "streams"} & set(spec):
        is_one = not flags.has("--sweep") and "," not in flags.text("--request-rate", "")
        spec |= {"requests": DEFAULT_PROMPTS} if is_one else {}
    return spec


def _read(own: Mapping[str, str]) -> dict[str, Any]:
    """As the simulator's command reads it, which wants times where here they may come later."""
    is_timed = any(name in own for name in ("--arrivals", "--workload", "--trace"))
    trial = dict(own) if is_timed else {**own, "--arrivals": "poisson:1"}
    if not is_timed and "--requests" not in trial and "--duration-s" not in trial:
        trial["--requests"] = "1"
    if own.get("--format") == "sharegpt" and "--arrivals" not in own:
        trial["--arrivals"] = "poisson:1"
    _, spec = workload_of(trial, 0)
    added = {WORKLOAD_FLAGS[name] for name in trial if name not in own}
    return {name: value for name, value in spec.items() if name not in added}


def _dataset(flags: BenchFlags, own: Mapping[str, str]) -> dict[str, str]:
    """vLLM's --dataset-name and --dataset-path as --format and --trace."""
    name, path = flags.get("--dataset-name"), flags.get("--dataset-path")
    if name in (None, "random") and path is None:
        return {}
    if name not in (None, *_TRACES):
        raise FlagError(f"--dataset-name must be one of random, {', '.join(_TRACES)}, got {name!r}")
    if path is None:
        raise FlagError(f"--dataset-name {name} needs its file: --dataset-path")
    for flag in ("--workload", "--trace", *_DRAWN):
        if flag in own or flags.has(flag):
            raise FlagError(f"{flag} and --dataset-path are two workloads: give one")
    return {"--trace": path} | ({"--format": name} if name else {})


def _lengths(flags: BenchFlags, own: Mapping[str, str]) -> dict[str, str]:
    """As vLLM's random data set has them."""
    ratio = flags.number("--random-range-ratio", 0.0, 0.0, 0.999)
    found = {}
    for name, field, default in (
        ("--random-input-len", "--prompt-tokens", DEFAULT_INPUT),
        ("--random-output-len", "--output-tokens", DEFAULT_OUTPUT),
    ):
        if field in own and flags.has(name):
            raise FlagError(f"{name} and {field} say the same: give one")
        length = flags.whole(name, default, 1, 10**7)
        low, high = max(1, math.floor(length * (1 - ratio))), math.ceil(length * (1 + ratio))
        found[field] = f"uniform:{low}-{high}" if ratio else str(length)
    if prefix := flags.whole("--random-prefix-len", 0, 0, 10**7):
        found |= {"--prefixes": "1", "--prefix-tokens": str(prefix)}
    return found


def _arrivals_at(rate: float, flags: BenchFlags, *, is_trace: bool) -> dict[str, Any]:
    if is_trace:
        if math.isinf(rate):
            return {"time_scale": 0.0}
        return {"rate": rate}
    if math.isinf(rate):
        clients = flags.get("--max-concurrency")
        return {"arrivals": f"closed:{clients}" if clients else "at-once"}
    variation = 1 / math.sqrt(flags.number("--burstiness", 1.0, 1e-4, 1e9))
    return {"arrivals": f"gamma:{rate!r}:{variation!r}" if variation != 1 else f"poisson:{rate!r}"}


def _has_times(spec: Mapping[str, Any]) -> bool:
    """A trace has; ShareGPT's conversations come when they are told to."""
    return "trace" in spec and trace_format(spec) != "sharegpt"


def _recorded(flags: BenchFlags) -> RecordedWorkload:
    from headway.replay.files import load_recordings
    from headway.replay.requests import recorded_config
    from headway.replay.traffic import RecordedTraffic

    path = flags.text("--recording", "")
    recordings = load_recordings(path)
    if len(recordings) > 1:
        raise FlagError(f"{path} holds {len(recordings)} recordings: split it")
    recorded = RecordedTraffic(recordings[0].header, recordings[0].entries)
    first = flags.whole("--num-prompts", 0, 1) if flags.has("--num-prompts") else None
    block_size = recorded_config(recordings[0].header).block_size
    return RecordedWorkload(recorded, block_size, first)
