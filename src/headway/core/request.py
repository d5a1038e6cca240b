"""What a client asked for: frozen values that nobody writes to after construction."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MAX_SEED = 2**63 - 1
MAX_PATTERN_SIZE = 1024  # each token is compared with as many before it
MAX_PATTERN_COUNT = 2**31 - 1


class FinishReason(enum.Enum):
    """Why a sequence ended; the values are the ones the OpenAI API prints."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    REPETITION = "repetition"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionDetection:
    """End a sequence whose output ends in one pattern of tokens, over and over.

    Patterns of `min_pattern_size` (0 means 1) to `max_pattern_size` tokens, `min_count` times in
    a row. Names and meanings are vLLM's. Raises ValueError with a sentence.
    """

    max_pattern_size: int
    min_pattern_size: int = 0
    min_count: int = 2

    def __post_init__(self) -> None:
        for name, least, most in (
            ("min_pattern_size", 0, MAX_PATTERN_SIZE),
            ("max_pattern_size", max(1, self.min_pattern_size), MAX_PATTERN_SIZE),
            ("min_count", 2, MAX_PATTERN_COUNT),
        ):
            value, rule = getattr(self, name), f"in [{least}, {most}]"
            _require(least <= value <= most, f"repetition_detection.{name}", value, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to choose tokens; names, ranges and defaults are vLLM's.

    `temperature=0` is greedy. `top_k` of 0 or -1 is off. `logprobs` and `prompt_logprobs` are the
    number of alternatives to report, None for none. `seed` None lets the engine choose one.
    Raises ValueError, with a sentence that says what to do, when a value is out of range.
    """

    n: int = 1
    max_tokens: int | None = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None
    repetition_detection: RepetitionDetection | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _as_tuple(self.stop))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        object.__setattr__(self, "logit_bias", dict(self.logit_bias or {}))
        for name in ("allowed_token_ids", "bad_words"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.top_k == -1:
            object.__setattr__(self, "top_k", 0)
        _check_counts(self)
        _check_numbers(self)
        _check_stops(self)
        _check_masks(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """When to give a request up. Nanoseconds on the clock of `arrival_ns`; None is no limit."""

    max_queue_ns: int | None = None  # from arrival to the first admission
    max_run_ns: int | None = None  # from the first admission to the end
    deadline_ns: int | None = None  # a point in time, not a span


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One client request as the scheduler sees it.

    `stop_token_ids` is the union of the model's end-of-sequence ids (unless `ignore_eos`) and the
    client's own; the scheduler ends a sequence at any of them. `seed` is resolved: never None.
    `priority`: lower is more urgent. `cache_salt` and `adapter` separate prefix-cache entries.
    `bad_word_ids`: token sequences of which none may be completed. `forced_token_ids`: the output,
    given beforehand; the model only scores it, and it ends with the last of them, whatever
    `max_tokens` and the stop ids say.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    stop_token_ids: frozenset[int] = frozenset()
    seed: int = 0
    arrival_ns: int = 0
    priority: int = 0
    tenant: str = ""
    adapter: str = ""
    cache_salt: str = ""
    bad_word_ids: tuple[tuple[int, ...], ...] = ()
    forced_token_ids: tuple[int, ...] = ()
    limits: TimeLimits = TimeLimits()

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def max_output_tokens(self) -> int | None:
        """Where the client wants the output to end at the latest; None: no limit."""
        return len(self.forced_token_ids) or self.sampling.max_tokens


def _as_tuple(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _check_counts(params: SamplingParams) -> None:
    least, most, seed = params.min_tokens, params.max_tokens, params.seed
    _require(params.n >= 1, "n", params.n, "at least 1")
    _require(most is None or most >= 1, "max_tokens", most, "at least 1")
    _require(least >= 0, "min_tokens", least, "at least 0")
    if most is not None:
        _require(least <= most, "min_tokens", least, f"at most max_tokens={most}")
    _require(params.top_k >= 0, "top_k", params.top_k, "0 or -1 (off) or at least 1")
    for name in ("logprobs", "prompt_logprobs"):
        value = getattr(params, name)
        _require(value is None or value >= 0, name, value, "at least 0")
    _require(seed is None or -MAX_SEED <= seed <= MAX_SEED, "seed", seed, "a 64-bit integer")


def _check_numbers(params: SamplingParams) -> None:
    penalties = ("presence_penalty", "frequency_penalty")
    for name in ("temperature", "top_p", "min_p", *penalties, "repetition_penalty"):
        value = getattr(params, name)
        _require(math.isfinite(value), name, value, "a finite number")
    _require(params.temperature >= 0, "temperature", params.temperature, "at least 0")
    _require(0 < params.top_p <= 1, "top_p", params.top_p, "in (0, 1]")
    _require(0 <= params.min_p <= 1, "min_p", params.min_p, "in [0, 1]")
    for name in penalties:
        value = getattr(params, name)
        _require(-2 <= value <= 2, name, value, "in [-2, 2]")
    factor = params.repetition_penalty
    _require(factor > 0, "repetition_penalty", factor, "greater than 0")
    for token_id, bias in params.logit_bias.items():
        holds, rule = token_id >= 0 and math.isfinite(bias), "token ids with finite numbers"
        _require(holds, "logit_bias", {token_id: bias}, rule)


def _check_stops(params: SamplingParams) -> None:
    stops, ids = params.stop or (), params.stop_token_ids or ()
    are_texts = all(isinstance(stop, str) and stop for stop in stops)
    _require(are_texts, "stop", stops, "non-empty strings")
    _require(_are_ids(ids), "stop_token_ids", ids, "token ids of at least 0")


def _check_masks(params: SamplingParams) -> None:
    allowed, words = params.allowed_token_ids, params.bad_words or ()
    holds = allowed is None or (bool(allowed) and _are_ids(allowed))
    _require(holds, "allowed_token_ids", allowed, "at least one token id, each of at least 0")
    are_words = all(isinstance(word, str) and word.strip() for word in words)
    _require(are_words, "bad_words", words, "strings with more than spaces in them")


def _are_ids(values: Sequence[int]) -> bool:
    return all(isinstance(value, int) and value >= 0 for value in values)


def _require(holds: bool, name: str, value: object, rule: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {rule}, got {value!r}")
