"""Short forms of laws, as a command line or a file has them: `lognormal:1000:0.8:32-8192`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from headway.simulator.workload import lengths
from headway.simulator.workload.arrivals import Arrivals, AtOnce, ClosedLoop, Phases, Renewal
from headway.simulator.workload.clients import NOT_DECLARED, Choice, Declared
from headway.simulator.workload.lengths import LengthLaw
from headway.simulator.workload.waits import ExponentialWait, FixedWait, UniformWait, WaitLaw

Law = TypeVar("Law")
_NUMBER = r"\d+(?:\.\d*)?(?:e-?\d+)?|\.\d+(?:e-?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})-({_NUMBER})")


class _Form(NamedTuple):
    usage: str
    read: Callable[[str], object]  # of what follows the colon


def parse_lengths(text: str) -> LengthLaw:
    """A law of lengths; a number alone is that length always.

    Raises ValueError with the forms there are.
    """
    return _parse(text, "a law of lengths", _LENGTHS, _fixed_length)


def parse_arrivals(text: str) -> Arrivals:
    """How clients come; a number alone is the rate of a Poisson process.

    Raises ValueError with the forms there are.
    """
    return _parse(text, "a way to arrive", _ARRIVALS, lambda rate: Renewal(_real(rate)))


def parse_wait(text: str) -> WaitLaw:
    """A law of pauses in seconds; a number alone is that pause always.

    Raises ValueError with the forms there are.
    """
    return _parse(text, "a law of pauses", _WAITS, lambda seconds: FixedWait(_real(seconds)))


def parse_declared(text: str) -> Declared:
    """`none`, a number of tokens, or a multiple of the output such as `4x`."""
    if text == "none":
        return NOT_DECLARED
    if text.endswith("x"):
        return Declared(multiple=_real(text[:-1]))
    return Declared(constant=_whole(text))


def declared_text(declared: Declared) -> str:
    if declared.multiple is not None:
        return f"{lengths.number(declared.multiple)}x"
    return "none" if declared.constant is None else str(declared.constant)


def parse_choice(text: str) -> Choice[str]:
    """Values with weights, `a=3,b=1`; without one, 1."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        value, found, weight = part.partition("=")
        if value in weights:
            raise ValueError(f"{value!r} is there twice")
        weights[value] = _real(weight) if found else 1.0
    return Choice.of(weights)


def _parse(
    text: str, what: str, forms: Mapping[str, _Form], of_number: Callable[[str], Law]
) -> Law:
    text = text.strip()
    if re.fullmatch(_NUMBER, text):
        return of_number(text)
    kind, _, rest = text.partition(":")
    form = forms.get(kind)
    if form is None:
        usages = ", ".join(form.usage for form in forms.values())
        raise ValueError(f"{text!r} is not {what}; there are {usages}")
    try:
        law: Law = form.read(rest)  # type: ignore[assignment]
    except _NotThatFormError as error:
        raise ValueError(f"{text!r}: {error}; the form is {form.usage}") from None
    return law


class _NotThatFormError(ValueError):
    """What follows the colon does not fit."""


def _fixed_length(text: str) -> LengthLaw:
    return lengths.fixed(_whole(text))


def _uniform_length(text: str) -> LengthLaw:
    low, high = _range(text)
    return lengths.uniform(_whole_number(low), _whole_number(high))


def _log_uniform(text: str) -> LengthLaw:
    return lengths.log_uniform(*_range(text))


def _spread(text: str) -> LengthLaw:
    mean, ratio = _fields(text, 2, 2)
    return lengths.spread(_real(mean), _real(ratio))


def _lognormal(text: str) -> LengthLaw:
    mean, sigma, *limits = _fields(text, 2, 3)
    if not limits:
        return lengths.lognormal(_real(mean), _real(sigma))
    low, high = _range(limits[0])
    return lengths.lognormal(_real(mean), _real(sigma), _whole_number(low), _whole_number(high))


def _values(text: str) -> LengthLaw:
    return lengths.empirical(_whole(value) for value in text.split(","))


