"""Messages between the API process and the engine process, and their msgpack codec.

Core types cross as they are: requests go down, events come up, so that the API process can run the
same folds over them as the engine would.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby, repeat
from typing import Any

import msgspec

from headway.core import events as core_events
from headway.core.events import (
    Advanced,
    Advances,
    Event,
    Names,
    besides_decodes,
    new_tuple,
)
from headway.core.request import FinishReason, Request


class SubmitMessage(msgspec.Struct, tag="submit", frozen=True):
    request: Request


class WithdrawMessage(msgspec.Struct, tag="withdraw", frozen=True):
    request_id: str
    index: int | None = None
    reason: FinishReason = FinishReason.ABORT
    detail: str = ""


class ShutdownMessage(msgspec.Struct, tag="shutdown", frozen=True):
    """Stop at once; whatever is left is aborted."""


class ResetPrefixCacheMessage(msgspec.Struct, tag="reset_prefix_cache", frozen=True):
    """Forget which blocks hold what; running sequences keep theirs."""


class EngineFacts(msgspec.Struct, frozen=True):
    """What the engine decided at start; the API process checks requests against it."""

    model: str
    dtype: str
    backend: str
    backend_reason: str  # why this one, as a sentence
    num_threads: int
    vocab_size: int
    max_model_len: int
    block_size: int
    num_blocks: int
    kv_cache_dtype: str
    kv_bytes_per_token: int
    max_num_seqs: int
    max_num_batched_tokens: int
    enable_prefix_caching: bool
    kv_policy: str
    stop_token_ids: list[int]
    max_logprobs: int
    phases_ms: dict[str, float]  # start-up: what took how long
    scheduling_policy: str = "fcfs"
    max_tenant_seqs: int = 0
    quantization: str | None = None  # of the weights; None: they are `dtype`
    enable_trace_replay: bool = False  # whether requests may force their output

    @property
    def precision(self) -> str:
        """`dtype`, and the weights' own format if they have one: "bfloat16-int8"."""
        return f"{self.dtype}-{self.quantization}" if self.quantization else self.dtype


class EngineStats(msgspec.Struct, array_like=True, frozen=True):
    """The state between two steps. Blocks: free + held + cached = total."""

    step_index: int
    num_running: int
    num_waiting: int
    num_total_blocks: int
    num_held_blocks: int
    num_cached_blocks: int  # free, but findable by the prefix cache
    num_resident_tokens: int
    num_backlog_tokens: int = 0  # known tokens still to compute, of the waiting and the running
    waiting_reasons: dict[str, int] = {}  # how many wait for what, by Blocker value


class TokenLogprobs(msgspec.Struct, frozen=True):
    """One position: the token there, its logprob and rank (from 1), and the most likely tokens."""

    token_id: int
    logprob: float
    rank: int
    top: list[tuple[int, float]]


class SequenceLogprobs(msgspec.Struct, frozen=True):
    """Logprobs that came with a turn; `prompt[i]` is None for the very first prompt token."""

    sequence_id: int
    output: list[TokenLogprobs] = []
    prompt: list[TokenLogprobs | None] = []


class ReadyMessage(msgspec.Struct, tag="ready", frozen=True):
    facts: EngineFacts


class FailedMessage(msgspec.Struct, tag="failed", frozen=True):
    """The engine cannot start or cannot go on; `message` is one sentence for people."""

    message: str


class StepTrace(msgspec.Struct, array_like=True, frozen=True):
    """When a step ran, for whom, and what the first of those that wait waited for.

    `chunks` are (sequence id, first position, tokens), of all but the decodes.
    """

    index: int
    start_ns: int
    end_ns: int
    chunks: Sequence[tuple[int, int, int]]
    num_decodes: int = 0
    decode_attended: int = 0  # tokens, summed over the decodes
    blocker: str | None = None  # a Blocker value


class EventRecord(msgspec.Struct, array_like=True, frozen=True):
    """One event, or a run of `Advanced`: a step gives every running sequence one.

    Of those that decode together it is a token each, in the order of `names`: their ids, encoded.
    """

    kind: str
    fields: Any = None
    advanced: list[Advanced] = []
    token_ids: bytes = b""  # four each
    names: bytes = b""


class TurnMessage(msgspec.Struct, tag="turn", frozen=True):
    """One turn of the engine loop. Also sent with no events as a sign of life."""

    now_ns: int  # CLOCK_MONOTONIC, the same clock in both processes
    events: list[EventRecord]
    logprobs: list[SequenceLogprobs]
    stats: EngineStats
    step: StepTrace | None = None  # the step that gave these events, where the engine traces steps


class AliveMessage(msgspec.Struct, tag="alive", frozen=True):
    """Sent every second by a thread of its own, also while a step runs."""

    now_ns: int
    step_index: int  # of the step in progress, or of the next one
    step_began_ns: int | None = None  # None between steps
    step_num_tokens: int = 0


ToEngine = SubmitMessage | WithdrawMessage | ResetPrefixCacheMessage | ShutdownMessage
FromEngine = ReadyMessage | FailedMessage | TurnMessage | AliveMessage

_EVENT_TYPES: dict[str, Any] = {
    name: getattr(core_events, name)
    for name in (
        "Queued",
        "Admitted",
        "Resumed",
        "Preempted",
        "Retired",
        "Aborted",
        "Rejected",
    )
}
_encoder = msgspec.msgpack.Encoder()
_names = msgspec.msgpack.Decoder(tuple[tuple[int, ...], tuple[str, ...]])
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_from_engine = msgspec.msgpack.Decoder(FromEngine)


def encode(message: ToEngine | FromEngine) -> bytes:
    return _encoder.encode(message)


def decode_to_engine(data: bytes) -> ToEngine:
    """Raises msgspec.DecodeError or msgspec.ValidationError on garbage."""
    return _to_engine.decode(data)


def decode_from_engine(data: bytes) -> FromEngine:
    """Raises msgspec.DecodeError or msgspec.ValidationError on garbage."""
    return _from_engine.decode(data)


def pack_events(events: Sequence[Event]) -> list[EventRecord]:
    records: list[EventRecord] = []
    if isinstance(events, Advances):
        names = _encoded(events.names)
        token_ids = array("i", events.token_ids).tobytes()
        records.append(EventRecord("Advanced", token_ids=token_ids, names=names))
    for kind, run in groupby(besides_decodes(events), key=type):
        if kind is Advanced:
            records.append(EventRecord(kind.__name__, advanced=list(run)))  # type: ignore[arg-type]
        else:
            records += [EventRecord(kind.__name__, event) for event in run]
    return records


def unpack_events(records: Sequence[EventRecord]) -> list[Event]:
    events: list[Event] = []
    for record in records:
        if record.token_ids:
            token_ids = array("i", record.token_ids)
            fields = zip(*_decoded(record.names), zip(token_ids), strict=True)
            events += map(new_tuple, repeat(Advanced), fields)
        elif record.advanced:
            events += record.advanced
        else:
            events.append(msgspec.convert(record.fields, _EVENT_TYPES[record.kind]))
    return events


@lru_cache(maxsize=1)  # they stay the same for many turns
def _encoded(names: Names) -> bytes:
    return _encoder.encode((names.sequence_ids, names.request_ids))


@lru_cache(maxsize=1)
def _decoded(names: bytes) -> tuple[tuple[int, ...], tuple[str, ...]]:
    return _names.decode(names)
