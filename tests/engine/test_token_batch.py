"""A step's flat arrays, checked by hand."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest

from headway.core.config import SchedulerConfig
from headway.core.request import Request, SamplingParams
from headway.core.scheduler import Scheduler
from headway.core.step import Chunk, Chunks, StepResult
from headway.engine.token_batch import BatchPlan, BatchPlanner


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


def plan_batch(chunks: list[Chunk], block_size: int) -> BatchPlan:
    return BatchPlanner(block_size).plan(chunks)


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
    assert batch.block_tables[:, :4].tolist() == [[5, 3, -1, -1], [2, -1, -1, -1], [1, 0, 4, -1]]
    assert (batch.block_tables[:, 4:] == -1).all()
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


def plain_rows(chunks: list[Chunk], block_size: int) -> list[tuple[int, int, int]]:
    """Token, position and kv row of every token of a step, one by one."""
    return [
        (
            c.sequence.token_ids[position],
            position,
            c.block_ids[position // block_size] * block_size + position % block_size,
        )
        for c in chunks
        for position in range(c.first_position, c.first_position + c.num_tokens)
    ]


class Walk:
    """Sequences that come, grow by a token or a few, lose their blocks and go."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.blocks = iter(range(10_000))
        self.running: list[list] = []  # [sequence, blocks, computed]

    def step(self) -> list[Chunk]:
        if self.rng.random() < 0.4 or not self.running:
            prompt = [self.rng.randrange(1000) for _ in range(self.rng.randrange(1, 100))]
            sequence = chunk(prompt, [], 0, 1).sequence
            self.running.append([sequence, [], 0])
        if self.rng.random() < 0.2:
            self.running.pop(self.rng.randrange(len(self.running)))
        for entry in self.running:
            if self.rng.random() < 0.05:
                entry[1:] = [[], 0]  # preempted: another list, and from the start
        return [c for entry in self.running if (c := self.grow(entry)) is not None]

    def grow(self, entry: list) -> Chunk | None:
        sequence, _, first = entry
        if self.rng.random() < 0.1:
            return None  # not in this step
        count = min(len(sequence.token_ids) - first, self.rng.choice((1, 16, 40)))
        while len(entry[1]) * 16 < first + count:
            entry[1].append(next(self.blocks))
        entry[2] = first + count
        samples = entry[2] == len(sequence.token_ids)
        made = Chunk(sequence, first, count, samples, entry[1])
        if samples:
            sequence.token_ids = [*sequence.token_ids, self.rng.randrange(1000)]
        return made


@pytest.mark.parametrize("seed", range(8))
def test_a_plan_owes_nothing_to_the_steps_before_it(seed: int) -> None:
    planner, walk = BatchPlanner(16), Walk(seed)
    for _ in range(120):
        chunks = walk.step()
        if not chunks:
            continue
        plan = planner.plan(chunks)
        batch = plan.batch
        columns = (batch.token_ids, batch.positions, batch.kv_rows)
        assert list(zip(*(c.tolist() for c in columns), strict=True)) == plain_rows(chunks, 16)
        for table, one in zip(batch.block_tables.tolist(), chunks, strict=True):
            needed = -(-(one.first_position + one.num_tokens) // 16)
            assert table[:needed] == one.block_ids[:needed]
        assert [id(s) for s in plan.sampling] == [id(c.sequence) for c in chunks if c.samples]
        ends = batch.chunk_starts[1:] - 1
        rows = [end for end, c in zip(ends.tolist(), chunks, strict=True) if c.samples]
        assert batch.logit_rows.tolist() == rows


def test_those_that_decode_together_are_laid_out_as_any_chunks() -> None:
    """Some come and go; the sequences are looked at only in every fifth step."""
    scheduler, planner = Scheduler(SchedulerConfig(block_size=4), 900), BatchPlanner(4)
    rng, num_together = random.Random(5), 0
    for index in range(120):
        if index % 30 in (0, 3, 11):
            prompt = [rng.randrange(1000) for _ in range(rng.randrange(1, 20))]
            asked = {"prompt_token_ids": tuple(prompt), "sampling": SamplingParams(max_tokens=80)}
            scheduler.add(Request(request_id=f"{index}", **asked), 0)
        if index % 30 == 23:
            scheduler.abort(scheduler.live_request_ids()[0])
        step = scheduler.schedule(0)
        plan = planner.plan(step.chunks)
        if index % 5 == 0:
            num_together += isinstance(step.chunks, Chunks) and not step.chunks.others
            plain = BatchPlanner(4).plan([*step.chunks])
            assert plan.sampling == plain.sampling
            assert plan.lengths.tolist() == plain.lengths.tolist()
            for name in ("token_ids", "positions", "kv_rows", "chunk_starts", "logit_rows"):
                one, other = getattr(plan.batch, name), getattr(plain.batch, name)
                assert one.dtype == other.dtype, name
                assert one.tolist() == other.tolist(), name
            width = plain.batch.block_tables.shape[1]
            for ids, others in zip(plan.batch.block_tables, plain.batch.block_tables, strict=True):
                used = others[others >= 0]
                assert ids[:width][: len(used)].tolist() == used.tolist()
        said = [rng.randrange(1000) for _ in plan.sampling]
        scheduler.complete(step, StepResult(said))
    assert num_together > 10