def _histogram(text: str) -> LengthLaw:
    counts: dict[int, float] = {}
    for part in text.split(","):
        length, found, weight = part.partition("=")
        if not found:
            raise _NotThatFormError(f"{part!r} has no weight")
        counts[_whole(length)] = counts.get(_whole(length), 0.0) + _real(weight)
    return lengths.histogram(counts)


def _mixture(text: str) -> LengthLaw:
    parts: list[tuple[float, LengthLaw]] = []
    for part in text.split("+"):
        weight, found, law = part.partition("*")
        if not found:
            raise _NotThatFormError(f"{part!r} has no weight")
        parts.append((_real(weight), parse_lengths(law)))
    return lengths.mixture(parts)


def _gamma(text: str) -> Renewal:
    rate, variation = _fields(text, 2, 2)
    return Renewal(_real(rate), _real(variation))


def _phases(text: str) -> Phases:
    shape, *variation = _fields(text, 1, 2)
    phases: list[tuple[float, float]] = []
    for part in shape.split(","):
        seconds, found, rate = part.partition("@")
        if not found:
            raise _NotThatFormError(f"{part!r} is not SECONDS@RATE")
        phases.append((_real(seconds), _real(rate)))
    return Phases(tuple(phases), _real(variation[0]) if variation else 1.0)


def _at_once(text: str) -> AtOnce:
    if text:
        raise _NotThatFormError("nothing follows")
    return AtOnce()


def _closed(text: str) -> ClosedLoop:
    clients, _, think = text.partition(":")
    return ClosedLoop(_whole(clients), parse_wait(think) if think else FixedWait(0))


def _uniform_wait(text: str) -> UniformWait:
    return UniformWait(*_range(text))


def _fields(text: str, least: int, most: int) -> list[str]:
    fields = text.split(":")
    if not least <= len(fields) <= most or "" in fields:
        raise _NotThatFormError("something is missing or too much")
    return fields


def _range(text: str) -> tuple[float, float]:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise _NotThatFormError(f"{text!r} is not LOW-HIGH")
    return float(match[1]), float(match[2])


def _real(text: str) -> float:
    if not re.fullmatch(_NUMBER, text):
        raise _NotThatFormError(f"{text!r} is not a number of at least 0")
    return float(text)


def _whole(text: str) -> int:
    return _whole_number(_real(text))


def _whole_number(value: float) -> int:
    if not value.is_integer():
        raise _NotThatFormError(f"{lengths.number(value)} is not a whole number")
    return int(value)


_LENGTHS = {
    "fixed": _Form("fixed:N", _fixed_length),
    "uniform": _Form("uniform:LOW-HIGH", _uniform_length),
    "loguniform": _Form("loguniform:LOW-HIGH", _log_uniform),
    "spread": _Form("spread:MEAN:RATIO", _spread),
    "lognormal": _Form("lognormal:MEAN:SIGMA[:LOW-HIGH]", _lognormal),
    "values": _Form("values:N,N,...", _values),
    "histogram": _Form("histogram:N=WEIGHT,...", _histogram),
    "mixture": _Form("mixture:WEIGHT*LAW+...", _mixture),
}
_ARRIVALS = {
    "poisson": _Form("poisson:RATE", lambda rate: Renewal(_real(rate))),
    "gamma": _Form("gamma:RATE:VARIATION", _gamma),
    "constant": _Form("constant:RATE", lambda rate: Renewal(_real(rate), 0.0)),
    "phases": _Form("phases:SECONDS@RATE,...[:VARIATION]", _phases),
    "at-once": _Form("at-once", _at_once),
    "closed": _Form("closed:CLIENTS[:PAUSE]", _closed),
}
_WAITS = {
    "fixed": _Form("fixed:SECONDS", lambda seconds: FixedWait(_real(seconds))),
    "exponential": _Form("exponential:MEAN", lambda mean: ExponentialWait(_real(mean))),
    "uniform": _Form("uniform:LOW-HIGH", _uniform_wait),
}
