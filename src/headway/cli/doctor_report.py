"""A diagnosis for people: the wall, its figures, what to change, what else is wrong."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headway.insight.doctor.findings import Change, Diagnosis, Finding
    from headway.insight.doctor.readings import Observation

_WIDEST = 120  # columns: longer lines are hard to read
_STYLES = {"healthy": "green", "warning": "yellow", "critical": "bold red"}


class _Line(NamedTuple):
    text: str
    indent: int = 0
    style: str = ""


def print_report(observation: Observation, diagnosis: Diagnosis) -> None:
    """Wrapped to the terminal's width; in colours on a terminal."""
    from rich.console import Console
    from rich.text import Text

    from headway.bench.http1 import printable

    console = Console(highlight=False, soft_wrap=True)
    width = min(_WIDEST, shutil.get_terminal_size((100, 24)).columns)
    for line in _lines(observation, diagnosis):
        prefix = " " * line.indent
        wrapped = textwrap.wrap(
            printable(line.text),  # names come from servers and files
            width,
            initial_indent=prefix,
            subsequent_indent=prefix + "  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for part in wrapped or [""]:
            console.print(Text(part, style=line.style))


def _lines(observation: Observation, diagnosis: Diagnosis) -> Iterator[_Line]:
    yield _Line(f"{observation.server or 'A server'}: {observation.source}")
    yield _Line("")
    severity = diagnosis.severity.name.lower()
    confidence = f" ({diagnosis.confidence} confidence)"
    yield _Line(diagnosis.title + confidence, style=_STYLES[severity])
    yield from (_Line(line, 2) for line in diagnosis.evidence)
    yield from _headed("What to change", list(_change_lines(diagnosis.changes)))
    yield from _headed("What changes nothing now", [_Line(line, 2) for line in diagnosis.inert])
    for finding in diagnosis.findings:
        yield _Line("")
        yield from _finding_lines(finding)
    yield from _headed("To know", [_Line(note, 2) for note in diagnosis.notes])
    yield _Line("")
    yield _Line(_summary(diagnosis), style=_STYLES[diagnosis.worst.name.lower()])


def _headed(heading: str, lines: Sequence[_Line]) -> Iterator[_Line]:
    if lines:
        yield _Line("")
        yield _Line(f"{heading}:", style="bold")
        yield from lines


def _change_lines(changes: Sequence[Change]) -> Iterator[_Line]:
    for change in changes:
        before = f" from {change.before}" if change.before else ""
        yield _Line(f"{change.what}{before} to {change.after}", 2)
        basis = f" ({change.basis})" if change.basis else ""
        yield _Line(f"would bring: {change.gain}{basis}", 4)


def _finding_lines(finding: Finding) -> Iterator[_Line]:
    word = finding.severity.name.lower()
    label = "note" if word == "healthy" else word
    subject = f" [{finding.subject}]" if finding.subject else ""
    yield _Line(
        f"{label}: {finding.title}{subject} ({finding.confidence} confidence)", style=_STYLES[word]
    )
    yield from (_Line(line, 2) for line in finding.evidence)
    if finding.changes:
        yield from _change_lines(finding.changes)


def _summary(diagnosis: Diagnosis) -> str:
    num_others = sum(finding.severity > 0 for finding in diagnosis.findings)
    also = "" if not num_others else f", and {num_others} more found"
    return f"{diagnosis.worst.name.lower()}{also}"
