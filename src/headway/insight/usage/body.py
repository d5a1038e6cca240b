"""A JSON object of a usage file: an answer's body, a chunk of a streamed one, or a bare usage.

Only what is asked for here is decoded: texts and tokens, which make files large, are skipped.
What a program has put around a body is unwrapped: a line of a batch's output, an event of a
stream, a log of our own with the request beside the response.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw, Struct

from headway.insight.usage.answer import (
    Answer,
    Ending,
    UnusableError,
    count_of,
    ending_of,
    lenient,
    milliseconds_of,
    plain_text,
)
from headway.insight.usage.times import seconds_of

_DEEPEST = 4  # objects round a body
_MOST_CHOICES = 1000
_HTTP_ERROR = 400
_ANSWERS = ("chat.completion", "text_completion")
_EVENTS = ("response.", "message", "content_block")  # of a stream whose last has the usage


class _Usage(Struct):
    prompt_tokens: Any = None
    completion_tokens: Any = None
    input_tokens: Any = None
    output_tokens: Any = None
    cached_tokens: Any = None
    cache_read_input_tokens: Any = None
    prompt_tokens_details: Raw = Raw()
    input_tokens_details: Raw = Raw()


class _Choice(Struct):
    finish_reason: Any = None
    index: Any = None


class _Metrics(Struct):
    queue_time_ms: Any = None
    preemptions: Any = None


class _Object(_Usage):
    usage: Raw = Raw()
    choices: Raw = Raw()
    metrics: Raw = Raw()
    id: Any = None
    object: Any = None
    type: Any = None
    status: Any = None
    incomplete_details: Raw = Raw()
    reason: Any = None
    finish_reason: Any = None
    stop_reason: Any = None
    model: Any = None
    adapter: Any = None
    created: Any = None
    created_at: Any = None
    timestamp: Any = None
    arrival_s: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    status_code: Any = None
    error: Raw = Raw()
    request: Raw = Raw()
    response: Raw = Raw()
    body: Raw = Raw()


@dataclass(frozen=True, slots=True)
class Part:
    """What one line says of an answer; `used` is None where it has no usage."""

    key: str  # of the stream that it is a chunk of; "" for a whole answer
    num_choices: int  # that it speaks of; 0 in the last chunk of a stream
    ending: Ending
    used: Answer | None

    @property
    def is_last(self) -> bool:
        return self.used is not None and not self.num_choices


_decode = msgspec.json.Decoder(_Object).decode
_decode_usage = msgspec.json.Decoder(_Usage).decode
_decode_metrics = msgspec.json.Decoder(_Metrics).decode
_decode_choices = msgspec.json.Decoder(list[_Choice]).decode


def part_of(line: bytes) -> Part | None:
    """What a line says; None for one that may be there and says nothing of usage.

    Raises UnusableError, for an answer that is an error as well.
    """
    top = _object_of(line)
    if top is None:
        raise UnusableError("no JSON object")
    chain = list(_unwrapped(top))
    body = next((one for one in chain if _says_usage(one)), chain[-1])
    if not _says_usage(body):
        return _without_usage(chain, body)
    return _part(chain, body)


def _object_of(raw: Raw | bytes) -> _Object | None:
    text = bytes(raw).lstrip()
    if not text.startswith(b"{"):
        return None
    try:
        return _decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _unwrapped(top: _Object) -> Iterator[_Object]:
    """The object, and what is in it one in another."""
    one: _Object | None = top
    for _ in range(_DEEPEST):
        if one is None:
            return
        yield one
        one = _object_of(one.response) or _object_of(one.body)


def _usage_of(body: _Object) -> _Usage:
    """Its usage, or itself where it is one."""
    text = bytes(body.usage)
    if not text.startswith(b"{"):
        return body
    try:
        return _decode_usage(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _Usage()


def _says_usage(body: _Object) -> bool:
    usage = _usage_of(body)
    return (usage.completion_tokens, usage.output_tokens) != (None, None)


def _without_usage(chain: list[_Object], body: _Object) -> Part | None:
    if any(_is_error(one) for one in chain):
        raise UnusableError("an error in place of an answer")
    if isinstance(body.object, str) and body.object.startswith(_ANSWERS):
        num_choices, ending = _choices(body)
        key = plain_text(body.id)
        if key and _is_chunk(body):
            return Part(key, num_choices, ending, None)
    if isinstance(chain[0].type, str) and chain[0].type.startswith(
        ("response.", "message", "cont")
    ):
        return None  # an event of a stream whose last has the usage
    raise UnusableError("no usage in it")


def _is_error(one: _Object) -> bool:
    is_refused = isinstance(one.status_code, int) and one.status_code >= _HTTP_ERROR
    return is_refused or bytes(one.error)[:1] in (b"{", b'"')


def _is_chunk(body: _Object) -> bool:
    """A stream's; those of /v1/completions are called as whole answers are."""
    num_choices, ending = _choices(body)
    if body.object == "chat.completion.chunk":
        return True
    if body.object != "text_completion":
        return False
    return not bytes(body.usage).startswith(b"{") or not num_choices or ending is Ending.UNKNOWN


