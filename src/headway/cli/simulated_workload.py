"""The workload that a simulation is about, from flags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.flags import FlagError
from headway.simulator.files import open_file
from headway.simulator.workload.spec import (
    LAW_FIELDS,
    TRACE_FIELDS,
    changed_spec,
    from_spec,
    with_later_seed,
)
from headway.simulator.workload.traces.open import format_of

if TYPE_CHECKING:
    from headway.simulator.workload.base import Workload

_WORKLOAD_HELP = {
    "rate": ("N", "Requests a second, as a Poisson process; a trace is stretched to it."),
    "arrivals": ("LAW", "poisson:4, gamma:4:2.5, constant:4, at-once, closed:16:1, ..."),
    "requests": ("N", "How many."),
    "duration_s": ("SECONDS", "Or for how long."),
    "prompt_tokens": ("LAW", "500, uniform:100-900, lognormal:1000:0.8:32-8192, ..."),
    "output_tokens": ("LAW", "Likewise."),
    "max_tokens": ("N|Mx|none", "What clients declare: a number, or a multiple of the output."),
    "prefixes": ("N", "So many beginnings that prompts share; they come before prompt tokens."),
    "prefix_tokens": ("LAW", "How long they are."),
    "prefix_skew": ("X", "Zipf's exponent of who has which; 0: all alike."),
    "prefix_share": ("SHARE", "Of sessions, those with one; 1."),
    "turns": ("LAW", "Requests of a session, each with all that was said before."),
    "think_s": ("LAW", "Pause before each later turn: 5, exponential:5, uniform:1-9."),
    "later_prompt_tokens": ("LAW", "New words of each later turn."),
    "tenants": ("A=WEIGHT,...", "Who asks, drawn by weight: a=3,b=1."),
    "adapters": ("A=WEIGHT,...", "Likewise, which adapter."),
    "priorities": ("N=WEIGHT,...", "Likewise, how urgent; lower goes first."),
    "leave_share": ("SHARE", "Of requests, those whose client goes away."),
    "leave_after_s": ("LAW", "When it goes, from its arrival."),
    "max_queue_s": ("SECONDS", "The longest that a request may wait."),
    "deadline_s": ("SECONDS", "The longest from its arrival to its end."),
    "seed": ("N", "Of everything that is drawn; 0 unless given."),
    "first": ("N", "Of a trace, its first requests."),
    "start_s": ("SECONDS", "Of a trace, from when."),
    "stop_s": ("SECONDS", "Of a trace, until when."),
    "time_scale": ("X", "Of a trace: 2 is half its rate."),
}
WORKLOAD_FLAGS = {
    f"--{name.replace('_', '-')}": name
    for name in dict.fromkeys((*LAW_FIELDS, *TRACE_FIELDS))
    if name not in ("trace", "format")
}
FILE_FLAGS = {
    "--workload": ("FILE", "A workload's spec as JSON; flags beside it change it."),
    "--trace": ("FILE", "Requests one by one: our JSONL, or a published trace."),
    "--format": ("NAME", "Of the trace: azure, burstgpt, mooncake, sharegpt, headway."),
}


def workload_help() -> dict[str, tuple[str, str]]:
    """How each is written, and what it says."""
    return FILE_FLAGS | {flag: _WORKLOAD_HELP[field] for flag, field in WORKLOAD_FLAGS.items()}


def workload_of(own: Mapping[str, str], seed_offset: int) -> tuple[Workload, dict[str, Any]]:
    """With its spec. `seed_offset` is added to its seed."""
    spec = _file_spec(own)
    given = {field: own[flag] for flag, field in WORKLOAD_FLAGS.items() if flag in own}
    _check_kind(given, is_trace="trace" in spec)
    spec = changed_spec(spec, given)
    if not spec:
        raise FlagError(
            "what is to be served? Give --rate, --requests, --prompt-tokens and --output-tokens, "
            "or a --workload or --trace"
        )
    if seed_offset:
        if "trace" in spec and trace_format(spec) != "sharegpt":
            raise FlagError("--seeds repeats what is drawn, and a trace is the same each time")
        spec = with_later_seed(spec, seed_offset)
    return from_spec(spec), spec


def trace_format(spec: Mapping[str, Any]) -> str:
    given = spec.get("format") or "auto"
    return format_of(Path(spec["trace"])) if given == "auto" else given


def _check_kind(given: Mapping[str, str], *, is_trace: bool) -> None:
    for field in given:
        flag = f"--{field.replace('_', '-')}"
        if is_trace and field not in TRACE_FIELDS:
            raise FlagError(f"{flag} is for workloads that are drawn, and a trace is not")
        if not is_trace and field not in LAW_FIELDS:
            raise FlagError(f"{flag} is for a --trace, and there is none")


def _file_spec(own: Mapping[str, str]) -> dict[str, Any]:
    """Of the file that holds the workload; empty where there is none."""
    if "--workload" in own and "--trace" in own:
        raise FlagError("--workload and --trace are two workloads: give one")
    spec = _read_spec(own["--workload"]) if "--workload" in own else {}
    if "--trace" in own:
        spec = {"trace": own["--trace"]}
    if "--format" in own:
        if "trace" not in spec:
            raise FlagError("--format is the format of a --trace, and there is none")
        spec["format"] = own["--format"]
    return spec


def _read_spec(name: str) -> dict[str, Any]:
    path = Path(name)
    if ".jsonl" in path.suffixes or path.suffix == ".csv":
        return {"trace": name}
    try:
        with open_file(path) as file:
            spec = json.load(file)
    except OSError as error:
        raise FlagError(f"--workload {name} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise FlagError(f"--workload {name} is not JSON: {error}") from None
    if not isinstance(spec, dict):
        raise FlagError(f"--workload {name} must hold a JSON object")
    return spec
