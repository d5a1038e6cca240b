"""What `--help` prints, folded to the width of the terminal."""

from __future__ import annotations

import itertools
import re
import shutil
import textwrap
from collections.abc import Collection, Iterator, Mapping

from headway.cli.parsing import flag_help

_MOST_COLUMNS = 100
_FLAG = re.compile(r"  (-.*?) {2,}(?=\S)")
_TEXT_BESIDE = 8  # columns, of the words below a flag in a list


def print_about(about: str) -> None:
    """Paragraphs run on, what stands beside a flag hangs below itself, commands stay as they are.

    A block of lines is one of the three by its first: indented with a dash, indented, or neither.
    """
    print("\n\n".join(_folded(block) for block in about.split("\n\n")))


def print_command_help(command: str, about: str, taken: Collection[str] | None = None) -> None:
    """Of a command that takes every flag of the engine, and those of the server that set the
    fields in `taken`: all of them unless given.
    """
    print(f"usage: headway {command} [MODEL] [flags]\n")
    print_about(about)
    names = None if taken is None else _names(taken)
    for section, flags in itertools.groupby(flag_help(), key=lambda flag: flag[0]):
        shown = [f for f in flags if names is None or section == "engine" or _name(f[1]) in names]
        if shown:
            print(f"\n{section} flags:")
        for _, usage, text in shown:
            _print_flag(usage, text)


def print_sections(sections: Mapping[str, Mapping[str, tuple[str, str]]]) -> None:
    """By title, how the value of each flag is written and what it says."""
    for title, flags in sections.items():
        print(f"\n{title} flags:")
        for name, (usage, text) in flags.items():
            _print_flag(f"{name} {usage}".rstrip(), text)


def print_fields(title: str, fields: Collection[str]) -> None:
    """The flags of the engine and the server that set these fields."""
    print(f"\n{title}:")
    names = _names(fields)
    for _, usage, text in flag_help():
        if _name(usage) in names:
            _print_flag(usage, text)


def _names(fields: Collection[str]) -> set[str]:
    return {f"--{name.replace('_', '-')}" for name in fields}


def _name(usage: str) -> str:
    return usage.split()[0].rstrip(",")


def _print_flag(usage: str, text: str) -> None:
    print(f"  {usage}")
    if text:
        print(_filled(text, " " * _TEXT_BESIDE, " " * _TEXT_BESIDE))


def _folded(block: str) -> str:
    is_flags = block.startswith("  -")
    if block.startswith("usage:") or (block.startswith(" ") and not is_flags):
        return block
    if not is_flags:
        return _filled(" ".join(block.split()))
    rows = list(_rows(block))
    beside = min(len(flag) for flag, _ in rows if flag)
    return "\n".join(_row(flag, text, beside) for flag, text in rows)


def _rows(block: str) -> Iterator[tuple[str, str]]:
    """Each flag, with the spaces up to its text, and the whole of that text."""
    flag, text = "", ""
    for line in block.splitlines():
        if found := _FLAG.match(line):
            if flag:
                yield flag, text
            flag, text = found[0], line[found.end() :]
        else:
            text += f" {line.strip()}"
    yield flag, text


def _row(flag: str, text: str, beside: int) -> str:
    """A flag that is longer than the others' stands on a line of its own."""
    if len(flag) <= beside:
        return _filled(text, flag, " " * beside)
    return f"{flag.rstrip()}\n{_filled(text, ' ' * beside, ' ' * beside)}"


def _filled(text: str, first: str = "", later: str = "") -> str:
    width = min(_MOST_COLUMNS, shutil.get_terminal_size((_MOST_COLUMNS, 24)).columns)
    return textwrap.fill(
        text,
        max(width, len(later) + 20),
        initial_indent=first,
        subsequent_indent=later,
        break_on_hyphens=False,
        break_long_words=False,
    )