def _choices(body: _Object) -> tuple[int, Ending]:
    """How many, and why the first ended; "cut off" if any was."""
    text = bytes(body.choices)
    if not text.startswith(b"["):
        return 0, ending_of(body.finish_reason)
    try:
        choices = _decode_choices(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return 0, Ending.UNKNOWN
    # A chunk has one of several choices.
    last = max((c.index for c in choices if type(c.index) is int), default=0)
    count = min(max(len(choices), last + 1), _MOST_CHOICES) if choices else 0
    endings = [ending_of(choice.finish_reason) for choice in choices]
    if Ending.LENGTH in endings:
        return count, Ending.LENGTH
    return count, endings[0] if endings else ending_of(body.finish_reason)


def _part(chain: list[_Object], body: _Object) -> Part:
    usage, (num_choices, ending) = _usage_of(body), _choices(body)
    key = plain_text(body.id) if _is_chunk(body) else ""
    if not key and ending is Ending.UNKNOWN:
        ending = _ending_of_response(body)
    metrics = _metrics_of(body)
    completion_tokens = count_of(_either(usage.completion_tokens, usage.output_tokens))
    assert completion_tokens is not None
    used = Answer(
        completion_tokens=completion_tokens,
        prompt_tokens=count_of(_either(usage.prompt_tokens, usage.input_tokens)),
        cached_tokens=lenient(count_of, _cached(usage)),
        max_tokens=lenient(count_of, _declared(chain)),
        ending=ending,
        model=_first_text(chain, "model"),
        adapter=_first_text(chain, "adapter"),
        num_choices=max(1, num_choices),
        at_s=_time(chain),
        num_preemptions=lenient(count_of, metrics.preemptions),
        queue_ms=lenient(milliseconds_of, metrics.queue_time_ms),
    )
    return Part(key, num_choices, ending, used)


def _ending_of_response(body: _Object) -> Ending:
    """Of /v1/responses, or of whoever puts the reason beside the usage."""
    if body.status == "incomplete":
        details = _object_of(body.incomplete_details)
        return Ending.OTHER if details is None else ending_of(details.reason)
    return ending_of(_either(body.finish_reason, _either(body.stop_reason, body.status)))


def _metrics_of(body: _Object) -> _Metrics:
    try:
        return _decode_metrics(body.metrics)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _Metrics()


def _cached(usage: _Usage) -> Any:
    for details in (usage.prompt_tokens_details, usage.input_tokens_details):
        inner = _object_of(details)
        if inner is not None and inner.cached_tokens is not None:
            return inner.cached_tokens
    return _either(usage.cached_tokens, usage.cache_read_input_tokens)


def _declared(chain: list[_Object]) -> Any:
    """Of the request where that is in the file, else of what the answer repeats of it."""
    requests = [_object_of(one.request) for one in chain]
    for one in (*requests, *(_object_of(r.body) for r in requests if r is not None), *chain):
        if one is not None:
            given = _either(
                one.max_completion_tokens, _either(one.max_tokens, one.max_output_tokens)
            )
            if given is not None:
                return given
    return None


def _first_text(chain: list[_Object], name: str) -> str:
    return next((text for one in chain if (text := plain_text(getattr(one, name)))), "")


def _time(chain: list[_Object]) -> float | None:
    for one in chain:
        for given in (one.arrival_s, one.timestamp, one.created, one.created_at):
            if given is not None:
                return lenient(seconds_of, given)
    return None


def _either(first: Any, second: Any) -> Any:
    return second if first is None else first
