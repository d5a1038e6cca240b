"""Recorded arrivals as the requests that they were, but for what they said."""

from __future__ import annotations

from headway.core.config import SchedulerConfig
from headway.core.request import RepetitionDetection, Request, SamplingParams, TimeLimits
from headway.drive.recording import Arrival, RecordingHeader
from headway.replay.tokens import STOP_TOKEN

# Of tokens none of which equals the one before it, only an output's last can break this.
_ENDS_BY_TWO_EQUAL = RepetitionDetection(max_pattern_size=1, min_count=2)
_STOPS = frozenset({STOP_TOKEN})


def recorded_config(header: RecordingHeader) -> SchedulerConfig:
    """The scheduler's settings. Raises ValueError for a header without them."""
    try:
        return SchedulerConfig(**header.scheduler)  # type: ignore[arg-type]
    except TypeError as error:
        raise ValueError(f"the header has no settings of a scheduler: {error}") from error


def request_of(arrival: Arrival, prompt: tuple[int, ...], *, may_repeat: bool = False) -> Request:
    """`may_repeat`: two equal tokens in a row end an output. Raises ValueError with a sentence."""
    try:
        sampling = SamplingParams(
            n=arrival.n,
            max_tokens=arrival.max_tokens,
            min_tokens=arrival.min_tokens,
            ignore_eos=arrival.ignore_eos,
            prompt_logprobs=arrival.prompt_logprobs,
            repetition_detection=_ENDS_BY_TWO_EQUAL if may_repeat else None,
        )
    except ValueError as error:
        raise ValueError(f"request {arrival.request_id!r}: {error}") from error
    return Request(
        request_id=arrival.request_id,
        prompt_token_ids=prompt,
        sampling=sampling,
        stop_token_ids=_STOPS,
        arrival_ns=arrival.arrival_ns,
        priority=arrival.priority,
        tenant=arrival.tenant,
        adapter=arrival.adapter,
        forced_token_ids=(0,) * arrival.num_forced_tokens,
        limits=TimeLimits(
            max_queue_ns=arrival.max_queue_ns,
            max_run_ns=arrival.max_run_ns,
            deadline_ns=arrival.deadline_ns,
        ),
    )
