"""The command line read against the table of flags."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.engine.config import EngineConfig
from headway.flags import FLAGS, FOREIGN, Flag, FlagError, Foreign
from headway.server.config import ServerConfig


@dataclass(frozen=True, slots=True)
class ParsedFlags:
    """`names`: the flag that set each field, as it was given."""

    engine: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    def over(self, other: ParsedFlags) -> ParsedFlags:
        """These where both say something, the other's elsewhere."""
        return ParsedFlags(
            {**other.engine, **self.engine},
            {**other.server, **self.server},
            (*other.warnings, *self.warnings),
            {**other.names, **self.names},
        )

    def configs(self) -> tuple[EngineConfig, ServerConfig]:
        """Raises FlagError when a value is out of range."""
        try:
            return EngineConfig(**self.engine), ServerConfig(**self.server)
        except ValueError as error:
            raise FlagError(_in_flags(str(error))) from None


def parse_flags(argv: Sequence[str]) -> ParsedFlags:
    """Raises FlagError with one sentence for anything that cannot be taken as it stands."""
    return _Parser(argv).parse()


def flag_help() -> Iterator[tuple[str, str, str]]:
    """Section, flag as one writes it, and what it does with its default, in the table's order."""
    defaults = {"engine": EngineConfig(), "server": ServerConfig()}
    for flag in FLAGS:
        if flag.parse is None:
            usage = f"{flag.names[0]}, --no-{flag.names[0][2:]}"
        else:
            usage = f"{', '.join(flag.names)} {'|'.join(flag.allowed) or flag.metavar}"
        default = getattr(defaults[flag.section], flag.field)
        is_nothing = default is None or (
            not isinstance(default, bool | int | float) and not default
        )
        yield (
            flag.section,
            usage,
            flag.help + ("" if is_nothing else f" Default: {_shown(default)}."),
        )


def _shown(default: object) -> str:
    if isinstance(default, tuple):
        return " ".join(str(one) for one in default)
    return ("off", "on")[default] if isinstance(default, bool) else str(default)


def _in_flags(message: str) -> str:
    """Speak of fields as the flags that set them: a word at the start, and all with a `_`."""
    names = {flag.field: flag.names[0] for flag in FLAGS}
    return re.sub(r"^\w+|\w+_\w+", lambda word: names.get(word[0], word[0]), message)


