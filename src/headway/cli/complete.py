"""`headway complete`: how a text goes on, by a running server or a model in here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headway.cli.chat import local_settings, read_line, refuse_others, sampling_of
from headway.cli.own_flags import split_own
from headway.cli.parsing import parse_flags, print_help
from headway.cli.streaming import AnswerError, for_terminal, stream_text

Complete = Callable[[str], Iterator[str]]
_OWN = ("--url", "--quick", "--max-tokens", "--temperature")
_ABOUT = """Complete a text, or each line that is typed or comes through a pipe. Ctrl-C stops one.

  --quick TEXT          complete this text and end
  --url URL             ask a running server instead of loading a model here
  --max-tokens N        longest completion; 64 unless given
  --temperature T       0 is greedy; 0.2 unless given"""
_MAX_TOKENS = "64"


def main(argv: Sequence[str]) -> int:
    if "--help" in argv or "-h" in argv:
        print_help("complete", _ABOUT)
        return 0
    try:
        own, rest = split_own(argv, _OWN)
        flags = parse_flags(rest)
        refuse_others(flags, {"tokenizer"}, is_remote="--url" in own)
        engine, server = flags.configs()
        sampling = sampling_of({"--max-tokens": _MAX_TOKENS, **own})
        if "--url" in own:
            key = server.api_key[0] if server.api_key else None
            complete = remote(own["--url"], engine.model, sampling, key)
    except ValueError as error:
        print(f"headway complete: {error}", file=sys.stderr)
        return 2
    try:
        if "--url" not in own:
            complete = local(local_settings(flags, server), sampling)
    except (ValueError, OSError) as error:
        print(f"headway complete: {error}", file=sys.stderr)
        return 1
    if "--quick" in own:
        return _print(complete, own["--quick"])
    return _complete_lines(complete)


def remote(url: str, model: str | None, sampling: dict[str, Any], key: str | None) -> Complete:
    """Stream from a server's completions endpoint. Raises ValueError for what is no URL."""
    from headway.bench.target import COMPLETIONS, target_of

    target = target_of(url)
    named = {} if model is None else {"model": model}
    return lambda prompt: stream_text(
        target, COMPLETIONS, {"prompt": prompt, **sampling, **named}, key
    )


def local(settings: dict[str, Any], sampling: dict[str, Any]) -> Complete:
    """Load the model into this process."""
    from headway.core.request import SamplingParams
    from headway.llm import LLM

    llm = LLM(**settings)
    params = SamplingParams(**sampling)

    def complete(prompt: str) -> Iterator[str]:
        try:
            yield from llm.stream(prompt, params)
        except (ValueError, RuntimeError) as error:
            raise AnswerError(str(error)) from None

    return complete


def _complete_lines(complete: Complete) -> int:
    """Until the end of file. Returns 1 if the last one failed in a pipe."""
    code = 0
    while (line := read_line()) is not None:
        if line:
            code = _print(complete, line)
    return 0 if sys.stdin.isatty() else code


def _print(complete: Complete, prompt: str) -> int:
    stream = complete(prompt)
    try:
        for piece in stream:
            print(for_terminal(piece), end="", flush=True)
    except KeyboardInterrupt:
        print(" [stopped]", end="")
    except AnswerError as error:
        print(f"headway complete: {error}", file=sys.stderr)
        return 1
    finally:
        stream.close()  # type: ignore[attr-defined]
    print()
    return 0
