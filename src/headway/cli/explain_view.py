"""Explanations on a terminal: a picture of the time, and who is to blame."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from headway.insight.explain.report import (
    DECODE,
    PARTS,
    STALL,
    Explanation,
    Glance,
    Holder,
    Segment,
    SequenceExplanation,
    Wait,
)
from headway.insight.explain.verdict import WALLS
from headway.insight.figures import counted, nanoseconds

_STYLES = {
    "queue": "yellow",
    "prefill": "cyan",
    "decode": "green",
    "stall": "red",
    "preempted": "magenta",
    "recompute": "magenta",
    "delivery": "blue",
}
_NAME_WIDTH = 28  # of a part, with its time and share
_LEAST_WIDTH, _MOST_WIDTH = 60, 200
_MOST_NAMED = 5


def print_explanation(found: Explanation) -> None:
    """Of the sequence that the request's own line is of; the others in a line each."""
    console = _console()
    same = (s for s in found.sequences if s.parts_ns == found.parts_ns)
    sequence = next(same, found.sequences[0])
    console.print(_head(found))
    width = _width(console)
    for note in _of_several(found, sequence):
        console.print(_wrapped(note, width))
    console.print(Text(_wrapped(_plain(found.verdict), width), style="bold"))
    console.print()
    for line in _picture(sequence, width):
        console.print(line, no_wrap=True, crop=True)
    console.print()
    lines = [*_details(sequence)]
    lines += [_one_line(other) for other in found.sequences if other is not sequence]
    for text in lines:
        left = " " * (len(text) - len(text.lstrip()))
        console.print(_wrapped(text.lstrip(), width, left))


def print_glances(found: Sequence[Glance]) -> None:
    """Two lines each: its name, and why."""
    console = _console()
    if not found:
        console.print("no request is remembered yet")
    for place, row in enumerate(found, 1):
        head = Text(f"{place:3}  ")
        head.append(_plain(row.request_id), style="bold")
        head.append(f"  {_plain(row.status)}  {_plain(row.cause)}")
        console.print(head)
        console.print(_wrapped(_plain(row.verdict), _width(console), " " * 5))


def _console() -> Console:
    return Console(highlight=False, markup=False, emoji=False)


def _width(console: Console) -> int:
    return max(_LEAST_WIDTH, min(console.width, _MOST_WIDTH))


def _head(found: Explanation) -> Text:
    head = Text(_plain(found.request_id), style="bold")
    tenant = f", tenant {_plain(found.tenant)}" if found.tenant else ""
    words = (
        f"  {_plain(found.status)}, {found.prompt_tokens:,} tokens in, {found.output_tokens:,} out"
    )
    head.append(words + tenant, style="not bold")
    return head


# ---- The picture ----


