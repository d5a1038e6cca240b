"""A step as flat arrays: what one forward pass needs and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import chain, compress

import numpy as np

from headway.core.sequence import Sequence
from headway.core.step import Chunk, Chunks
from headway.engine.block_tables import BlockTables
from headway.ops.interface import I32, I64, TokenBatch

Numbers = SequenceOf[int]
_Columns = tuple[
    SequenceOf[Sequence], Numbers, Numbers, SequenceOf[bool], SequenceOf[SequenceOf[int]]
]


def _nothing() -> None:
    return


@dataclass(frozen=True, slots=True)
class PromptRows:
    """Which logit rows of a chunk score prompt tokens: `count` rows from `first_row` on, the first
    of which predicts the token at `first_position + 1`."""

    chunk: Chunk
    first_row: int
    count: int


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The arrays of a step and whose logits each row holds.

    Logit rows: first one for each of `sampling`, in order, then the rows of `prompts`. `lengths`
    are their known tokens; which these are, some may not know before `catch_up` is called.
    """

    batch: TokenBatch
    sampling: tuple[Sequence, ...]
    lengths: I64
    prompts: tuple[PromptRows, ...] = ()
    catch_up: Callable[[], None] = _nothing


class BatchPlanner:
    """Lays the chunks of each step end to end.

    Steps resemble the one before: block tables are kept and only added to, and of a row that goes
    on nothing is looked at in Python but its token. A plan holds until the next one is made.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._tables = BlockTables()
        self._sequences: SequenceOf[Sequence] = ()
        self._scored: list[int] = []  # rows whose sequences asked for prompt logprobs
        self._together: tuple[Sequence, ...] = ()
        self._offsets: I64 = np.zeros(0, np.int64)
        self._rows: I32 = np.zeros(0, np.int32)

    def plan(self, chunks: Chunks | SequenceOf[Chunk]) -> BatchPlan:
        if isinstance(chunks, Chunks) and not chunks.others:
            return self._plan_together(chunks)
        sequences, firsts, counts, samples, block_ids = _columns(chunks)
        if sequences != self._sequences:
            self._sequences = sequences
            self._scored = [row for row, s in enumerate(sequences) if _is_scored(s)]
        starts = np.zeros(len(chunks) + 1, np.int32)
        np.cumsum(counts, out=starts[1:])
        ends = np.add(firsts, counts, dtype=np.int32)
        num_blocks = (ends + (self._block_size - 1)) // self._block_size
        tables = self._tables.cover(block_ids, num_blocks)
        positions, rows = _positions(ends, starts)
        places = positions % self._block_size
        held_in = tables[rows, positions // self._block_size].astype(np.int64)
        prompts, prompt_rows = self._prompt_rows(chunks, starts, first_row=sum(samples))
        batch = TokenBatch(
            token_ids=_token_ids(sequences, firsts, counts),
            positions=positions,
            kv_rows=held_in * self._block_size + places,
            chunk_starts=starts,
            block_tables=tables,
            logit_rows=np.concatenate(((starts[1:] - 1)[np.array(samples)], prompt_rows)),
        )
        lengths = ends[np.array(samples)].astype(np.int64)
        return BatchPlan(batch, tuple(compress(sequences, samples)), lengths, prompts)

    def _plan_together(self, chunks: Chunks) -> BatchPlan:
        """A token each, all at the next position."""
        sequences, size = chunks.sequences, self._block_size
        if sequences is not self._together:
            self._together = sequences
            self._offsets = np.array(chunks.offsets, np.int64)
            self._rows = np.arange(len(sequences) + 1, dtype=np.int32)
        starts, rows = self._rows, self._rows[:-1]
        positions = self._offsets + chunks.index
        places, blocks = positions % size, positions // size
        tables = self._tables.cover(chunks.block_ids, (blocks + 1).astype(np.int32))
        batch = TokenBatch(
            token_ids=np.array(chunks.sampled or [s.token_ids[-1] for s in sequences], np.int32),
            positions=positions.astype(np.int32),
            kv_rows=tables[rows, blocks].astype(np.int64) * size + places,
            chunk_starts=starts,
            block_tables=tables,
            logit_rows=rows,
        )
        return BatchPlan(batch, sequences, positions + 1, catch_up=chunks.catch_up)

    def _prompt_rows(
        self, chunks: Chunks | SequenceOf[Chunk], starts: I32, first_row: int
    ) -> tuple[tuple[PromptRows, ...], I32]:
        """Rows that predict a prompt token, for the sequences that asked for prompt logprobs."""
        prompts: list[PromptRows] = []
        rows: list[int] = []
        chunks_in_order = [*chunks] if self._scored else []
        for index in self._scored:
            chunk = chunks_in_order[index]
            last_scored = chunk.sequence.num_prompt_tokens - 1  # it predicts no prompt token
            count = min(chunk.num_tokens, last_scored - chunk.first_position)
            if count > 0:
                prompts.append(PromptRows(chunk, first_row + len(rows), count))
                rows += range(int(starts[index]), int(starts[index]) + count)
        return tuple(prompts), np.array(rows, np.int32)


def _columns(chunks: Chunks | SequenceOf[Chunk]) -> _Columns:
    if not isinstance(chunks, Chunks):
        sequences, firsts, counts, samples, block_ids = zip(*chunks, strict=True)
        return sequences, firsts, counts, samples, block_ids
    chunks.catch_up()
    ones = (1,) * len(chunks.sequences)
    sequences, firsts, counts, samples, block_ids = zip(*chunks.others, strict=True)
    return (
        chunks.sequences + sequences,
        [*chunks.firsts, *firsts],
        ones + counts,
        (True,) * len(ones) + samples,
        chunks.block_ids + block_ids,
    )


def _is_scored(sequence: Sequence) -> bool:
    return sequence.request.sampling.prompt_logprobs is not None


def _positions(ends: I32, starts: I32) -> tuple[I32, I32]:
    """Each token's position, and the row of its chunk."""
    num_chunks, num_tokens = len(ends), int(starts[-1])
    if num_chunks == num_tokens:  # a token each
        return ends - 1, np.arange(num_chunks, dtype=np.int32)
    rows = np.repeat(np.arange(num_chunks, dtype=np.int32), np.diff(starts))
    return np.arange(num_tokens, dtype=np.int32) + (ends - starts[1:])[rows], rows


def _token_ids(sequences: SequenceOf[Sequence], firsts: Numbers, counts: Numbers) -> I32:
    if sum(counts) == len(counts):
        ids = [s.token_ids[first] for s, first in zip(sequences, firsts, strict=True)]
        return np.array(ids, np.int32)
    parts = zip(sequences, firsts, counts, strict=True)
    known = (s.token_ids[first : first + count] for s, first, count in parts)
    return np.fromiter(chain.from_iterable(known), np.int32, sum(counts))
