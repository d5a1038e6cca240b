"""`headway chat`: a conversation in the terminal, with a running server or a model in here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from headway.cli.own_flags import split_own
from headway.cli.parsing import ParsedFlags, parse_flags, print_help
from headway.cli.streaming import AnswerError, for_terminal, stream_text
from headway.flags import FlagError
from headway.server.config import ServerConfig

Message = dict[str, str]
Answer = Callable[[list[Message]], Iterator[str]]
_OWN = ("--url", "--system", "--max-tokens", "--temperature")


def main(argv: Sequence[str]) -> int:
    if "--help" in argv or "-h" in argv:
        print_help("chat", _ABOUT)
        return 0
    try:
        own, rest = split_own(argv, _OWN)
        flags = parse_flags(rest)
        taken = {"tokenizer", "chat_template"}
        refuse_others(flags, taken, is_remote="--url" in own)
        engine, server = flags.configs()
        sampling = sampling_of(own)
        if "--url" in own:
            key = server.api_key[0] if server.api_key else None
            answer = remote(own["--url"], engine.model, sampling, key)
    except ValueError as error:
        print(f"headway chat: {error}", file=sys.stderr)
        return 2
    try:
        if "--url" not in own:
            answer = local(local_settings(flags, server), sampling)
    except (ValueError, OSError) as error:
        print(f"headway chat: {error}", file=sys.stderr)
        return 1
    return converse(answer, own.get("--system"))


_ABOUT = """Talk to a model in the terminal. /clear forgets, /exit leaves, Ctrl-C stops an answer.

  --url URL             talk to a running server instead of loading a model here
  --system TEXT         the system message
  --max-tokens N        longest answer
  --temperature T       0 is greedy; 0.2 unless given"""


def refuse_others(flags: ParsedFlags, taken: Collection[str], *, is_remote: bool) -> None:
    """What would have no effect is said, not swallowed. Raises FlagError.

    `taken`: the server's flags that are for a model in here.
    """
    for field in flags.server:
        if field not in (("api_key",) if is_remote else taken):
            raise FlagError(f"{flags.names[field]} is for headway serve: leave it out")
    for field in flags.engine:
        if is_remote and field != "model":
            raise FlagError(f"{flags.names[field]} has no effect with --url: leave it out")


def converse(answer: Answer, system: str | None) -> int:
    """Read lines until /exit or end of file. Returns 1 if the last answer failed in a pipe."""
    opening: list[Message] = [{"role": "system", "content": system}] if system else []
    messages = list(opening)
    code = 0
    while (line := read_line()) is not None and line != "/exit":
        if line == "/clear":
            messages = list(opening)
        elif line:
            messages.append({"role": "user", "content": line})
            code = _reply(answer, messages)
    return 0 if sys.stdin.isatty() else code


def remote(url: str, model: str | None, sampling: dict[str, Any], key: str | None) -> Answer:
    """Stream from a server's chat endpoint. Raises ValueError for what is no URL."""
    from headway.bench.target import CHAT, target_of

    target = target_of(url)
    named = {} if model is None else {"model": model}
    return lambda messages: stream_text(
        target, CHAT, {"messages": messages, **sampling, **named}, key
    )


def local_settings(flags: ParsedFlags, server: ServerConfig) -> dict[str, Any]:
    """What `LLM` is told."""
    settings = {**flags.engine, "tokenizer": server.tokenizer}
    if server.chat_template is not None:
        settings["chat_template"] = server.chat_template
    return settings


def local(settings: dict[str, Any], sampling: dict[str, Any]) -> Answer:
    """Load the model into this process."""
    from headway.core.request import SamplingParams
    from headway.llm import LLM

    llm = LLM(**settings)
    params = SamplingParams(**{"max_tokens": None, **sampling})

    def answer(messages: list[Message]) -> Iterator[str]:
        try:
            yield from llm.stream_chat(messages, params)
        except (ValueError, RuntimeError) as error:
            raise AnswerError(str(error)) from None

    return answer


def _reply(answer: Answer, messages: list[Message]) -> int:
    """Print the answer and add it to the conversation; what an error leaves out is taken back."""
    pieces: list[str] = []
    stream = answer(messages)
    try:
        for piece in stream:
            pieces.append(piece)
            print(for_terminal(piece), end="", flush=True)
    except KeyboardInterrupt:
        print(" [stopped]", end="")
    except AnswerError as error:
        print(f"headway chat: {error}", file=sys.stderr)
        messages.pop()
        return 1
    finally:
        stream.close()  # type: ignore[attr-defined]
    print()
    messages.append({"role": "assistant", "content": "".join(pieces)})
    return 0


def read_line() -> str | None:
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        if sys.stdin.isatty():
            print()
        return None


def sampling_of(own: dict[str, str]) -> dict[str, Any]:
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
