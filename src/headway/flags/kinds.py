"""What a flag is, and short ways to write one down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Parse = Callable[[str], Any]


class FlagError(ValueError):
    """A command line that cannot be served; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Flag:
    """`--no-NAME` exists where `parse` is None: an on-off flag.

    `repeats`: takes one value or more and may come again; a value that parses to a tuple counts as
    several. `is_object`: a JSON object, of which `--NAME.key value` sets one entry.
    """

    names: tuple[str, ...]
    field: str
    parse: Parse | None
    help: str
    metavar: str
    section: str  # "engine" or "server": whose configuration the field is in
    repeats: bool = False
    allowed: tuple[str, ...] = ()
    is_object: bool = False


@dataclass(frozen=True, slots=True)
class Foreign:
    """A flag of others. `is_fine(value)`: the value asks for what happens anyway."""

    names: tuple[str, ...]
    sentence: str
    takes_value: bool = True
    is_refused: bool = True
    is_fine: Callable[[str], bool] = lambda value: False


class Section:
    """Writes down the flags of one configuration; the field is named as the flag is."""

    def __init__(self, name: str) -> None:
        self._name = name

    def value(
        self, name: str, parse: Parse, text: str, metavar: str = "N", *, repeats: bool = False
    ) -> Flag:
        return Flag((name,), _field(name), parse, text, metavar, self._name, repeats)

    def choice(
        self,
        name: str,
        allowed: Sequence[object],
        text: str,
        metavar: str,
        parse: Parse = str,
        *,
        short: tuple[str, ...] = (),
    ) -> Flag:
        names = tuple(str(one) for one in allowed)
        return Flag((name, *short), _field(name), parse, text, metavar, self._name, allowed=names)

    def switch(self, name: str, text: str) -> Flag:
        return Flag((name,), _field(name), None, text, "", self._name)

    def object(self, name: str, parse: Parse, text: str) -> Flag:
        return Flag((name,), _field(name), parse, text, "JSON", self._name, is_object=True)


def _field(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")
