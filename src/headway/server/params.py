"""From a checked body to requests for the engine: defaults, limits and the seed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from headway.core.request import MAX_SEED, Request, SamplingParams
from headway.server.config import AppSettings
from headway.server.errors import ApiError, Problem, invalid_value
from headway.server.schema import ChatBody, CommonBody, CompletionBody
from headway.wire import EngineFacts

_PASSED_ON = (
    "n",
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "seed",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "skip_special_tokens",
    "prompt_logprobs",
)
COMPLETION_MAX_TOKENS = 16
_MAX_TOP_K = 2**31 - 1
# Each choice costs memory here and in the engine before a token is computed.
_MAX_CHOICES = 1024
_MAX_STOP_CHARS = 10_000  # of all stop strings together


class Door:
    """Turns prompts and bodies into requests, or says what to change.

    Every method raises ApiError with the field at fault.
    """

    def __init__(self, facts: EngineFacts, settings: AppSettings) -> None:
        self._facts = facts
        self._settings = settings

    def check_model(self, model: str | None) -> str:
        """The name to answer with; a client may leave it out."""
        names = self._settings.served_model_names
        if model is None:
            return names[0]
        if model not in names:
            raise ApiError(
                Problem.MODEL_NOT_FOUND,
                f"the model {model!r} does not exist here; this server has {', '.join(names)}",
                "model",
            )
        return model

    def check_fields(self, body: CommonBody) -> None:
        if body.priority:
            raise ApiError(
                Problem.UNSUPPORTED,
                "priority has no effect under --scheduling-policy fcfs: leave it out",
                "priority",
            )
        if body.stream_options is not None and not body.stream:
            raise invalid_value("stream_options needs stream=true", "stream_options")
        if body.stream and body.prompt_logprobs is not None:
            raise invalid_value("prompt_logprobs needs stream=false", "prompt_logprobs")

    def completion_request(
        self, request_id: str, prompt: Sequence[int], body: CompletionBody
    ) -> Request:
        """An absent `max_tokens` is 16, or what the context leaves; 0 with `echo` computes one."""
        asked = body.max_tokens
        if asked == 0 and body.echo:
            asked = 1
        if asked is None:
            asked = min(COMPLETION_MAX_TOKENS, max(1, self._facts.max_model_len - len(prompt)))
        own = {"logprobs": body.logprobs, "max_tokens": asked}
        if body.echo and body.logprobs is not None and body.prompt_logprobs is None:
            own["prompt_logprobs"] = body.logprobs
        return self._request(request_id, prompt, body, own)

    def chat_request(self, request_id: str, prompt: Sequence[int], body: ChatBody) -> Request:
        """An absent `max_tokens` is what the context leaves."""
        asked = body.max_completion_tokens
        if asked is None:
            asked = body.max_tokens
        if asked is None:
            asked = max(1, self._facts.max_model_len - len(prompt))
        if body.top_logprobs is not None and not body.logprobs:
            raise invalid_value("top_logprobs needs logprobs=true", "top_logprobs")
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        return self._request(request_id, prompt, body, {"logprobs": logprobs, "max_tokens": asked})

    def _request(
        self, request_id: str, prompt: Sequence[int], body: CommonBody, own: dict[str, Any]
    ) -> Request:
        param = "messages" if isinstance(body, ChatBody) else "prompt"
        self._check_prompt(prompt, own["max_tokens"], param)
        sampling = self._sampling(body, own)
        self._check_limits(sampling)
        stop_ids = frozenset(sampling.stop_token_ids or ())
        if not sampling.ignore_eos:
            stop_ids |= self._settings.stop_token_ids
        return Request(
            request_id=request_id,
            prompt_token_ids=tuple(prompt),
            sampling=sampling,
            stop_token_ids=stop_ids,
            # Drawn here where the client gives none, so that equal prompts differ.
            seed=sampling.seed if sampling.seed is not None else secrets.randbelow(MAX_SEED),
            arrival_ns=time.monotonic_ns(),
            cache_salt=body.cache_salt,
        )

    def _sampling(self, body: CommonBody, own: dict[str, Any]) -> SamplingParams:
        given = {name: getattr(body, name) for name in _PASSED_ON}
        values = dict(self._settings.default_sampling)
        values.update({name: value for name, value in given.items() if value is not None})
        values.update(own)
        try:
            return SamplingParams(**values)
        except ValueError as error:
            message = str(error)
            raise invalid_value(message, message.split(" ", 1)[0]) from None

    def _check_prompt(self, prompt: Sequence[int], max_tokens: int, param: str) -> None:
        if not prompt:
            raise invalid_value("the prompt is empty: it must have at least one token", param)
        bad = next((i for i in prompt if not 0 <= i < self._facts.vocab_size), None)
        if bad is not None:
            raise invalid_value(
                f"token id {bad} is outside the vocabulary of {self._facts.vocab_size}", param
            )
        limit, asked = self._facts.max_model_len, len(prompt) + max(0, max_tokens)
        if asked > limit:
            raise ApiError(
                Problem.CONTEXT_LENGTH,
                f"This model's maximum context length is {limit} tokens. However, you requested "
                f"{asked} tokens ({len(prompt)} in the messages, {max_tokens} in the completion). "
                f"Please reduce the length of the messages or completion.",
                param,
            )

    def check_num_choices(self, num_prompts: int, body: CommonBody) -> None:
        """Prompts and choices are counted before any of them is tokenized."""
        count = num_prompts * (body.n or 1)
        if count > _MAX_CHOICES:
            raise invalid_value(
                f"a request may have {_MAX_CHOICES} choices in all, this one asks for {count}: "
                f"send fewer prompts or a smaller n",
                "prompt" if num_prompts > 1 else "n",
            )

    def _check_limits(self, sampling: SamplingParams) -> None:
        if sampling.n > _MAX_CHOICES:
            raise invalid_value(f"n must be at most {_MAX_CHOICES}, got {sampling.n}", "n")
        if sampling.top_k > _MAX_TOP_K:
            raise invalid_value(f"top_k must be at most {_MAX_TOP_K}", "top_k")
        if sum(len(stop) for stop in sampling.stop or ()) > _MAX_STOP_CHARS:
            raise invalid_value(
                f"stop may have {_MAX_STOP_CHARS} characters in all: shorten the stop strings",
                "stop",
            )
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(sampling, name)
            if value is not None and value > self._facts.max_logprobs:
                raise invalid_value(
                    f"{name}={value} is more than --max-logprobs {self._facts.max_logprobs}", name
                )
        for name in ("logit_bias", "stop_token_ids"):
            for token_id in getattr(sampling, name):
                if token_id >= self._facts.vocab_size:
                    raise invalid_value(
                        f"{name}: token id {token_id} is outside the vocabulary of "
                        f"{self._facts.vocab_size}",
                        name,
                    )
