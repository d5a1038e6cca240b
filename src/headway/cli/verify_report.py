"""What `headway verify` found, for people."""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headway.bench.http1 import printable
from headway.bench.verify.client import Form, Sampling
from headway.bench.verify.prompts import Prompt
from headway.cli.status_line import StatusLine
from headway.cli.tables import number, print_table
from headway.insight.verify.difference import Difference, Gap
from headway.insight.verify.report import ROUNDING_NATS, Comparison, Level, Report

_MAX_REASONS = 5
_MARGIN = 14  # what stands before a text in the account of a difference
_MAX_TEXT = 40


@dataclass(frozen=True, slots=True)
class Facts:
    """Whom was asked what."""

    url: str
    model: str
    form: Form
    sampling: Sampling
    num_rounds: int

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def heading(self, report: Report) -> str:
        drawn = f"temperature {self.sampling.temperature:g}"
        if self.sampling.temperature > 0:
            drawn += f", seeds from {self.sampling.seed}"
        return (
            f"{self.url}: {printable(self.model)}, {self.form.endpoint}, {report.num_prompts} "
            f"prompts, at most {self.sampling.max_tokens} tokens, {drawn}, "
            f"rounds: {self.num_rounds}\n"
            f"Compared with the first answer alone: {self._compared(report)}."
        )

    def _compared(self, report: Report) -> str:
        if report.basis == "text":
            return "the text and why it ended (the server told no tokens)"
        what = "token ids" if report.basis == "token ids" else "tokens by their texts"
        return f"{what}, the text, why it ended, and the logprobs"


class Progress:
    """One line on a terminal that says how far it is."""

    def __init__(self, num_requests: int) -> None:
        self._num_requests = num_requests
        self._num_ended = 0
        self._what = ""
        self._line = StatusLine()

    def begin(self, concurrency: int, round_index: int) -> None:
        self._what = f"round {round_index + 1}, {concurrency} in flight"
        self._say()

    def advance(self) -> None:
        self._num_ended += 1
        self._say()

    def end(self) -> None:
        self._line.clear()

    def _say(self) -> None:
        self._line.say(f"{self._num_ended} of {self._num_requests} answers; {self._what}")


def print_report(facts: Facts, report: Report, prompts: Sequence[Prompt], num_shown: int) -> None:
    print(facts.heading(report))
    print()
    print_table(_HEADER, [_row(level) for level in report.levels])
    for each in _one_for_each_prompt(report.different)[:num_shown]:
        assert each.difference is not None
        print()
        print("\n".join(_account(each, each.difference, prompts[each.prompt_index])))
    print()
    print("\n".join(_verdict(report)))


_HEADER = ("in flight", "compared", "differ", "other logprobs", "first at token", "drift", "failed")


def _row(level: Level) -> tuple[str, ...]:
    first, drift = level.first_token_index, level.largest_drift
    return (
        str(level.concurrency),
        str(len(level.comparisons)),
        str(len(level.different)),
        str(level.num_drifted),
        "-" if first is None else str(first),
        "-" if drift is None else number(drift),
        str(level.num_failed),
    )


def _one_for_each_prompt(different: Sequence[Comparison]) -> list[Comparison]:
    first: dict[int, Comparison] = {}
    for each in different:
        first.setdefault(each.prompt_index, each)
    return list(first.values())


# ---- One difference ----


def _account(each: Comparison, difference: Difference, prompt: Prompt) -> Iterator[str]:
    room = min(_MAX_TEXT, shutil.get_terminal_size().columns - _MARGIN - 2)
    where = f"{each.concurrency} in flight, round {each.round_index + 1}"
    yield f"prompt {each.prompt_index + 1} {_quoted(prompt.title, room)}, {where}:"
    yield f"  {_place(difference)}, after {_quoted_end(difference.shared, room)}"
    yield f"  {'alone':<12}{_next(difference.alone, difference.alone_finish, room)}"
    beside = f"{each.concurrency} in flight" if each.concurrency > 1 else "again"
    yield f"  {beside:<12}{_next(difference.loaded, difference.loaded_finish, room)}"
    if difference.alone_gap and difference.loaded_gap and difference.swing:
        yield (
            f"  the first token was ahead by {_nats(difference.alone_gap)} alone, the other by "
            f"{_nats(difference.loaded_gap)} then: a swing of {_nats(difference.swing)}"
        )


def _place(difference: Difference) -> str:
    places = []
    if difference.token_index is not None:
        places.append(f"token {difference.token_index}")
    if difference.char_index is not None:
        places.append(f"character {difference.char_index}")
    return f"parts at {' / '.join(places)}" if places else "ends for another reason"


def _next(text: str, finish: str | None, room: int) -> str:
    return _quoted(text, room) if text else f"ends ({printable(finish or 'no reason told')})"


def _nats(gap: Gap) -> str:
    return f"{'at least ' if gap.is_at_least else ''}{number(gap.nats)}"


def _quoted(text: str, room: int) -> str:
    return repr(text if len(text) <= room else text[: room - 1] + "…")


def _quoted_end(text: str, room: int) -> str:
    return repr(text if len(text) <= room else "…" + text[1 - room :])


# ---- All of it ----


def _verdict(report: Report) -> Iterator[str]:
    num_compared = len(list(report.comparisons))
    if report.different:
        num_prompts = len({each.prompt_index for each in report.different})
        yield (
            f"{len(report.different)} of {num_compared} answers differ from the same prompt's "
            f"alone, of {num_prompts} of {report.num_prompts} prompts."
        )
        yield from _causes(report)
    elif num_compared:
        yield f"All {num_compared} answers are those that the same prompt got alone."
    if report.num_drifted:
        yield f"{report.num_drifted} answers are the same, but with other logprobs."
    yield from _shortfalls(report)


def _causes(report: Report) -> Iterator[str]:
    if report.unsteady:
        listed = ", ".join(str(index + 1) for index in report.unsteady)
        yield f"Not even alone does the server repeat itself, on prompts {listed}."
    if report.beyond_rounding:
        yield (
            f"At {len(report.beyond_rounding)} of the differences the two tokens moved by more "
            f"than {ROUNDING_NATS:g} against each other: rounding hardly explains that."
        )


def _shortfalls(report: Report) -> Iterator[str]:
    if report.failures:
        yield f"{len(report.failures)} requests failed, which says nothing about differences:"
        yield from _reasons([failure.reason for failure in report.failures])
    if report.stranger_failures:
        yield (
            f"{len(report.stranger_failures)} requests of strangers failed: there were not always "
            "as many in flight as asked for:"
        )
        yield from _reasons(report.stranger_failures)
    if report.without_reference:
        yield f"{len(report.without_reference)} prompts got no answer alone and were not compared."


def _reasons(reasons: Sequence[str]) -> Iterator[str]:
    for reason, count in Counter(reasons).most_common(_MAX_REASONS):
        yield f"  {count} x {reason}"
