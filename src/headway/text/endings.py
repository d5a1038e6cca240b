"""What a client reads of how its sequence ended: one rule, offline and over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.events import Aborted, Retired
from headway.core.request import FinishReason, SamplingParams

_REPETITION = "repetition_detected"  # as vLLM names it


def ends_unseen(
    sampling: SamplingParams, token_ids: Sequence[int], ended: Retired | Aborted | None
) -> bool:
    """Whether the last token is the one that ended the sequence, and nobody asked to see it."""
    return (
        isinstance(ended, Retired)
        and ended.stop_token_id is not None
        and not sampling.include_stop_str_in_output
        and token_ids[-1:] == [ended.stop_token_id]
    )


def stop_reason(sampling: SamplingParams, ended: Retired) -> int | str | None:
    """A stop token of the client's own, or that the output repeated itself; else nothing."""
    if ended.reason is FinishReason.REPETITION:
        return _REPETITION
    is_own = ended.stop_token_id in (sampling.stop_token_ids or ())
    return ended.stop_token_id if is_own else None
