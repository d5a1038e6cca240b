"""What a step that failed takes with it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from headway.core.prefix import PrefixCache
from headway.core.sequence import Sequence
from headway.core.step import Chunk, Step


def spoiled_sequences(step: Step, later: Iterable[Step], prefix: PrefixCache) -> list[Sequence]:
    """The sequences whose KV the failed step left wrong; their blocks of it become unfindable.

    All of `step`, and those in the `later` steps in flight that read, through the prefix cache,
    what it should have computed.
    """
    later_chunks = list(chain.from_iterable(other.chunks for other in later))
    spoiled: dict[int, Sequence] = {}
    found: list[Chunk] = list(step.chunks)
    while found:
        spoiled.update((chunk.sequence.sequence_id, chunk.sequence) for chunk in found)
        also = [chunk for chunk in later_chunks if chunk.sequence.sequence_id in spoiled]
        lost = set(prefix.forget(chain(found, also)))
        found = [
            chunk
            for chunk in later_chunks
            if chunk.sequence.sequence_id not in spoiled and not lost.isdisjoint(chunk.block_ids)
        ]
    return list(spoiled.values())
