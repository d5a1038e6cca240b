"""What a rule says, if it says something."""

from __future__ import annotations

from dataclasses import dataclass

from headway.insight.doctor.findings import Confidence, Severity, Wall


@dataclass(frozen=True, slots=True)
class Verdict:
    """`because`: a clause that goes behind the wall's name."""

    wall: Wall
    confidence: Confidence
    because: str
    severity: Severity = Severity.HEALTHY


def unknown(because: str) -> Verdict:
    return Verdict(Wall.UNKNOWN, Confidence.LOW, because)
