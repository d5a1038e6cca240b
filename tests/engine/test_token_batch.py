"""A step's flat arrays, checked by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from headway.core.step import Chunk
from headway.engine.token_batch import plan_batch


def chunk(
    tokens: list[int],
    block_ids: list[int],
    first: int,
    count: int,
    *,
    samples: bool = False,
    prompt_logprobs: int | None = None,
    num_prompt_tokens: int | None = None,
) -> Chunk:
    sequence = SimpleNamespace(
        token_ids=tokens,
        num_prompt_tokens=num_prompt_tokens or len(tokens),
        request=SimpleNamespace(sampling=SimpleNamespace(prompt_logprobs=prompt_logprobs)),
    )
    return Chunk(sequence, first, count, samples, block_ids)  # type: ignore[arg-type]


def test_two_prefills_and_a_decode_lie_end_to_end() -> None:
    long = list(range(100, 140))
    plan = plan_batch(
        [
            chunk(long, [5, 3, 9], 14, 4),  # crosses from block 5 to block 3
            chunk([7, 8], [2], 0, 2, samples=True),
            chunk(list(range(33)), [1, 0, 4], 32, 1, samples=True),
        ],
        block_size=16,
    )
    batch = plan.batch
    assert batch.token_ids.tolist() == [114, 115, 116, 117, 7, 8, 32]
    assert batch.positions.tolist() == [14, 15, 16, 17, 0, 1, 32]
    assert batch.kv_rows.tolist() == [5 * 16 + 14, 5 * 16 + 15, 48, 49, 32, 33, 64]
    assert batch.chunk_starts.tolist() == [0, 4, 6, 7]
    assert batch.block_tables.tolist() == [[5, 3, -1], [2, -1, -1], [1, 0, 4]]
    assert batch.logit_rows.tolist() == [5, 6]
    assert batch.kv_rows.dtype == np.int64
    assert plan.prompts == ()


def test_prompt_logprobs_add_the_rows_that_predict_prompt_tokens() -> None:
    first = chunk(list(range(10)), [0], 0, 4, prompt_logprobs=2)
    plan = plan_batch([first, chunk([1], [1], 0, 1, samples=True)], 16)
    assert plan.batch.logit_rows.tolist() == [4, 0, 1, 2, 3]
    assert (plan.prompts[0].first_row, plan.prompts[0].count) == (1, 4)
    last = plan_batch([chunk(list(range(10)), [0], 4, 6, samples=True, prompt_logprobs=2)], 16)
    assert last.batch.logit_rows.tolist() == [5, 0, 1, 2, 3, 4]
    assert last.prompts[0].count == 5  # the tenth row predicts the first output token


def test_a_decode_scores_no_prompt_token() -> None:
    decode = chunk(
        list(range(11)), [0], 10, 1, samples=True, prompt_logprobs=2, num_prompt_tokens=10
    )
    assert plan_batch([decode], 16).prompts == ()
