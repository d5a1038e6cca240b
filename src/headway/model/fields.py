"""Typed access to a mapping that came from a file and is not to be trusted."""

from __future__ import annotations

from collections.abc import Mapping

from headway.model.errors import ModelError

_REQUIRED = object()


class Fields:
    """Reads values by name, checks type and range. Every method raises ModelError.

    A missing key and a null are the same thing; a bool is not a number. `origin` begins every
    sentence, `prefix` every name.
    """

    def __init__(self, values: Mapping[str, object], origin: str, *, prefix: str = "") -> None:
        self._values = values
        self._origin = origin
        self._prefix = prefix

    def raw(self, name: str) -> object:
        return self._values.get(self._prefix + name)

    def has(self, name: str) -> bool:
        return self.raw(name) is not None

    def integer(self, name: str, low: int, high: int, default: object = _REQUIRED) -> int:
        value = self._value(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(name, f"must be an integer in [{low}, {high}]")
        return value

    def number(self, name: str, low: float, high: float, default: object = _REQUIRED) -> float:
        value = self._value(name, default)
        rule = f"must be a number in [{low:g}, {high:g}]"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, rule)
        if not low <= value <= high:
            raise self.error(name, rule)
        return float(value)

    def flag(self, name: str, default: object = _REQUIRED) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.error(name, "must be true or false")
        return value

    def text(self, name: str, default: object = _REQUIRED) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.error(name, "must be text")
        return value

    def nested(self, name: str) -> Fields:
        """The object under `name`; an empty one when it is missing."""
        value = self.raw(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.error(name, "must be an object")
        return Fields(value, f"{self._origin}: {name}")

    def items(self, name: str, length: int) -> list[object] | None:
        """A list of exactly `length` values, or None when it is missing."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length:
            raise self.error(name, f"must be a list of {length} values")
        return value

    def token_ids(self, name: str, vocab_size: int) -> tuple[int, ...]:
        """One id or a list of ids, each inside the vocabulary; nothing when missing."""
        value = self.raw(name)
        values = [] if value is None else value if isinstance(value, list) else [value]
        token_ids = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
        if len(token_ids) < len(values) or not all(0 <= v < vocab_size for v in token_ids):
            raise self.error(name, f"must be token ids in [0, {vocab_size})")
        return tuple(dict.fromkeys(token_ids))

    def error(self, name: str, rule: str) -> ModelError:
        if not self.has(name):
            return ModelError(f"{self._origin}: {self._prefix}{name} is missing; it {rule}")
        return ModelError(
            f"{self._origin}: {self._prefix}{name} {rule}, got {_short(self.raw(name))}"
        )

    def _value(self, name: str, default: object) -> object:
        value = self.raw(name)
        return default if value is None else value


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
