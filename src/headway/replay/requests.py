"""Recorded arrivals as the requests that they were, but for what they said."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import get_args, get_type_hints

from headway.core.config import SchedulerConfig
from headway.core.request import RepetitionDetection, Request, SamplingParams, TimeLimits
from headway.drive.recording import Arrival, RecordingHeader
from headway.replay.tokens import STOP_TOKEN
from headway.simulator.config import check_num_blocks

# Of tokens none of which equals the one before it, only an output's last can break this.
_ENDS_BY_TWO_EQUAL = RepetitionDetection(max_pattern_size=1, min_count=2)
_STOPS = frozenset({STOP_TOKEN})


def recorded_config(header: RecordingHeader) -> SchedulerConfig:
    """The scheduler's settings. Raises ValueError for a header that sets up no scheduler."""
    try:
        _check_settings(header.scheduler)
        check_num_blocks(header.num_blocks)
        config = SchedulerConfig(**_in_use(header.scheduler))  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"the recording's header: {error}") from error
    if "block_size" not in header.scheduler:  # by which its blocks are cut
        raise ValueError("the recording's header: scheduler.block_size is missing")
    return config


def _in_use(settings: Mapping[str, object]) -> dict[str, object]:
    """Without the risk that nobody took: it may be the usual one of when it was recorded."""
    taken = dict(settings)
    if taken.get("kv_policy") != "predict":
        taken.pop("kv_risk", None)
    return taken


def _check_settings(settings: Mapping[str, object]) -> None:
    """Those that are missing are the usual ones."""
    types = get_type_hints(SchedulerConfig)
    for name, value in settings.items():
        if name not in types:
            raise ValueError(f"scheduler.{name} is no setting of this scheduler")
        wanted = get_args(types[name]) or (types[name],)
        if type(value) not in wanted and not (float in wanted and type(value) is int):
            names = " or ".join("null" if one is NoneType else one.__name__ for one in wanted)
            raise ValueError(f"scheduler.{name} must be of type {names}, got {value!r:.100}")


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
