"""From a checked body to requests for the engine: defaults, limits and the seed."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from headway.core.request import MAX_SEED, RepetitionDetection, Request, SamplingParams
from headway.server.arrival import Arrival
from headway.server.config import AppSettings
from headway.server.errors import ApiError, Problem, invalid_value
from headway.server.prompts import Fitted, fit
from headway.server.schema.bodies import ChatBody, CompletionBody, GenerationBody
from headway.text.bad_words import bad_word_ids
from headway.text.tokenizer import Tokenizer
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
    "allowed_token_ids",
    "bad_words",
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
_MAX_PRIORITY = 2**63 - 1
# Each choice costs memory here and in the engine before a token is computed.
MAX_CHOICES = 1024
_MAX_WORD_CHARS = 10_000  # of all stop strings together, and of all bad words


def seed_source(seed: int | None) -> Callable[[], int]:
    """Gives the seeds of requests that bring none: the same in every run, or at random for None."""
    numbers = secrets.SystemRandom() if seed is None else random.Random(seed)
    return partial(numbers.randrange, MAX_SEED)


class Door:
    """Turns prompts and bodies into requests, or says what to change.

    Every method raises ApiError with the field at fault.
    """

    def __init__(
        self,
        facts: EngineFacts,
        settings: AppSettings,
        tokenizer: Tokenizer,
        draw_seed: Callable[[], int],
    ) -> None:
        self._facts = facts
        self._settings = settings
        self._tokenizer = tokenizer
        self._draw_seed = draw_seed

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

    def check_fields(self, body: GenerationBody) -> None:
        """What can be said without looking at the prompt."""
        _check_priority(body.priority, self._facts.scheduling_policy)
        if body.stream_options is not None and not body.stream:
            raise invalid_value("stream_options needs stream=true", "stream_options")
        if body.stream and body.prompt_logprobs is not None:
            raise invalid_value("prompt_logprobs needs stream=false", "prompt_logprobs")
        if body.cache_salt == "":
            raise invalid_value("cache_salt must not be empty: leave it out", "cache_salt")
        if body.stream_interval is not None and body.stream_interval < 1:
            raise invalid_value("stream_interval must be at least 1", "stream_interval")
        if body.trace_decode_token_ids is not None and not self._facts.enable_trace_replay:
            raise ApiError(
                Problem.UNSUPPORTED,
                "trace_decode_token_ids needs a server started with --enable-trace-replay",
                "trace_decode_token_ids",
            )

    def check_num_choices(self, num_prompts: int, body: GenerationBody) -> int:
        """Prompts and choices are counted before any of them is tokenized."""
        count = num_prompts * max(1, body.n or 1)
        if count > MAX_CHOICES:
            raise invalid_value(
                f"a request may have {MAX_CHOICES} choices in all, this one asks for {count}: "
                f"send fewer prompts or a smaller n",
                "prompt" if num_prompts > 1 else "n",
            )
        return count

    def completion_request(
        self, request_id: str, prompt: Sequence[int], body: CompletionBody, arrival: Arrival
    ) -> Request:
        """An absent `max_tokens` is 16, or what the context leaves; 0 with `echo` computes one."""
        asked = 1 if body.max_tokens == 0 and body.echo else body.max_tokens
        fitted = self._fit(prompt, body, asked, COMPLETION_MAX_TOKENS, "prompt")
        own: dict[str, Any] = {"logprobs": body.logprobs}
        if body.echo and body.logprobs is not None and body.prompt_logprobs is None:
            own["prompt_logprobs"] = body.logprobs
        return self._request(request_id, fitted, body, own, arrival)

    def chat_request(
        self, request_id: str, prompt: Sequence[int], body: ChatBody, arrival: Arrival
    ) -> Request:
        """An absent `max_tokens` is what the context leaves."""
        asked = body.max_completion_tokens
        if asked is None:
            asked = body.max_tokens
        if body.top_logprobs is not None and not body.logprobs:
            raise invalid_value("top_logprobs needs logprobs=true", "top_logprobs")
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        fitted = self._fit(prompt, body, asked, None, "messages")
        return self._request(request_id, fitted, body, {"logprobs": logprobs}, arrival)

    def _fit(
        self,
        prompt: Sequence[int],
        body: GenerationBody,
        asked: int | None,
        default: int | None,
        param: str,
    ) -> Fitted:
        if asked is None and body.trace_decode_token_ids:
            asked = len(body.trace_decode_token_ids)
        return fit(
            prompt,
            asked=asked,
            default=default,
            keep_last=body.truncate_prompt_tokens,
            clamps=self._settings.clamp_max_tokens,
            facts=self._facts,
            param=param,
        )

    def _request(
        self,
        request_id: str,
        fitted: Fitted,
        body: GenerationBody,
        own: dict[str, Any],
        arrival: Arrival,
    ) -> Request:
        sampling = self._sampling(body, {**own, "max_tokens": fitted.max_tokens})
        self._check_limits(sampling)
        forced = tuple(body.trace_decode_token_ids or ())
        self._check_vocabulary("trace_decode_token_ids", forced)
        stop_ids = frozenset(sampling.stop_token_ids or ())
        if not sampling.ignore_eos:
            stop_ids |= self._settings.stop_token_ids
        return Request(
            request_id=request_id,
            prompt_token_ids=fitted.token_ids,
            sampling=sampling,
            stop_token_ids=stop_ids,
            # Drawn here where the client gives none, so that equal prompts differ.
            seed=sampling.seed if sampling.seed is not None else self._draw_seed(),
            arrival_ns=arrival.ns,
            priority=body.priority,
            tenant=arrival.tenant,
            cache_salt=body.cache_salt or "",
            bad_word_ids=self._bad_word_ids(body.bad_words),
            forced_token_ids=forced,
            limits=arrival.limits,
        )

    def _sampling(self, body: GenerationBody, own: dict[str, Any]) -> SamplingParams:
        given = {name: getattr(body, name) for name in _PASSED_ON}
        values = dict(self._settings.default_sampling)
        values.update({name: value for name, value in given.items() if value is not None})
        values.update(own)
        try:
            return SamplingParams(**values, repetition_detection=self._repetition(body))
        except (ValueError, OverflowError) as error:
            message = str(error)
            raise invalid_value(message, message.split(" ", 1)[0]) from None

    def _repetition(self, body: GenerationBody) -> RepetitionDetection | None:
        asked = body.repetition_detection
        if asked is None:
            return None
        for name in asked.__struct_fields__:
            if getattr(asked, name) > self._facts.max_model_len:
                where = f"repetition_detection.{name}"
                raise invalid_value(
                    f"{where} must be at most the context of {self._facts.max_model_len}", where
                )
        return RepetitionDetection(
            max_pattern_size=asked.max_pattern_size,
            min_pattern_size=asked.min_pattern_size,
            min_count=asked.min_count,
        )

    def _bad_word_ids(self, words: Sequence[str] | None) -> tuple[tuple[int, ...], ...]:
        if not words:
            return ()
        _check_length("bad_words", words)
        try:
            return bad_word_ids(self._tokenizer, words)
        except ValueError as error:
            raise invalid_value(str(error), "bad_words") from None

    def _check_limits(self, sampling: SamplingParams) -> None:
        if sampling.top_k > _MAX_TOP_K:
            raise invalid_value(f"top_k must be at most {_MAX_TOP_K}", "top_k")
        _check_length("stop", sampling.stop or ())
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(sampling, name)
            if value is not None and value > self._facts.max_logprobs:
                raise invalid_value(
                    f"{name}={value} is more than --max-logprobs {self._facts.max_logprobs}", name
                )
        if sampling.allowed_token_ids is not None and not sampling.allowed_token_ids:
            raise invalid_value(
                "allowed_token_ids must name a token: leave it out to allow all",
                "allowed_token_ids",
            )
        for name in ("logit_bias", "stop_token_ids", "allowed_token_ids"):
            self._check_vocabulary(name, getattr(sampling, name) or ())
        for name in ("stop_token_ids", "allowed_token_ids"):
            given, size = len(getattr(sampling, name) or ()), self._facts.vocab_size
            if given > size:
                message = f"{name} has {given} entries and there are {size} tokens: name each once"
                raise invalid_value(message, name)

    def _check_vocabulary(self, name: str, token_ids: Iterable[int]) -> None:
        size = self._facts.vocab_size
        bad = next((i for i in token_ids if not 0 <= i < size), None)
        if bad is not None:
            raise invalid_value(f"{name}: token id {bad} is outside the vocabulary of {size}", name)


def clamped_header(asked: int | None, requests: Sequence[Request]) -> dict[str, str]:
    """Says so where a request got fewer tokens than the client asked for: the least of them."""
    given = min(request.sampling.max_tokens or 0 for request in requests)
    is_clamped = asked is not None and 0 < given < asked
    return {"x-headway-max-tokens": str(given)} if is_clamped else {}


def _check_priority(priority: int, policy: str) -> None:
    if priority and policy != "priority":
        raise ApiError(
            Problem.UNSUPPORTED,
            f"priority has no effect under --scheduling-policy {policy}: leave it out, or start "
            f"the server with --scheduling-policy priority",
            "priority",
        )
    if abs(priority) > _MAX_PRIORITY:
        raise invalid_value("priority must be a 64-bit integer", "priority")


def _check_length(name: str, words: Sequence[str]) -> None:
    if sum(len(word) for word in words) > _MAX_WORD_CHARS:
        raise invalid_value(
            f"{name} may have {_MAX_WORD_CHARS} characters in all: send fewer or shorter ones", name
        )
