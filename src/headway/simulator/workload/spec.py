"""A workload as a flat mapping of names to numbers and short forms: JSON, or a command's flags."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from headway.simulator.workload import lengths
from headway.simulator.workload.arrivals import Arrivals, Renewal
from headway.simulator.workload.base import Workload
from headway.simulator.workload.clients import (
    NOT_DECLARED,
    Choice,
    Declared,
    Leaving,
    Prefixes,
    Turns,
)
from headway.simulator.workload.forms import (
    declared_text,
    parse_arrivals,
    parse_choice,
    parse_declared,
    parse_lengths,
    parse_wait,
)
from headway.simulator.workload.lengths import LengthLaw
from headway.simulator.workload.synthetic import (
    NO_ADAPTER,
    NO_PRIORITY,
    NO_TENANT,
    Streams,
    Synthetic,
)
from headway.simulator.workload.traces.open import open_trace
from headway.simulator.workload.traces.trace import TraceFile, Window
from headway.simulator.workload.waits import NO_WAIT, FixedWait, WaitLaw

Spec = Mapping[str, Any]
Read = TypeVar("Read")


def from_spec(spec: Spec) -> Workload:
    """The workload that a spec describes: laws, `streams` of them, or a `trace`.

    Raises ValueError that names the field, or what a trace raises.
    """
    if "streams" in spec:
        return _streams(spec)
    _check_names(spec, _TRACE_READERS if "trace" in spec else _READERS)
    return _trace(spec) if "trace" in spec else _synthetic(_read_all(spec, _READERS))


def changed_spec(spec: Spec, changes: Spec) -> dict[str, Any]:
    """The spec with other values, in each of its `streams` too. A rate replaces arrivals."""
    gone = set(changes)
    if "rate" in changes or "arrivals" in changes:
        gone |= {"rate", "arrivals"}
    kept = {name: value for name, value in spec.items() if name not in gone}
    if isinstance(spec.get("streams"), list):
        kept["streams"] = [
            {name: value for name, value in part.items() if name not in gone}
            if isinstance(part, Mapping)
            else part
            for part in spec["streams"]
        ]
    return {**kept, **changes}


def with_later_seed(spec: Spec, offset: int) -> dict[str, Any]:
    """`offset` is added to the seed, and to those of its `streams`. Raises ValueError."""
    later = {**spec, "seed": _seed(spec.get("seed")) + offset}
    if isinstance(spec.get("streams"), list):
        later["streams"] = [
            {**part, "seed": _seed(part["seed"]) + offset}
            if isinstance(part, Mapping) and part.get("seed") is not None
            else part
            for part in spec["streams"]
        ]
    return later


def _seed(value: Any) -> int:
    return 0 if value is None else _made("seed", lambda: _whole(value))


def to_spec(workload: Workload) -> dict[str, Any]:
    """The spec that `from_spec` makes this workload of. Raises ValueError where there is none."""
    if isinstance(workload, Streams):
        return {"streams": [to_spec(part) for part in workload.parts]}
    if isinstance(workload, TraceFile):
        window = {
            name: value for name, value in asdict(workload.window).items() if value is not None
        }
        return {"trace": str(workload.path), "format": workload.format, **window}
    if not isinstance(workload, Synthetic) or workload.conversations is not None:
        raise ValueError(f"a {type(workload).__name__} of these contents has no spec")
    spec = {
        "arrivals": workload.arrivals.text,
        "prompt_tokens": _law_text(workload.prompt_tokens),
        "output_tokens": _law_text(workload.output_tokens),
        "requests": workload.num_requests,
        "duration_s": workload.duration_s,
        "seed": workload.seed,
        "max_queue_s": workload.max_queue_s,
        "deadline_s": workload.deadline_s,
        **_clients_spec(workload),
    }
    return {name: value for name, value in spec.items() if value is not None}


def _clients_spec(workload: Synthetic) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if workload.max_tokens != NOT_DECLARED:
        spec["max_tokens"] = declared_text(workload.max_tokens)
    if (prefixes := workload.prefixes) is not None:
        spec |= {"prefixes": prefixes.count, "prefix_tokens": prefixes.tokens.text}
        spec |= {"prefix_skew": prefixes.skew, "prefix_share": prefixes.share}
    if (turns := workload.turns) is not None:
        spec |= {"turns": turns.number.text, "think_s": turns.think.text}
        spec["later_prompt_tokens"] = _law_text(turns.prompt_tokens)
    if (leaving := workload.leaving) is not None:
        spec |= {"leave_share": leaving.share, "leave_after_s": leaving.after.text}
    for name, nothing in (
        ("tenants", NO_TENANT),
        ("adapters", NO_ADAPTER),
        ("priorities", NO_PRIORITY),
    ):
        choice = getattr(workload, name)
        if choice != nothing:
            spec[name] = {str(value): weight for value, weight in choice.weights}
    return spec


def _law_text(law: LengthLaw | None) -> str | None:
    return None if law is None else law.text


def _streams(spec: Spec) -> Streams:
    """What stands beside `streams` holds for each that does not say otherwise."""
    shared = {name: value for name, value in spec.items() if name != "streams"}
    listed = spec["streams"]
    if not isinstance(listed, list) or not all(isinstance(part, Mapping) for part in listed):
        raise ValueError("streams: a list of specs")
    parts: list[Synthetic] = []
    for index, part in enumerate(listed):
        try:
            _check_names({**shared, **part}, _READERS)
            parts.append(_synthetic(_read_all({**shared, **part}, _READERS)))
        except ValueError as error:
            raise ValueError(f"streams[{index}].{error}") from None
    return Streams(tuple(parts))


def _trace(spec: Spec) -> Workload:
    values = _read_all(spec, _TRACE_READERS)
    path, name = values.pop("trace"), values.pop("format", "auto")
    arrivals = values.pop("arrivals", None)
    think, seed = values.pop("think_s", None), values.pop("seed", None)
    return open_trace(path, name, Window(**values), arrivals=arrivals, think=think, seed=seed)


def _synthetic(values: dict[str, Any]) -> Synthetic:
    if "rate" in values and "arrivals" in values:
        raise ValueError("rate: arrivals are given too; say one of them")
    for name, other in (
        ("prefixes", "prefix_tokens"),
        ("prefix_tokens", "prefixes"),
        ("leave_share", "leave_after_s"),
        ("leave_after_s", "leave_share"),
        ("prefix_skew", "prefixes"),
        ("prefix_share", "prefixes"),
        ("think_s", "turns"),
        ("later_prompt_tokens", "turns"),
    ):
        if name in values and other not in values:
            raise ValueError(f"{name}: {other} is needed too")
    for name in ("prompt_tokens", "output_tokens"):
        if name not in values:
            raise ValueError(f"{name}: is needed")
    arrivals = values.get("arrivals") or values.get("rate")
    if arrivals is None:
        raise ValueError("arrivals: are needed, or a rate")
    return Synthetic(
        arrivals=arrivals,
        num_requests=values.get("requests"),
        prefixes=_made("prefixes", lambda: _prefixes(values)),
        turns=_turns(values),
        leaving=_made("leave_share", lambda: _leaving(values)),
        **{name: values[name] for name in _TAKEN_AS_THEY_ARE if name in values},
    )


_TAKEN_AS_THEY_ARE = (
    "prompt_tokens",
    "output_tokens",
    "duration_s",
    "seed",
    "max_tokens",
    "tenants",
    "adapters",
    "priorities",
    "max_queue_s",
    "deadline_s",
)


def _prefixes(values: dict[str, Any]) -> Prefixes | None:
    if "prefixes" not in values:
        return None
    return Prefixes(
        values["prefixes"],
        values["prefix_tokens"],
        values.get("prefix_skew", 0.0),
        values.get("prefix_share", 1.0),
    )


def _turns(values: dict[str, Any]) -> Turns | None:
    if "turns" not in values:
        return None
    return Turns(values["turns"], values.get("think_s", NO_WAIT), values.get("later_prompt_tokens"))


def _leaving(values: dict[str, Any]) -> Leaving | None:
    if "leave_share" not in values:
        return None
    return Leaving(values["leave_share"], values["leave_after_s"])


def _made(name: str, make: Callable[[], Read]) -> Read:
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _check_names(spec: Spec, readers: Mapping[str, Callable[[Any], Any]]) -> None:
    for name in spec:
        if name not in readers:
            raise ValueError(f"{name}: there is no such field; there are {', '.join(readers)}")


def _read_all(spec: Spec, readers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """The values read; None is as good as absent."""
    return {
        name: _made(name, lambda name=name, value=value: readers[name](value))  # type: ignore[misc]
        for name, value in spec.items()
        if value is not None
    }


def _whole(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
        return int(value)  # a float would round large ones
    number = _real(value)
    if not number.is_integer():
        raise ValueError(f"a whole number is needed, got {value!r}")
    return int(number)


def _real(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(f"a number is needed, got {value!r}")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a text is needed, got {value!r}")
    return value


def _lengths(value: Any) -> LengthLaw:
    if isinstance(value, list):
        return lengths.empirical(_whole(length) for length in value)
    return parse_lengths(str(value))


def _arrivals(value: Any) -> Arrivals:
    return parse_arrivals(str(value))


def _rate(value: Any) -> Arrivals:
    return Renewal(_real(value))


def _wait(value: Any) -> WaitLaw:
    if isinstance(value, int | float):
        return FixedWait(_real(value))
    return parse_wait(_text(value))


def _declared(value: Any) -> Declared:
    return parse_declared(str(value))


def _names(value: Any) -> Choice[str]:
    if isinstance(value, Mapping):
        return Choice.of({_text(name): _real(weight) for name, weight in value.items()})
    return parse_choice(_text(value))


def _priorities(value: Any) -> Choice[int]:
    if isinstance(value, int):
        return Choice(((_whole(value), 1.0),))
    return Choice(tuple((_whole(name), weight) for name, weight in _names(value).weights))


_READERS: dict[str, Callable[[Any], Any]] = {
    "rate": _rate,
    "arrivals": _arrivals,
    "prompt_tokens": _lengths,
    "output_tokens": _lengths,
    "requests": _whole,
    "duration_s": _real,
    "seed": _whole,
    "max_tokens": _declared,
    "prefixes": _whole,
    "prefix_tokens": _lengths,
    "prefix_skew": _real,
    "prefix_share": _real,
    "turns": _lengths,
    "think_s": _wait,
    "later_prompt_tokens": _lengths,
    "tenants": _names,
    "adapters": _names,
    "priorities": _priorities,
    "leave_share": _real,
    "leave_after_s": _wait,
    "max_queue_s": _real,
    "deadline_s": _real,
}
_TRACE_READERS: dict[str, Callable[[Any], Any]] = {
    "trace": _text,
    "format": _text,
    "first": _whole,
    "start_s": _real,
    "stop_s": _real,
    "time_scale": _real,
    "rate": _real,
    "arrivals": _arrivals,
    "think_s": _wait,
    "seed": _whole,
}
# What a spec may say, of laws and of a trace.
LAW_FIELDS = tuple(_READERS)
TRACE_FIELDS = tuple(_TRACE_READERS)
