"""From logits to tokens: penalties and masks in place, then one draw for all rows.

The order is vLLM's: raw logprobs are taken first; then allowed_token_ids, bad words, min_tokens,
logit_bias, the three penalties, temperature, top_k, top_p, min_p. A row's token depends on its own
logits, its own history, its seed and its position, and on nothing else in the batch.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

import numpy as np

from headway.core.sequence import Sequence
from headway.engine.sampling_rows import RowSettings, SamplingRows, settings_of
from headway.engine.token_counts import TokenCounts, counts_for, penalise
from headway.engine.token_tables import TokenTables
from headway.ops.interface import F32, I32, I64, Ops


class Sampler:
    """Chooses the next token of each row of a step.

    What a sequence asked for is looked at once, and a row that wants neither mask nor penalty costs
    nothing of its own. `TokenCounts` are brought up to date from the sequence's own tokens, so that
    preemption and recompute cannot disturb them; `forget` drops what is kept of a sequence.
    `TokenTables` belong to a request and go with the last of its sequences.
    """

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._settings: dict[int, RowSettings] = {}
        self._sequences: tuple[Sequence, ...] = ()
        self._parts: list[SamplingRows] = []  # of those sequences
        self._counts: dict[int, TokenCounts] = {}
        self._tables: dict[int, TokenTables] = {}
        self._tables_of_request: WeakValueDictionary[str, TokenTables] = WeakValueDictionary()

    def forget(self, sequence_id: int) -> None:
        self._settings.pop(sequence_id, None)
        self._counts.pop(sequence_id, None)
        self._tables.pop(sequence_id, None)
        self._sequences, self._parts = (), []  # its last step is over

    def parts(self, sequences: tuple[Sequence, ...], most: int) -> list[SamplingRows]:
        """The rows of a step in parts of at most so many; kept while the same sequences come."""
        if sequences is not self._sequences and sequences != self._sequences:
            settings = [self._settings_of(sequence) for sequence in sequences]
            self._sequences = sequences
            self._parts = [
                SamplingRows(sequences[start : start + most], settings[start : start + most])
                for start in range(0, len(sequences), most)
            ]
        return self._parts

    def sample(self, logits: F32, rows: SamplingRows, lengths: I64) -> I32:
        """One token id per row, which has `lengths` [R] tokens; `logits` [R, V] is overwritten."""
        sequences = rows.sequences
        for row in rows.masked:
            tables = self._tables_for(sequences[row])
            _mask(logits[row], sequences[row], tables)
            tables.add_bias(logits[row])
        if rows.penalised:
            self._penalise(logits, rows)
        out = np.empty(len(sequences), np.int32)
        self._ops.sample(
            logits,
            rows.temperature,
            rows.top_k,
            rows.top_p,
            rows.min_p,
            rows.seeds,
            lengths,
            out,
        )
        for row in rows.forced:
            out[row] = _forced(sequences[row], int(out[row]))
        return out

    def _settings_of(self, sequence: Sequence) -> RowSettings:
        found = self._settings.get(sequence.sequence_id)
        if found is None:
            found = self._settings[sequence.sequence_id] = settings_of(sequence)
        return found

    def _tables_for(self, sequence: Sequence) -> TokenTables:
        found = self._tables.get(sequence.sequence_id)
        if found is None:
            request = sequence.request
            found = self._tables_of_request.get(request.request_id) or TokenTables(request)
            self._tables_of_request[request.request_id] = found
            self._tables[sequence.sequence_id] = found
        return found

    def _penalise(self, logits: F32, rows: SamplingRows) -> None:
        sequences = [rows.sequences[row] for row in rows.penalised]
        counts = [self._counts_for(sequence) for sequence in sequences]
        penalise(logits, rows.penalised, sequences, counts)

    def _counts_for(self, sequence: Sequence) -> TokenCounts:
        found = self._counts.get(sequence.sequence_id)
        if found is None:
            found = self._counts[sequence.sequence_id] = counts_for(sequence)
        found.catch_up(sequence.token_ids)
        return found


def _mask(row: F32, sequence: Sequence, tables: TokenTables) -> None:
    """What may not come next becomes -inf."""
    banned = tables.banned(sequence, len(row))
    ids = tables.allowed
    if ids is None:
        row[banned] = -np.inf
        return
    before = row[ids]
    row.fill(-np.inf)
    row[ids] = before
    row[banned] = -np.inf
    if np.all(row[ids] == -np.inf):
        row[ids] = before  # bans that leave nothing are lifted: some token there must be


def _forced(sequence: Sequence, token: int) -> int:
    forced, place = sequence.request.forced_token_ids, sequence.num_output_tokens
    return forced[place] if place < len(forced) else token
