"""`headway complete`: how a text goes on, by a running server or a model in here."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from headway.cli.help import print_command_help
from headway.cli.talk import Ask, Form, asked_of, lines, opened, tell

_OWN = ("--url", "--quick", "--max-tokens", "--temperature")
_TAKEN = ("tokenizer",)
_FORM = Form(
    path="/v1/completions",
    field="prompt",
    offline=lambda llm, prompt, params: llm.stream(prompt, params),
)
_ABOUT = """Complete a text, or each line that is typed or comes through a pipe. Ctrl-C stops one.

  --quick TEXT          complete this text and end
  --url URL             ask a running server instead of loading a model here
  --api-key KEY         its key; or the variable HEADWAY_API_KEY or OPENAI_API_KEY
  --max-tokens N        longest completion; 64 unless given
  --temperature T       0 is greedy; 0.2 unless given"""


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 2 for what cannot be asked, and where the last text got no answer."""
    if "--help" in argv or "-h" in argv:
        print_command_help("complete", _ABOUT, _TAKEN)
        return 0
    try:
        asked = asked_of(argv, _OWN, _TAKEN, max_tokens="64")
        ask = opened(asked, _FORM)
    except (ValueError, OSError) as error:
        print(f"headway complete: {error}", file=sys.stderr)
        return 2
    if "--quick" in asked.own:
        return _complete(ask, asked.own["--quick"])
    return _complete_lines(ask)


def _complete_lines(ask: Ask) -> int:
    """Until the end of file. Returns 2 if the last one failed in a pipe."""
    code = 0
    for line in lines():
        code = _complete(ask, line)
    return 0 if sys.stdin.isatty() else code


def _complete(ask: Ask, prompt: str) -> int:
    return 2 if tell("complete", ask(prompt)) is None else 0
