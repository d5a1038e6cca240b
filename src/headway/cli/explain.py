"""`headway explain`: why requests took as long as they did, live or recorded."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headway.cli.help import print_about
from headway.cli.own_flags import api_key, split_repeated
from headway.flags import FlagError

if TYPE_CHECKING:
    from headway.insight.explain.report import Explanation, Glance

_ABOUT = """\
usage: headway explain ID [flags]
       headway explain --slowest N [flags]

Where the time of a request went, and because of whom. ID is the id of an answer, or the one that
its client gave it; without it the slowest requests are listed.

  --slowest N       so many of them, up to 100; 10 unless given
  --url URL         the server to ask; http://127.0.0.1:8000 unless given
  --api-key KEY     its key; or the variable HEADWAY_API_KEY or OPENAI_API_KEY
  --recording FILE  no server but a recording, of headway serve --record or simulate --record
  --json            what there is to know, as JSON"""
_URL = "http://127.0.0.1:8000"
_MOST_LISTED = 100
_TAKEN = ("--slowest", "--url", "--api-key", "--recording")


class Question(NamedTuple):
    """`name` of a request, or None for the slowest."""

    name: str | None
    num_slowest: int


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 2 for what cannot be explained."""
    if "--help" in argv or "-h" in argv:
        print_about(_ABOUT)
        return 0
    try:
        given, words = split_repeated(argv, _TAKEN, ("--json",))
        own = {name: values[-1] for name, values in given.items()}
        question = _question(words, own)
        found = _answer(question, own)
        _show(found, is_json="--json" in own)
    except ValueError as error:  # a FlagError is one
        print(f"headway explain: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _question(words: Sequence[str], own: Mapping[str, str]) -> Question:
    for word in words:
        if word.startswith("-"):
            raise FlagError(f"there is no flag {word}: see headway explain --help")
    if len(words) > 1:
        raise FlagError(f"one request at a time: {words[0]!r} or {words[1]!r}?")
    if words and "--slowest" in own:
        raise FlagError("an id and --slowest ask for different things: give one of them")
    if "--recording" in own and {"--url", "--api-key"} & set(own):
        raise FlagError("--recording asks no server: leave --url and --api-key out")
    given = own.get("--slowest", "10")
    if not (given.isascii() and given.isdigit() and 1 <= int(given[:9]) <= _MOST_LISTED):
        raise FlagError(f"--slowest must be from 1 to {_MOST_LISTED}, got {given!r}")
    return Question(words[0] if words else None, int(given))


def _answer(question: Question, own: Mapping[str, str]) -> Explanation | list[Glance]:
    if "--recording" in own:
        from headway.cli.explained_recording import explain_recording

        return explain_recording(own["--recording"], question.name, question.num_slowest)
    from headway.cli.explained_server import ask_server

    key = api_key(own.get("--api-key"))
    return ask_server(own.get("--url", _URL), key, question.name, question.num_slowest)


def _show(found: Explanation | list[Glance], *, is_json: bool) -> None:
    if is_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
        return
    from headway.cli.explain_view import print_explanation, print_glances

    print_glances(found) if isinstance(found, list) else print_explanation(found)
