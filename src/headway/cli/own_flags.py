"""Flags of one command, taken out of a line whose rest is the engine's."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from headway.flags import FlagError


def split_own(argv: Sequence[str], own: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """The values of the flags in `own`, and the rest. Raises FlagError for one without a value."""
    values, rest = split_repeated(argv, own)
    return {name: given[-1] for name, given in values.items()}, rest


def split_repeated(
    argv: Sequence[str], own: Collection[str], switches: Collection[str] = ()
) -> tuple[dict[str, list[str]], list[str]]:
    """As `split_own`, with all values of each flag in order; switches have none, which is ""."""
    values: dict[str, list[str]] = {}
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        name, has_value, value = word.partition("=")
        name = name.replace("_", "-") if name.startswith("--") else name
        if name in switches:
            if has_value:
                raise FlagError(f"{name} takes no value, got {value!r}")
            values[name] = [""]
            continue
        if name not in own:
            rest.append(word)
            continue
        given = value if has_value else next(words, None)
        if given is None or (not has_value and given.startswith("--")):
            raise FlagError(f"{name} needs a value")
        values.setdefault(name, []).append(given)
    return values, rest


def api_key(given: str | None) -> str | None:
    """What a command shows a server that asks for a key: the flag's, or the environment's."""
    names = ("HEADWAY_API_KEY", "OPENAI_API_KEY")
    return next((key for key in (given, *map(os.environ.get, names)) if key), None)


def number_of(own: Mapping[str, str], name: str, default: float, low: float, high: float) -> float:
    """The value of a flag that is a number in [low, high]. Raises FlagError."""
    try:
        value = float(own.get(name, default))
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise FlagError(f"{name} must be a number in [{low:g}, {high:g}], got {own[name]!r}")
    return value


def count_of(own: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """The value of a flag that is a whole number in [low, high]. Raises FlagError."""
    given = own.get(name, str(default))
    if not (
        given.isascii() and given.isdecimal() and len(given) < 20 and low <= int(given) <= high
    ):
        raise FlagError(f"{name} must be a whole number in [{low}, {high}], got {given[:50]!r}")
    return int(given)
