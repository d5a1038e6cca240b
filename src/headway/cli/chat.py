"""`headway chat`: a conversation in the terminal, with a running server or a model in here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headway.cli.own_flags import split_own
from headway.cli.parsing import ParsedFlags, parse_flags, print_help
from headway.flags import FlagError

Message = dict[str, str]
Answer = Callable[[list[Message]], Iterator[str]]
_OWN = ("--url", "--system", "--max-tokens", "--temperature")


class ChatError(Exception):
    """The answer cannot go on; the message is one sentence."""


def main(argv: Sequence[str]) -> int:
    if "--help" in argv or "-h" in argv:
        print_help("chat", _ABOUT)
        return 0
    try:
        own, rest = split_own(argv, _OWN)
        flags = parse_flags(rest)
        _refuse_others(flags, is_remote="--url" in own)
        engine, server = flags.configs()
        sampling = _sampling(own)
    except FlagError as error:
        print(f"headway chat: {error}", file=sys.stderr)
        return 2
    try:
        if "--url" in own:
            key = server.api_key[0] if server.api_key else None
            answer = remote(own["--url"], engine.model, sampling, key)
        else:
            settings = {**flags.engine, "tokenizer": server.tokenizer}
            if server.chat_template is not None:
                settings["chat_template"] = server.chat_template
            answer = local(settings, sampling)
    except (ValueError, OSError) as error:
        print(f"headway chat: {error}", file=sys.stderr)
        return 1
    return converse(answer, own.get("--system"))


_ABOUT = """Talk to a model in the terminal. /clear forgets, /exit leaves, Ctrl-C stops an answer.

  --url URL             talk to a running server instead of loading a model here
  --system TEXT         the system message
  --max-tokens N        longest answer
  --temperature T       0 is greedy; 0.2 unless given"""


def _refuse_others(flags: ParsedFlags, *, is_remote: bool) -> None:
    """What would have no effect is said, not swallowed. Raises FlagError."""
    taken = {"api_key"} if is_remote else {"tokenizer", "chat_template"}
    for field in flags.server:
        if field not in taken:
            raise FlagError(f"{flags.names[field]} is for headway serve: leave it out")
    for field in flags.engine:
        if is_remote and field != "model":
            raise FlagError(f"{flags.names[field]} has no effect with --url: leave it out")


def converse(answer: Answer, system: str | None) -> int:
    """Read lines until /exit or end of file. Returns 1 if the last answer failed in a pipe."""
    opening: list[Message] = [{"role": "system", "content": system}] if system else []
    messages = list(opening)
    code = 0
    while (line := _read_line()) is not None and line != "/exit":
        if line == "/clear":
            messages = list(opening)
        elif line:
            messages.append({"role": "user", "content": line})
            code = _reply(answer, messages)
    return 0 if sys.stdin.isatty() else code


def remote(url: str, model: str | None, sampling: dict[str, Any], key: str | None) -> Answer:
    """Stream from a server's chat endpoint."""
    import httpx

    headers = {"authorization": f"Bearer {key}"} if key else {}
    base = url.rstrip("/").removesuffix("/v1")

    def answer(messages: list[Message]) -> Iterator[str]:
        body = {"messages": messages, "stream": True, **sampling}
        if model is not None:
            body["model"] = model
        endpoint = f"{base}/v1/chat/completions"
        try:
            with httpx.stream("POST", endpoint, json=body, headers=headers, timeout=None) as reply:
                if reply.status_code != 200:
                    raise ChatError(_error_text(reply.read()))
                yield from _texts(reply.iter_lines())
        except httpx.HTTPError as error:
            raise ChatError(f"no answer from {base}: {error}") from None

    return answer


def local(settings: dict[str, Any], sampling: dict[str, Any]) -> Answer:
    """Load the model into this process."""
    from headway.core.request import SamplingParams
    from headway.llm import LLM

    llm = LLM(**settings)
    params = SamplingParams(**{"max_tokens": None, **sampling})

    def answer(messages: list[Message]) -> Iterator[str]:
        try:
            yield from llm.stream_chat(messages, params)
        except ValueError as error:
            raise ChatError(str(error)) from None

    return answer


def _reply(answer: Answer, messages: list[Message]) -> int:
    """Print the answer and add it to the conversation; what an error leaves out is taken back."""
    pieces: list[str] = []
    stream = answer(messages)
    try:
        for piece in stream:
            pieces.append(piece)
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        print(" [stopped]", end="")
    except ChatError as error:
        print(f"headway chat: {error}", file=sys.stderr)
        messages.pop()
        return 1
    finally:
        stream.close()  # type: ignore[attr-defined]
    print()
    messages.append({"role": "assistant", "content": "".join(pieces)})
    return 0


def _read_line() -> str | None:
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        if sys.stdin.isatty():
            print()
        return None


def _texts(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        payload = line.removeprefix("data: ")
        if payload == line or payload == "[DONE]":
            continue
        chunk = json.loads(payload)
        if "error" in chunk:
            raise ChatError(chunk["error"]["message"])
        for choice in chunk["choices"]:
            yield choice["delta"].get("content") or ""


def _error_text(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server said {body[:200].decode(errors='replace')!r}"


def _sampling(own: dict[str, str]) -> dict[str, Any]:
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
