"""Runs a step on real weights."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as SequenceOf

import numpy as np

from headway.core.events import Aborted, Advanced, Event, Retired, besides_decodes
from headway.core.step import Step, StepResult
from headway.engine.heartbeat import Progress
from headway.engine.logprobs import LogprobStore
from headway.engine.sampling import Sampler
from headway.engine.sampling_rows import SamplingRows
from headway.engine.token_batch import BatchPlan, BatchPlanner
from headway.model.decoder import Decoder
from headway.ops.interface import F32, I32, I64, KVCache, Ops

# Logits of this many rows exist at once (64 rows of a 150k vocabulary are 38 MB).
_ROWS_AT_ONCE = 64
_ENDINGS = (Retired, Aborted)


class ModelExecutor:
    """Step → TokenBatch → hidden states → logits → tokens. An Executor and a Listener.

    As a listener it forgets what it keeps for a sequence when that sequence ends.
    """

    def __init__(self, decoder: Decoder, cache: KVCache, ops: Ops) -> None:
        self._decoder = decoder
        self._cache = cache
        self._planner = BatchPlanner(cache.block_size)
        self._sampler = Sampler(ops)
        self.progress = Progress()
        self.logprobs = LogprobStore(ops)

    def run(self, step: Step) -> StepResult:
        self.progress.step_runs(step.index, step.num_tokens)
        plan = self._planner.plan(step.chunks)
        hidden = self._decoder.hidden_states(plan.batch, self._cache)
        self._score_prompts(hidden, plan)
        return StepResult(self._sample(hidden, plan))

    def on_events(self, events: SequenceOf[Event], now_ns: int) -> None:
        for event in besides_decodes(events):
            if type(event) is not Advanced and isinstance(event, _ENDINGS):
                self._sampler.forget(event.sequence_id)
                self.logprobs.forget(event.sequence_id)

    def _sample(self, hidden: F32, plan: BatchPlan) -> SequenceOf[int]:
        token_ids = array("i")
        for rows in self._sampler.parts(plan.sampling, _ROWS_AT_ONCE):
            if rows.look_back:
                plan.catch_up()
            part = slice(len(token_ids), len(token_ids) + len(rows.sequences))
            logits = self._decoder.logits(hidden[part])
            token_ids.frombytes(self._sample_rows(logits, rows, plan.lengths[part]).tobytes())
        return token_ids

    def _sample_rows(self, logits: F32, rows: SamplingRows, lengths: I64) -> I32:
        wanted = rows.reported
        raw = self.logprobs.log_softmax(np.ascontiguousarray(logits[wanted])) if wanted else None
        tokens = self._sampler.sample(logits, rows, lengths)
        if raw is not None:
            sequences = [rows.sequences[i] for i in wanted]
            self.logprobs.add_outputs(list(raw), sequences, tokens[wanted].tolist())
        return tokens

    def _score_prompts(self, hidden: F32, plan: BatchPlan) -> None:
        for rows in plan.prompts:
            for offset in range(0, rows.count, _ROWS_AT_ONCE):
                first = rows.first_row + offset
                count = min(_ROWS_AT_ONCE, rows.count - offset)
                logits = self._decoder.logits(hidden[first : first + count])
                self.logprobs.add_prompt(logits, rows, offset)
