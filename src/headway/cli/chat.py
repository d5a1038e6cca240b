"""`headway chat`: a conversation in the terminal, with a running server or a model in here."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from headway.cli.help import print_command_help
from headway.cli.talk import Ask, Form, asked_of, lines, opened, tell

Message = dict[str, str]
_OWN = ("--url", "--system", "--max-tokens", "--temperature")
_TAKEN = ("tokenizer", "chat_template")
_FORM = Form(
    path="/v1/chat/completions",
    field="messages",
    offline=lambda llm, messages, params: llm.stream_chat(messages, params),
)
_ABOUT = """Talk to a model in the terminal. /clear forgets, /exit leaves, Ctrl-C stops an answer.

  --url URL             talk to a running server instead of loading a model here
  --api-key KEY         its key; or the variable HEADWAY_API_KEY or OPENAI_API_KEY
  --system TEXT         the system message
  --max-tokens N        longest answer
  --temperature T       0 is greedy; 0.2 unless given"""


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 2 for what cannot be asked, and where the last answer failed."""
    if "--help" in argv or "-h" in argv:
        print_command_help("chat", _ABOUT, _TAKEN)
        return 0
    try:
        asked = asked_of(argv, _OWN, _TAKEN)
        ask = opened(asked, _FORM)
    except (ValueError, OSError) as error:
        print(f"headway chat: {error}", file=sys.stderr)
        return 2
    return converse(ask, asked.own.get("--system"))


def converse(ask: Ask, system: str | None) -> int:
    """Read lines until /exit or end of file. Returns 2 if the last answer failed in a pipe."""
    opening: list[Message] = [{"role": "system", "content": system}] if system else []
    messages = list(opening)
    code = 0
    for line in lines():
        if line == "/exit":
            break
        if line == "/clear":
            messages = list(opening)
        else:
            code = _reply(ask, messages, line)
    return 0 if sys.stdin.isatty() else code


def _reply(ask: Ask, messages: list[Message], line: str) -> int:
    """Answer, and add both to the conversation; a question that got none is not added."""
    question = {"role": "user", "content": line}
    answer = tell("chat", ask([*messages, question]))
    if answer is None:
        return 2
    messages += [question, {"role": "assistant", "content": answer}]
    return 0