class _Parser:
    def __init__(self, argv: Sequence[str]) -> None:
        self._rest = list(argv)
        self._values: dict[str, dict[str, Any]] = {"engine": {}, "server": {}}
        self._warnings: list[str] = []
        self._names: dict[str, str] = {}
        self._flags = {name: flag for flag in FLAGS for name in flag.names}
        self._foreign = {name: foreign for foreign in FOREIGN for name in foreign.names}

    def parse(self) -> ParsedFlags:
        while self._rest:
            word = self._rest.pop(0)
            if word.startswith("-") and word != "-":
                self._take(*_split(word))
            elif "model" in self._values["engine"]:
                raise FlagError(f"there is a model already, so what is {word!r}?")
            else:
                self._values["engine"]["model"] = word
        values = self._values
        return ParsedFlags(values["engine"], values["server"], tuple(self._warnings), self._names)

    def _take(self, name: str, given: str | None) -> None:
        positive = "--" + name.removeprefix("--no-")
        base, dot, key = name.partition(".")
        if name in self._flags:
            self._take_flag(self._flags[name], name, given)
        elif dot and base in self._flags and self._flags[base].is_object:
            self._take_entry(self._flags[base], name, key, given)
        elif base in self._foreign:
            self._take_foreign(self._foreign[base], base, given)
        elif positive in self._flags and self._flags[positive].parse is None:
            self._switch(self._flags[positive], name, given, on=False)
        elif positive in self._foreign and not self._foreign[positive].takes_value:
            self._take_foreign(self._foreign[positive], name, "false")
        else:
            raise FlagError(self._unknown(name))

    def _take_flag(self, flag: Flag, name: str, given: str | None) -> None:
        if flag.parse is None:
            self._switch(flag, name, given, on=True)
            return
        values = [given if given is not None else self._value_of(name)]
        while flag.repeats and given is None and self._next_is_value():
            values.append(self._rest.pop(0))
        parsed = [_parsed(flag, name, value) for value in values]
        if flag.repeats:
            self._set(flag, name, (*self._section(flag).get(flag.field, ()), *_flat(parsed)))
        else:
            self._set(flag, name, parsed[0])

    def _take_entry(self, flag: Flag, name: str, key: str, given: str | None) -> None:
        """`--flag.a.b value` is `--flag {"a": {"b": value}}`, added to what is there."""
        value = _json_or_text(given if given is not None else self._value_of(name))
        for part in reversed(key.split(".")):
            value = {part: value}
        before = self._section(flag).get(flag.field, {})
        self._set(flag, name, _parsed(flag, name, json.dumps(_merged(before, value))))

    def _switch(self, flag: Flag, name: str, given: str | None, *, on: bool) -> None:
        if given is not None:
            if given.lower() not in ("true", "false"):
                raise FlagError(f"{name} takes no value but true or false, got {given!r}")
            on = on == (given.lower() == "true")
        self._set(flag, name, on)

    def _section(self, flag: Flag) -> dict[str, Any]:
        return self._values[flag.section]

    def _set(self, flag: Flag, name: str, value: Any) -> None:
        self._section(flag)[flag.field] = value
        self._names[flag.field] = name

    def _take_foreign(self, foreign: Foreign, name: str, given: str | None) -> None:
        value = given or ""
        if foreign.takes_value and given is None:
            value = self._value_of(name)
        is_off = not foreign.takes_value and value.lower() == "false"
        if foreign.is_refused and not is_off and not foreign.is_fine(value):
            shown = f" (given {value!r})" if value else ""
            raise FlagError(f"{name} {foreign.sentence}{shown}")
        if not foreign.is_refused:
            self._warnings.append(f"{name} {foreign.sentence}")

    def _value_of(self, name: str) -> str:
        if not self._next_is_value():
            raise FlagError(f"{name} needs a value")
        return self._rest.pop(0)

    def _next_is_value(self) -> bool:
        return bool(self._rest) and not re.match(r"--?[A-Za-z]", self._rest[0])

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, [*self._flags, *self._foreign], n=1)
        hint = f"did you mean {near[0]}?" if near else "see --help"
        return f"there is no flag {name}: {hint}"


def _split(word: str) -> tuple[str, str | None]:
    """The name with dashes, and what stands behind `=`. `-O3` has its value in the same word."""
    if re.match(r"-O[\d.]", word):
        return "-O", word[2:]
    name, has_value, value = word.partition("=")
    stem, dot, key = name.partition(".")
    stem = stem.replace("_", "-") if stem.startswith("--") else stem
    return stem + dot + key, value if has_value else None


def _parsed(flag: Flag, name: str, value: str) -> Any:
    if flag.allowed and value not in flag.allowed:
        raise FlagError(f"{name} must be {_either(flag.allowed)}, got {value!r}")
    if flag.parse is str and not value and flag.field != "root_path":
        raise FlagError(f"{name} must not be empty: give a value or leave it out")
    assert flag.parse is not None
    try:
        return flag.parse(value)
    except ValueError as error:
        raise FlagError(f"{name} {error}") from None
    except RecursionError:
        raise FlagError(f"{name} is nested too deeply") from None


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        yield from value if isinstance(value, tuple) else (value,)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _merged(before: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(before)
    for key, value in entry.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged


def _either(allowed: Sequence[str]) -> str:
    return allowed[0] if len(allowed) == 1 else f"{', '.join(allowed[:-1])} or {allowed[-1]}"
