"""Pages of real servers under real load, as they were scraped, with the wall that was made.

A file of `pages/` is a table: a row for each sample that the doctor knows, a column for each look.
One value stands for all looks; "-" is a look at which the sample was not there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headway.insight.doctor.findings import Wall
from headway.insight.doctor.page import Page, read_page

FOLDER = Path(__file__).parent / "pages"


@dataclass(frozen=True)
class Recorded:
    """`name` is the file's; `also`: kinds of findings that must be there."""

    name: str
    wall: Wall
    also: frozenset[str] = field(default_factory=frozenset)
    is_clean: bool = False
    is_guess: bool = False  # the pages leave it open, and that is to be said

    def __str__(self) -> str:
        return self.name

    def looks(self) -> list[tuple[Page, float]]:
        """The page at each look, and the seconds since the first."""
        _, seconds, *rows = (FOLDER / f"{self.name}.txt").read_text().splitlines()
        times = [float(word) for word in seconds.split()[1:]]
        return [(read_page(_page(rows, number)), at_s) for number, at_s in enumerate(times)]


def _page(rows: list[str], number: int) -> str:
    lines = []
    for row in rows:
        sample, _, values = row.rpartition(" | ")
        told = values.split()
        value = told[number if len(told) > 1 else 0]
        if value != "-":
            lines.append(f"{sample} {value}")
    return "\n".join(lines)


RECORDED = (
    Recorded("llama-cpp-idle", Wall.CLIENT, is_clean=True),
    Recorded("llama-cpp-4-slots-32-clients", Wall.SLOTS),
    Recorded("llama-cpp-4-slots-12-long-outputs", Wall.SLOTS),
    Recorded("llama-cpp-3-clients-decode", Wall.DECODE, is_clean=True),
    Recorded("llama-cpp-one-long-output", Wall.DECODE, is_clean=True),
    Recorded("llama-cpp-a-long-prompt", Wall.PREFILL, is_clean=True, is_guess=True),
    Recorded("vllm-idle", Wall.CLIENT, is_clean=True),
    Recorded("vllm-0.3-requests-a-second", Wall.NOTHING, is_clean=True),
    Recorded("vllm-4-slots-32-clients", Wall.SLOTS),
    Recorded("vllm-4-slots-12-long-outputs", Wall.SLOTS),
    Recorded("vllm-4-slots-open-load", Wall.SLOTS, frozenset({"queueing-collapse"})),
    # The machine was shared, and its steps stood still now and then: that is warned of.
    Recorded("vllm-3-clients-decode", Wall.DECODE, frozenset({"decode-stalls"})),
    Recorded("vllm-40-blocks-40-clients", Wall.KV_MEMORY),
    Recorded("vllm-one-long-output", Wall.DECODE, is_clean=True),
)
