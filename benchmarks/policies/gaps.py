"""Gaps of those who decode beside prompts, and what was predicted for the steps that made them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.drive.record import StepRecord

MS = 1_000_000


@dataclass(slots=True)
class Watch:
    """StepListener: gaps of those who decode beside a prompt, and when prompts were done."""

    gaps_ms: list[float] = field(default_factory=list)
    first_token_ns: dict[int, int] = field(default_factory=dict)
    last_ns: dict[int, int] = field(default_factory=dict)
    prompts_ns: int = 0  # when the latest step with a prompt ended
    begun_ns: int = 0  # when the first began that had one beside a stream
    num_prompt_tokens: int = 0
    decodes_ns: list[int] = field(default_factory=list)  # spans of steps that only decode
    late_ms: list[float] = field(default_factory=list)  # what steps took beyond their prediction

    def on_step(self, record: StepRecord) -> None:
        parts = [
            chunk.num_tokens for chunk in record.chunks if chunk.sequence_id not in self.last_ns
        ]
        has_prompt = bool(parts)
        if has_prompt:
            self.num_prompt_tokens += sum(parts)
            self.prompts_ns = record.end_ns
            if self.last_ns and not self.begun_ns:
                self.begun_ns = record.start_ns
        span_ns = record.end_ns - record.start_ns
        if record.predicted_ns is not None:
            self.late_ms.append((span_ns - record.predicted_ns) / MS)
        elif record.chunks and not has_prompt:
            self.decodes_ns.append(span_ns)
        for sequence_id, _ in record.outputs:
            last_ns = self.last_ns.get(sequence_id)
            self.last_ns[sequence_id] = record.end_ns
            if last_ns is None:
                self.first_token_ns[sequence_id] = record.end_ns
            elif has_prompt:
                self.gaps_ms.append((record.end_ns - last_ns) / MS)

    def forget(self) -> None:
        """What is counted begins now; who had a token and when is still known."""
        self.begun_ns = self.num_prompt_tokens = 0
        for of_before in (self.gaps_ms, self.decodes_ns, self.late_ms):
            of_before.clear()

    def decodes_late_ms(self) -> list[float]:
        """What each that only decodes took beyond the median of the seven before it."""
        spans = self.decodes_ns
        return [
            (spans[at] - statistics.median(spans[at - 7 : at])) / MS for at in range(7, len(spans))
        ]


def percentile(values: Sequence[float], per_mille: int) -> float:
    """The smallest that so many of a thousand do not exceed."""
    return sorted(values)[-(-per_mille * len(values) // 1000) - 1]
