"""Jinja for templates that came with a model file: no way out, and an end to what they may use.

Jinja's own sandbox keeps a template from reaching Python. It does not keep one from looping for
hours or filling the memory, so here every loop, call and growing text is paid from a budget.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sized
from datetime import datetime
from typing import Any, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_TURNS = 1_000_000  # loop turns of one render; calls cost several
MAX_CHARS = 16 * 2**20  # of any text that a template makes
_MAX_NUMBER_BITS = 4096
_MAX_WIDTH = 9999
_TURNS_PER_CALL = 8
_TURNS_PER_MESSAGE = 1000
_CHARS_PER_ITEM = 64  # what a list's item counts for in a text's length
_CHARS_PER_TURN = 64  # work on a long text costs as much as loop turns
_PADDING_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_PADDING_FILTERS = frozenset({"batch", "center", "indent", "slice", "wordwrap"})
_WIDE_FORMAT = re.compile(r"\d{5,}|\*|\{[^{}]*\{")


class TemplateLimitError(jinja2.TemplateRuntimeError):
    """The template loops too long, or makes too much text."""


class GenerationTag(Extension):
    """`{% generation %}` marks what a model wrote, for training; here it is only a block."""

    tags = {"generation"}  # noqa: RUF012 (the type that Jinja declares)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment that chat templates are written for, with limits.

    Holds the budget of one render at a time: it belongs to one template and one thread.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationTag, loopcontrols],
            finalize=_checked,
        )
        self._turns_left = MAX_TURNS
        self.globals.pop("lipsum")
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda pattern: now().strftime(pattern)
        self.filters["tojson"] = _to_json
        for name, one_filter in list(self.filters.items()):
            self.filters[name] = self._paid_filter(name, one_filter)

    def start_render(self, num_messages: int) -> None:
        """Fill the budget, larger for a longer chat: its length is the client's own doing."""
        self._turns_left = MAX_TURNS + _TURNS_PER_MESSAGE * num_messages

    def paid_loop(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items, each for one turn of the budget."""
        for item in items:
            self._pay(1)
            yield item

    def paid_concat(self, *parts: object) -> str:
        """The texts of `parts` joined: Jinja's `~`."""
        texts = [str(_checked(part)) for part in parts]
        _check_size(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        match operator:
            case "*":
                _check_product(left, right)
            case "**":
                _check_power(left, right)
            case "+":
                _check_size(_num_items(left) + _num_items(right))
            case "%" if isinstance(left, str):
                _check_format(left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        # The sandbox wraps str.format, and the wrapper has no owner of its own.
        owner = getattr(getattr(obj, "__wrapped__", obj), "__self__", None)
        self._pay(_TURNS_PER_CALL + _num_items(owner) // _CHARS_PER_TURN)
        if isinstance(owner, str):
            _check_text_call(obj.__name__, owner, (*args, *kwargs.values()))
        return _checked(super().call(context, obj, *args, **kwargs))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        _MakeItPay().visit(template)
        return template

    def _pay(self, turns: int) -> None:
        self._turns_left -= turns
        if self._turns_left < 0:
            raise TemplateLimitError("it does more than a million turns of loops and calls")

    def _paid_filter(self, name: str, one_filter: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(one_filter)
        def paid(*args: Any, **kwargs: Any) -> Any:
            values = [_checked(value) for value in (*args, *kwargs.values())]
            self._pay(1 + sum(map(_num_items, values)) // _CHARS_PER_TURN)
            _check_filter(name, values)
            return _checked(one_filter(*args, **kwargs))

        return paid


class _MakeItPay(NodeTransformer):
    """Sends what Jinja gives no hook for, `for` and `~`, through the sandbox's budget."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 (Jinja's naming)
        self.generic_visit(node)
        items = cast("nodes.Expr", node.iter)
        node.iter = _call_sandbox("paid_loop", [items], node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call_sandbox("paid_concat", node.nodes, node.lineno)


def _call_sandbox(method: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
    call = nodes.Call(nodes.EnvironmentAttribute(method), arguments, [], None, None)
    call.set_lineno(line, override=True)
    return call


def _raise_exception(message: object) -> None:
    raise jinja2.TemplateError(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own tojson escapes for HTML, which would change what the model reads.
    if isinstance(indent, int) and indent > _MAX_WIDTH:
        raise TemplateLimitError(f"it indents by {indent}")
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _num_items(value: object) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple | dict | range) else 0


def _check_size(num_chars: int) -> None:
    if num_chars > MAX_CHARS:
        raise TemplateLimitError(f"it makes a text or list of more than {MAX_CHARS} items")


def _checked(value: Any) -> Any:
    """`value`, unless it would be too long as text: lists may hold the same list many times."""
    size, todo = 0, [value]
    while todo:
        item = todo.pop()
        size += len(item) if isinstance(item, str) else _CHARS_PER_ITEM
        _check_size(size)
        if isinstance(item, list | tuple):
            todo.extend(item)
        elif isinstance(item, dict):
            todo.extend((*item.keys(), *item.values()))
    return value


def _check_product(left: object, right: object) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_number(left.bit_length() + right.bit_length())
    elif isinstance(left, int):
        _check_size(left * _num_items(right))
    elif isinstance(right, int):
        _check_size(right * _num_items(left))


def _check_power(base: object, exponent: object) -> None:
    if isinstance(base, int) and isinstance(exponent, int):
        _check_number(base.bit_length() * max(exponent, 0))


def _check_number(num_bits: int) -> None:
    if num_bits > _MAX_NUMBER_BITS:
        raise TemplateLimitError(f"it makes a number of more than {_MAX_NUMBER_BITS} bits")


def _check_format(pattern: str, values: object) -> None:
    if _WIDE_FORMAT.search(pattern):
        raise TemplateLimitError("it formats to a width of five digits, or one from a variable")
    _checked(values)


def _check_width(values: Iterable[object]) -> None:
    if any(isinstance(value, int) and value > _MAX_WIDTH for value in values):
        raise TemplateLimitError(f"it pads or cuts by more than {_MAX_WIDTH}")


def _check_replace(text: object, old: object, new: object) -> None:
    text, old, new = str(text), str(old), str(new)
    _check_size(text.count(old) * len(new))


def _check_join(separator: object, items: object) -> None:
    if isinstance(items, Sized):
        _check_size(_num_items(separator) * len(items))


def _check_text_call(method: str, owner: str, values: tuple[Any, ...]) -> None:
    if method in _PADDING_METHODS:
        _check_width(values)
    elif method in ("format", "format_map"):
        _check_format(owner, list(values))
    elif method == "replace" and len(values) >= 2:
        _check_replace(owner, values[0], values[1])
    elif method == "join" and values:
        _check_join(owner, values[0])
    elif method == "translate":
        raise TemplateLimitError("it calls translate, which is not allowed")


def _check_filter(name: str, values: list[Any]) -> None:
    if name in _PADDING_FILTERS:
        _check_width(values)
    elif name == "format" and isinstance(values[0], str):
        _check_format(values[0], values[1:])
    elif name == "replace" and len(values) >= 4:
        _check_replace(*values[1:4])
    elif name == "join" and len(values) >= 3:
        _check_join(values[2], values[1])