def _picture(sequence: SequenceExplanation, width: int) -> Iterator[Text]:
    """A row for each part: how long, which share, and when."""
    whole_ns, room = max(1, sequence.e2e_ns), width - _NAME_WIDTH
    for part in PARTS:
        ns = sequence.parts_ns.get(part, 0)
        if not ns:
            continue
        row = Text(f"{part:<10}{nanoseconds(ns):>9}{ns / whole_ns:>7.1%}  ")
        row.append(_bar(part, sequence.segments, whole_ns, room), style=_STYLES[part])
        yield row
    middle, end = nanoseconds(whole_ns // 2), nanoseconds(whole_ns)
    scale = f"0{middle:^{max(1, room - 2 * len(end))}}".ljust(room - len(end)) + end
    yield Text(f"{'':<{_NAME_WIDTH}}{scale}", style="dim")


def _bar(part: str, segments: Sequence[Segment], whole_ns: int, room: int) -> str:
    """Stalls are somewhere within the decodes: drawn light."""
    full, light = ("█", "░") if _can_draw() else ("#", ".")
    wanted, mark = (DECODE, light) if part == STALL else (part, full)
    cells = [" "] * room
    for segment in segments:
        if segment.part == wanted:
            first = min(room - 1, segment.start_ns * room // whole_ns)
            last = (segment.start_ns + segment.ns) * room // whole_ns
            for place in range(max(0, first), min(room, max(last, first + 1))):
                cells[place] = mark
    return "".join(cells).rstrip()


def _can_draw() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


# ---- The details ----


def _details(sequence: SequenceExplanation) -> Iterator[str]:
    for wait in sequence.waits:
        yield f"waited {nanoseconds(wait.ns)} for {_what(wait)}"
    prefill = sequence.prefill
    if prefill.computed_tokens or prefill.cached_tokens:
        yield (
            f"prompt: {prefill.computed_tokens:,} tokens computed in {_steps(prefill.steps)}, "
            f"{prefill.cached_tokens:,} from the prefix cache; {nanoseconds(prefill.computing_ns)} "
            f"in its steps, {nanoseconds(prefill.between_ns)} between them"
        )
    yield from _stall_lines(sequence)
    yield from _eviction_lines(sequence)
    for wait in sequence.waits_again:
        yield f"after preemptions waited {nanoseconds(wait.ns)} for {_what(wait)}"
    if sequence.detail:
        yield _plain(sequence.detail)


def _what(wait: Wait) -> str:
    wall = WALLS.get(wait.reason, _plain(wait.reason))
    held = ", ".join(map(_holder, wait.held_by))
    return f"{wall}, held by {held}" if held else wall


def _holder(holder: Holder) -> str:
    more = f", {holder.blocks:,} blocks" if holder.blocks else ""
    more += f", {holder.tokens:,} tokens" if holder.tokens else ""
    return f"{_plain(holder.request_id)} ({nanoseconds(holder.held_ns)}{more})"


def _stall_lines(sequence: SequenceExplanation) -> Iterator[str]:
    stall = sequence.stall
    if not sequence.parts_ns.get(STALL):
        return
    longest = ""
    if stall.longest_step is not None:
        longest = f", {nanoseconds(stall.longest_ns)} of it in step {stall.longest_step:,}"
    yield f"stalled {nanoseconds(sequence.parts_ns[STALL])} in {_steps(stall.steps)}{longest}:"
    for one in stall.by:
        yield (
            f"  {nanoseconds(one.ns)} by {_plain(one.request_id)}: {one.tokens:,} prompt tokens in "
            f"{_steps(one.steps)}"
        )
    for ns, who in ((stall.others_ns, "others"), (stall.unknown_ns, "who is forgotten")):
        if ns:
            yield f"  {nanoseconds(ns)} by {who}"


def _steps(number: int) -> str:
    return counted(number, "step")


def _eviction_lines(sequence: SequenceExplanation) -> Iterator[str]:
    for one in sequence.evictions:
        blocks = f"free blocks {one.free_blocks_before:,} → {one.free_blocks_after:,}"
        yield (
            f"preempted at {nanoseconds(one.at_ns)} for {_plain(one.beneficiary) or 'somebody'} "
            f"(number {one.number}): {one.lost_tokens:,} tokens lost, {blocks}, away "
            f"{nanoseconds(one.away_ns)}, {one.recomputed_tokens:,} computed again, "
            f"{one.refunded_tokens:,} refunded by the prefix cache"
        )
    left = sequence.preemptions - len(sequence.evictions)
    if left > 0:
        yield f"and {left:,} preemptions more: {sequence.lost_tokens:,} tokens lost in all"


def _one_line(sequence: SequenceExplanation) -> str:
    parts = ", ".join(f"{part} {nanoseconds(ns)}" for part, ns in sequence.parts_ns.items() if ns)
    return (
        f"choice {sequence.index}: {_plain(sequence.status)} after "
        f"{nanoseconds(sequence.e2e_ns)}, {sequence.output_tokens:,} tokens: {parts}"
    )


def _of_several(found: Explanation, shown: SequenceExplanation) -> Iterator[str]:
    """Which prompt of its body this is and which choice of the prompt, and where the others are."""
    if found.others:
        *_, number = found.request_id.rpartition("-")
        names = ", ".join(map(_plain, found.others[:_MOST_NAMED]))
        more = ", …" if len(found.others) > _MOST_NAMED else ""
        yield (
            f"This is prompt {_plain(number)} of {len(found.others) + 1:,}, counted from 0; of the "
            f"others tells headway explain with {names}{more}"
        )
    if len(found.sequences) > 1:
        yield (
            f"This is choice {shown.index} of {len(found.sequences):,}, counted from 0, the "
            f"slowest; the others have a line each, and everything with --json"
        )


def _wrapped(text: str, width: int, left: str = "") -> str:
    """Broken between words; what goes on stands further in."""
    return textwrap.fill(
        text, width, initial_indent=left, subsequent_indent=left + "  ", break_on_hyphens=False
    )


def _plain(text: str) -> str:
    """Ids come from clients and files: nothing in them may move the cursor."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:300])
