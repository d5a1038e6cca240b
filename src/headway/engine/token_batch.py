"""A step as flat arrays: what one forward pass needs and nothing else."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np

from headway.core.step import Chunk
from headway.ops.interface import TokenBatch


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

    Logit rows: first one for each of `sampling`, in order, then the rows of `prompts`.
    """

    batch: TokenBatch
    sampling: tuple[Chunk, ...]
    prompts: tuple[PromptRows, ...]


def plan_batch(chunks: SequenceOf[Chunk], block_size: int) -> BatchPlan:
    """Lay the chunks of a step end to end."""
    starts = np.zeros(len(chunks) + 1, np.int32)
    np.cumsum([chunk.num_tokens for chunk in chunks], out=starts[1:])
    num_tokens = int(starts[-1])
    token_ids = np.empty(num_tokens, np.int32)
    positions = np.empty(num_tokens, np.int32)
    for chunk, start, end in zip(chunks, starts[:-1], starts[1:], strict=True):
        last_position = chunk.first_position + chunk.num_tokens
        token_ids[start:end] = chunk.sequence.token_ids[chunk.first_position : last_position]
        positions[start:end] = np.arange(chunk.first_position, last_position, dtype=np.int32)
    tables = _block_tables(chunks, block_size)
    rows_of = np.repeat(np.arange(len(chunks)), np.diff(starts))
    block_ids = tables[rows_of, positions // block_size].astype(np.int64)
    sampling = tuple(chunk for chunk in chunks if chunk.samples)
    sampling_rows = [int(starts[i + 1]) - 1 for i, chunk in enumerate(chunks) if chunk.samples]
    prompts, prompt_rows = _prompt_rows(chunks, starts, first_row=len(sampling))
    batch = TokenBatch(
        token_ids=token_ids,
        positions=positions,
        kv_rows=block_ids * block_size + positions % block_size,
        chunk_starts=starts,
        block_tables=tables,
        logit_rows=np.array(sampling_rows + prompt_rows, np.int32),
    )
    return BatchPlan(batch, sampling, prompts)


def _block_tables(chunks: SequenceOf[Chunk], block_size: int) -> np.ndarray:
    """[S, widest] block ids that cover each chunk's last token, padded with -1."""
    counts = [-(-(c.first_position + c.num_tokens) // block_size) for c in chunks]
    tables = np.full((len(chunks), max(counts, default=0)), -1, np.int32)
    for row, (chunk, count) in enumerate(zip(chunks, counts, strict=True)):
        tables[row, :count] = chunk.block_ids[:count]
    return tables


def _prompt_rows(
    chunks: SequenceOf[Chunk], starts: np.ndarray, first_row: int
) -> tuple[tuple[PromptRows, ...], list[int]]:
    """Rows that predict a prompt token, for the sequences that asked for prompt logprobs."""
    prompts: list[PromptRows] = []
    rows: list[int] = []
    for index, chunk in enumerate(chunks):
        if chunk.sequence.request.sampling.prompt_logprobs is None:
            continue
        last_scored = chunk.sequence.num_prompt_tokens - 1  # this position predicts no prompt token
        count = min(chunk.first_position + chunk.num_tokens, last_scored) - chunk.first_position
        if count > 0:
            prompts.append(PromptRows(chunk, first_row + len(rows), count))
            rows += range(int(starts[index]), int(starts[index]) + count)
    return tuple(prompts), rows
