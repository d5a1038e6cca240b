"""From the bytes of a request to a checked body, or an error that names the field at fault."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from headway.server.errors import ApiError, Problem
from headway.server.schema.fields import LABELS, UNSUPPORTED, Unsupported

Body = TypeVar("Body", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Parsed(Generic[Body]):
    body: Body
    ignored: tuple[str, ...]  # paths of fields with no effect, in the client's order


def parse(
    raw: bytes, body_type: type[Body], unsupported: Mapping[str, Unsupported] = UNSUPPORTED
) -> Parsed[Body]:
    """Raises ApiError that names the field at fault. A null is the same as a field left out."""
    values = {name: value for name, value in _read_object(raw).items() if value is not None}
    for name, rule in unsupported.items():
        if name in values and not rule.is_neutral(values[name], values):
            sentence = rule.sentence.format(field=name)
            raise ApiError(Problem.UNSUPPORTED, sentence, name)
    try:
        body = msgspec.convert(values, body_type, str_keys=True)
    except msgspec.ValidationError as error:
        raise _type_error(str(error)) from None
    silent = {*LABELS, *unsupported}
    return Parsed(body, tuple(path for path in _unknown(values, body_type) if path not in silent))


def _read_object(raw: bytes) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(Problem.INVALID_JSON, f"the body is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise ApiError(Problem.INVALID_JSON, "the body must be a JSON object")
    return values


def _type_error(message: str) -> ApiError:
    """msgspec says `Expected ..., got ... - at `$.path``; OpenAI wants the path in `param`."""
    missing = re.search(r"missing required field `(\w+)`(?: - at `\$\.?([^`]*)`)?", message)
    if missing:
        path = ".".join(part for part in (missing[2], missing[1]) if part)
        return ApiError(Problem.MISSING, f"{path} is required", path)
    where = re.search(r" - at `(?:key` in `)?\$\.?([^`]*)`$", message)
    path = where[1] if where else ""
    what = message[: where.start()] if where else message
    return ApiError(Problem.INVALID_TYPE, f"{path or 'body'}: {what}", path or None)


def _unknown(values: Mapping[str, Any], body_type: type[msgspec.Struct]) -> Iterator[str]:
    """Paths of what nobody here reads, also inside objects whose fields are known."""
    known = _fields(body_type)
    for name, value in values.items():
        if name not in known:
            yield name
        elif (inner := known[name]) is not None and isinstance(value, dict):
            yield from (f"{name}.{path}" for path in _unknown(value, inner))


@cache
def _fields(body_type: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct] | None]:
    """Each field with the struct that its value must be, or None where it is something else."""
    return {name: _struct_in(hint) for name, hint in get_type_hints(body_type).items()}


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    if get_origin(hint) in (Union, UnionType, Annotated):
        found = [_struct_in(part) for part in get_args(hint)]
        return next((struct for struct in found if struct is not None), None)
    is_struct = isinstance(hint, type) and issubclass(hint, msgspec.Struct)
    return hint if is_struct else None
