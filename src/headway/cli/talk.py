"""What `headway chat` and `headway complete` share: whom they ask, and how the answer is told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.cli.own_flags import api_key, split_own
from headway.cli.parsing import ParsedFlags, parse_flags
from headway.cli.streaming import AnswerError, for_terminal, stream_text
from headway.flags import FlagError

if TYPE_CHECKING:
    from headway.bench.target import Target
    from headway.core.request import SamplingParams
    from headway.llm import LLM

Ask = Callable[[Any], Iterator[str]]  # a text, or the messages of a conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a command asks: `field` of a body for `path`, or `offline` of a model in here."""

    path: str
    field: str
    offline: Callable[[LLM, Any, SamplingParams], Iterator[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command line, checked. `target`: a running server; without it `settings` are `LLM`'s."""

    own: Mapping[str, str]
    sampling: Mapping[str, Any]
    target: Target | None
    model: str | None
    key: str | None
    settings: Mapping[str, Any]


def asked_of(
    argv: Sequence[str], own_flags: Collection[str], taken: Collection[str], **usual: str
) -> Asked:
    """Raises ValueError with a sentence.

    `taken`: the server's flags that are for a model in here. `usual`: values of the command's own
    flags where the line has none.
    """
    from headway.bench.target import target_of

    given, rest = split_own(argv, own_flags)
    own = {f"--{name.replace('_', '-')}": value for name, value in usual.items()} | given
    flags = parse_flags(rest)
    _refuse_others(flags, taken, is_remote="--url" in own)
    engine, server = flags.configs()
    local = {name: value for name in taken if (value := getattr(server, name)) is not None}
    return Asked(
        own=own,
        sampling=_sampling_of(own),
        target=target_of(own["--url"]) if "--url" in own else None,
        model=engine.model,
        key=api_key(server.api_key[0] if server.api_key else None),
        settings={**flags.engine, **local},
    )


def opened(asked: Asked, form: Form) -> Ask:
    """Raises ValueError or OSError, with a sentence, where there is no server or no model."""
    return _local(asked, form) if asked.target is None else _remote(asked, asked.target, form)


def _remote(asked: Asked, target: Target, form: Form) -> Ask:
    from headway.bench.server import get

    get(target, "/v1/models", {})  # whatever it says: somebody is there
    named = {} if asked.model is None else {"model": asked.model}
    return lambda question: stream_text(
        target, form.path, {form.field: question, **asked.sampling, **named}, asked.key
    )


def _local(asked: Asked, form: Form) -> Ask:
    """Load the model into this process."""
    from headway.core.request import SamplingParams
    from headway.llm import LLM

    llm = LLM(**asked.settings)
    params = SamplingParams(**{"max_tokens": None, **asked.sampling})

    def ask(question: Any) -> Iterator[str]:
        try:
            yield from form.offline(llm, question, params)
        except (ValueError, RuntimeError) as error:
            raise AnswerError(str(error)) from None

    return ask


def tell(command: str, stream: Iterator[str]) -> str | None:
    """Print an answer as it comes. The whole of it; None, with the reason printed, if it failed."""
    pieces: list[str] = []
    try:
        for piece in stream:
            pieces.append(piece)
            print(for_terminal(piece), end="", flush=True)
    except KeyboardInterrupt:
        print(" [stopped]", end="")
    except AnswerError as error:
        print(f"headway {command}: {error}", file=sys.stderr)
        return None
    finally:
        stream.close()  # type: ignore[attr-defined]
    print()
    return "".join(pieces)


def lines() -> Iterator[str]:
    """What is typed, or comes through a pipe, without empty lines and up to its end."""
    while (line := _read_line()) is not None:
        if line:
            yield line


def _read_line() -> str | None:
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        if sys.stdin.isatty():
            print()
        return None


def _refuse_others(flags: ParsedFlags, taken: Collection[str], *, is_remote: bool) -> None:
    """What would have no effect is said, not swallowed. Raises FlagError."""
    for field in flags.server:
        if field not in (("api_key",) if is_remote else taken):
            raise FlagError(f"{flags.names[field]} is for headway serve: leave it out")
    for field in flags.engine:
        if is_remote and field != "model":
            raise FlagError(f"{flags.names[field]} has no effect with --url: leave it out")


def _sampling_of(own: Mapping[str, str]) -> dict[str, Any]:
    """Raises FlagError where a value is no number or out of range."""
    from headway.core.request import SamplingParams

    sampling: dict[str, Any] = {"temperature": 0.2}  # small models wander at 1
    try:
        if "--max-tokens" in own:
            sampling["max_tokens"] = int(own["--max-tokens"])
        if "--temperature" in own:
            sampling["temperature"] = float(own["--temperature"])
        SamplingParams(**sampling)
    except ValueError as error:
        raise FlagError(str(error)) from None
    return sampling
