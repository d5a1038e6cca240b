"""What the doctor says: which wall binds, and whatever else is wrong, each with its evidence."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any


class Severity(IntEnum):
    """The exit status of a report is that of its worst finding."""

    HEALTHY = 0
    WARNING = 1
    CRITICAL = 3  # 2 says that nothing could be read


class Confidence(StrEnum):
    """High: the server says so itself, or nothing else fits. Low: a first guess."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Wall(StrEnum):
    """What keeps the server from doing more, or a request from being faster."""

    SLOTS = "slots"
    KV_MEMORY = "KV memory"
    PREFILL = "token budget / prefill compute"
    DECODE = "decode bandwidth"
    ADAPTERS = "adapter slots"
    TENANT = "a tenant's share"
    GRAMMARS = "grammars"
    STATIC_BATCH = "the end of the static batch"
    CLIENT = "the client side"
    NOTHING = "nothing"
    STUCK = "a stuck engine"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What to change. `before` is None where the source does not tell the present value."""

    what: str  # a flag, where there is one
    before: str | None = None
    after: str
    gain: str = "not predicted"  # what it would bring, with the unit
    basis: str = ""  # how that is known: the simulator, or the arithmetic in figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong, or worth knowing.

    `kind`: a slug that scripts can look for; `title`: a sentence; `evidence`: a line for each
    figure; `subject`: the model, adapter or request that it is about, where it is about one.
    """

    kind: str
    severity: Severity
    title: str
    evidence: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    confidence: Confidence = Confidence.HIGH
    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The report. `inert`: settings that change nothing now, each a sentence."""

    wall: Wall
    severity: Severity  # of the wall alone
    confidence: Confidence
    title: str
    evidence: tuple[str, ...]
    inert: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()  # worst first
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> Severity:
        return max((self.severity, *(finding.severity for finding in self.findings)))

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; severities as words."""
        told = dataclasses.asdict(self) | {"worst": self.worst.name.lower()}
        told["severity"] = self.severity.name.lower()
        for finding in told["findings"]:
            finding["severity"] = Severity(finding["severity"]).name.lower()
        return told
