"""What the spans of one sequence add up to: sums and a bounded picture, not a row for each step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headway.insight.cutter import WAIT, Span
from headway.insight.explain.report import DECODE, PARTS, PREFILL, STALL, Segment

MOST_SEGMENTS = 64
MOST_WINDOWS = 32


@dataclass(slots=True, eq=False)
class Tally:
    """`windows`: when it decoded, the latest of very many."""

    parts_ns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    num_prefill_steps: int = 0
    num_prefill_tokens: int = 0
    between_ns: int = 0
    segments: list[Segment] = field(default_factory=list)
    windows: list[tuple[int, int]] = field(default_factory=list)

    def copy(self) -> Tally:
        return replace(
            self,
            parts_ns=dict(self.parts_ns),
            segments=list(self.segments),
            windows=list(self.windows),
        )

    def add(self, span: Span, arrival_ns: int, stall_ns: int) -> None:
        """`stall_ns`: of a decode, how much of it prompts of others took."""
        part = span.name.removesuffix(WAIT)
        duration_ns = span.duration_ns
        if part == DECODE:
            stall_ns = min(stall_ns, duration_ns)
            self.parts_ns[STALL] += stall_ns
            self.parts_ns[DECODE] += duration_ns - stall_ns
            self.windows.append((span.start_ns, span.end_ns))
            del self.windows[:-MOST_WINDOWS]
        else:
            self.parts_ns[part] += duration_ns
        if part == PREFILL:
            self._add_prefill(span)
        self._draw(part, span.start_ns - arrival_ns, duration_ns)

    def _add_prefill(self, span: Span) -> None:
        tokens = span.attributes.get("tokens")
        if isinstance(tokens, int):
            self.num_prefill_steps += 1
            self.num_prefill_tokens += tokens
        else:
            self.between_ns += span.duration_ns

    def _draw(self, part: str, start_ns: int, ns: int) -> None:
        last = self.segments[-1] if self.segments else None
        if last is not None and last.part == part:
            self.segments[-1] = Segment(part=part, start_ns=last.start_ns, ns=last.ns + ns)
        elif len(self.segments) < MOST_SEGMENTS:
            self.segments.append(Segment(part=part, start_ns=start_ns, ns=ns))
