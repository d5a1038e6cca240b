"""What `LLM` returns: one `RequestOutput` per prompt, with vLLM's field names."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Logprob:
    """Natural log of a token's probability before any sampling change; `rank` counts from 1."""

    logprob: float
    rank: int | None
    decoded_token: str | None


# One position: token id → Logprob; the chosen token first, then the most likely ones.
PositionLogprobs = dict[int, Logprob]


@dataclass(slots=True)
class CompletionOutput:
    """One of a request's n completions.

    `stop_reason` is the stop string, or the id of `stop_token_ids`, that ended it; None for the
    model's own end of sequence. `detail` is a sentence where `finish_reason` says too little:
    always for "error".
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    detail: str = ""

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestOutput:
    """A prompt and its completions; `num_cached_tokens` came from the prefix cache."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    num_cached_tokens: int = 0
    num_preemptions: int = 0

    @property
    def finished(self) -> bool:
        return all(output.finished() for output in self.outputs)
