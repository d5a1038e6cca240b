"""Flags of one command, taken out of a line whose rest is the engine's."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headway.flags import FlagError


def split_own(argv: Sequence[str], own: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """The values of the flags in `own`, and the rest. Raises FlagError for one without a value."""
    values: dict[str, str] = {}
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        name, has_value, value = word.partition("=")
        if name not in own:
            rest.append(word)
            continue
        given = value if has_value else next(words, None)
        if given is None:
            raise FlagError(f"{name} needs a value")
        values[name] = given
    return values, rest
