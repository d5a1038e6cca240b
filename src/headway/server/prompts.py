"""Where a prompt meets the context: cutting it, refusing it, or giving it less output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.server.errors import ApiError, Problem, invalid_value
from headway.wire import EngineFacts


@dataclass(frozen=True, slots=True)
class Fitted:
    """A prompt that fits into the context together with `max_tokens` of output."""

    token_ids: tuple[int, ...]
    max_tokens: int


def fit(
    token_ids: Sequence[int],
    *,
    asked: int | None,
    default: int | None,
    keep_last: int | None,
    clamps: bool,
    facts: EngineFacts,
    param: str,
) -> Fitted:
    """`asked` tokens of output after the last `keep_last` tokens of the prompt.

    Without `asked` the output is `default`, and in no case more than the context leaves; without
    either it is what the context leaves. With `clamps` that holds for `asked` too. Raises ApiError.
    """
    limit = facts.max_model_len
    prompt = tuple(_truncated(token_ids, keep_last, asked or default or 1, limit))
    _check_ids(prompt, facts.vocab_size, param)
    room = limit - len(prompt)
    wanted = asked if asked is not None else default
    if wanted is None or (room >= 1 and wanted > room and (clamps or asked is None)):
        wanted = max(1, room)
    if len(prompt) + max(0, wanted) > limit:
        raise _too_long(len(prompt), wanted, limit, param)
    return Fitted(prompt, wanted)


def _truncated(
    token_ids: Sequence[int], keep_last: int | None, num_output: int, limit: int
) -> Sequence[int]:
    if keep_last is None:
        return token_ids
    if keep_last == 0 or not -1 <= keep_last <= limit:
        raise invalid_value(
            f"truncate_prompt_tokens must be -1 or from 1 to the context of {limit} tokens, "
            f"got {keep_last}",
            "truncate_prompt_tokens",
        )
    count = max(1, limit - num_output) if keep_last == -1 else keep_last
    return token_ids[-count:]


def _check_ids(prompt: Sequence[int], vocab_size: int, param: str) -> None:
    if not prompt:
        raise invalid_value("the prompt is empty: it must have at least one token", param)
    if min(prompt) < 0 or max(prompt) >= vocab_size:
        bad = next(i for i in prompt if not 0 <= i < vocab_size)
        raise invalid_value(f"token id {bad} is outside the vocabulary of {vocab_size}", param)


def _too_long(num_prompt: int, max_tokens: int, limit: int, param: str) -> ApiError:
    return ApiError(
        Problem.CONTEXT_LENGTH,
        f"This model's maximum context length is {limit} tokens. However, you requested "
        f"{num_prompt + max_tokens} tokens ({num_prompt} in the messages, {max_tokens} in the "
        f"completion). Please reduce the length of the messages or completion.",
        param,
    )
