"""How much of a prompt goes into a step, and whether decodes may ride along."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class PrefillPlacement(Protocol):
    @property
    def holds_decodes(self) -> bool:
        """Decodes are placed only in a step that finds no prompt to compute."""
        ...

    def chunk(self, num_wanted: int, num_left: int) -> int:
        """How many of the wanted tokens to place with that much budget left; 0 for none."""
        ...


@dataclass(frozen=True, slots=True)
class Chunked:
    """Cut to the budget, and to a cap where one is set.

    With `holds_decodes` a step with a prompt in it has no decodes, as in early engines: everyone
    else stalls. Without, prompts and decodes share a step.
    """

    holds_decodes: bool
    max_chunk_tokens: int

    def chunk(self, num_wanted: int, num_left: int) -> int:
        if num_wanted > self.max_chunk_tokens:
            num_wanted = self.max_chunk_tokens
        return num_wanted if num_wanted < num_left else num_left


@dataclass(frozen=True, slots=True)
class Whole:
    """A prompt is computed in one step or waits for one that has room for it."""

    holds_decodes: bool

    def chunk(self, num_wanted: int, num_left: int) -> int:
        return num_wanted if num_wanted <= num_left else 0
