"""What a request may be, and where a sequence ends."""

from __future__ import annotations

from functools import partial

from headway.core.config import SchedulerConfig
from headway.core.events import RefusalCause, Rejected, Retired
from headway.core.policies.admission import Admission
from headway.core.request import FinishReason, Request
from headway.core.sequence import Sequence

MAX_TOKEN_ID = 2**31 - 1


class Limits:
    """Refuses requests that can never be served, with the numbers; ends the others in time."""

    def __init__(self, config: SchedulerConfig, num_blocks: int, admission: Admission) -> None:
        self._config = config
        self._num_blocks = num_blocks
        self._admission = admission

    def rejected(self, request: Request, is_in_use: bool) -> Rejected | None:
        """Why the request cannot be served, and what to change; None if it can."""
        reject, prompt = partial(Rejected, request.request_id), request.prompt_token_ids
        max_model_len = self._config.max_model_len
        if is_in_use:
            reason = f"request id {request.request_id!r} is in use: send another id"
            return reject(reason, RefusalCause.ID_IN_USE)
        if not prompt:
            return reject("the prompt is empty: send at least one token")
        ids = {*prompt, *request.forced_token_ids}  # a text has few words, over and over
        if min(ids) < 0 or max(ids) > MAX_TOKEN_ID:
            return reject(f"prompt token ids must be in [0, {MAX_TOKEN_ID}]: check the tokenizer")
        if len(prompt) >= max_model_len:
            return reject(
                f"the prompt has {len(prompt)} tokens and max_model_len is {max_model_len}, which "
                f"leaves no room for output: shorten the prompt to at most {max_model_len - 1}"
            )
        refusal = self._memory_refusal(request)
        return reject(refusal) if refusal else None

    def _memory_refusal(self, request: Request) -> str | None:
        num_tokens = self._admission.num_tokens_ever(request)
        need = self._config.num_blocks_for(num_tokens)
        if need <= self._num_blocks:
            return None
        cure = "shorten the prompt"
        if num_tokens > request.num_prompt_tokens:
            cure = "lower max_tokens, shorten the prompt"
        return (
            f"needs {need} blocks of KV cache ({num_tokens} tokens in blocks of "
            f"{self._config.block_size}), the pool has {self._num_blocks}: {cure}, or raise "
            f"--kv-cache-memory-bytes"
        )

    def max_num_tokens(self, request: Request) -> int:
        """Where a sequence must end: prompt and output together."""
        # The last token of a sequence is never computed, so it needs no place in the cache.
        num_places = self._num_blocks * self._config.block_size
        limit = min(self._config.max_model_len, num_places + 1)
        most = request.max_output_tokens
        return limit if most is None else min(limit, request.num_prompt_tokens + most)

    def ending(self, sequence: Sequence) -> Retired | None:
        """How the sequence ends with its latest token; None if it goes on. Once for each token."""
        request, token_id = sequence.request, sequence.token_ids[-1]
        is_full = len(sequence.token_ids) >= sequence.max_num_tokens
        repeats = sequence.repetition is not None and sequence.repetition.repeats(
            sequence.token_ids, sequence.num_output_tokens
        )
        name = (sequence.sequence_id, request.request_id)
        if self._may_end(sequence) and token_id in request.stop_token_ids:
            return Retired(*name, FinishReason.STOP, stop_token_id=token_id)
        if is_full:
            return Retired(*name, FinishReason.LENGTH, detail=self._limit_detail(sequence))
        if self._may_end(sequence) and repeats:
            return Retired(*name, FinishReason.REPETITION)
        return None

    def _may_end(self, sequence: Sequence) -> bool:
        """Whether what it says may end it, before it is full; forced tokens come all of them."""
        num_left = len(sequence.request.forced_token_ids) - sequence.num_output_tokens
        return num_left <= 0 and sequence.num_output_tokens >= sequence.request.sampling.min_tokens

    def _limit_detail(self, sequence: Sequence) -> str:
        """Which limit ended it, where that was not the client's own max_tokens."""
        if sequence.num_output_tokens == sequence.request.max_output_tokens:
            return ""
        if sequence.num_tokens >= self._config.max_model_len:
            return f"reached max_model_len={self._config.max_model_len}"
        return (
            f"the sequence alone fills the KV cache of {self._num_blocks} blocks of "
            f"{self._config.block_size} tokens: raise --kv-cache-memory-bytes for longer outputs"
        )
