"""Logprobs: values, ranks, ties, and that a recompute repeats nothing."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from headway.engine.logprobs import LogprobStore, describe
from headway.engine.token_batch import PromptRows
from headway.ops.reference.backend import ReferenceOps


def test_rank_and_top_break_ties_by_the_lower_id() -> None:
    row = np.log(np.array([0.1, 0.3, 0.3, 0.05, 0.25], np.float32))
    entry = describe(row, 4, 3)
    assert entry.rank == 3
    assert [token for token, _ in entry.top] == [1, 2, 4]
    assert entry.logprob == float(row[4])
    assert describe(row, 4, 0).top == []
    assert len(describe(row, 0, 99).top) == 5


def prompt_rows(first_position: int, tokens: list[int]) -> PromptRows:
    sequence = SimpleNamespace(
        sequence_id=3,
        token_ids=tokens,
        request=SimpleNamespace(sampling=SimpleNamespace(prompt_logprobs=1)),
    )
    chunk = SimpleNamespace(sequence=sequence, first_position=first_position)
    return PromptRows(chunk, 0, 0)  # type: ignore[arg-type]


def test_a_recompute_repeats_no_prompt_position() -> None:
    store = LogprobStore(ReferenceOps())
    logits = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    tokens = [4, 1, 7, 2, 0, 3]
    store.add_prompt(logits[:2], prompt_rows(0, tokens))
    assert [None if e is None else e.token_id for e in store.take()[0].prompt] == [None, 1, 7]
    store.add_prompt(logits[:1], prompt_rows(0, tokens))  # preempted, and again from the start
    store.add_prompt(logits[1:4], prompt_rows(1, tokens))
    store.add_prompt(logits[4:], prompt_rows(4, tokens))
    assert [e.token_id for e in store.take()[0].prompt if e] == [2, 0, 3]
    assert store.take() == []
