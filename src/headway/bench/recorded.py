"""A server's recording as a load: the same times, lengths and equal beginnings, other words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headway.replay.traffic import RecordedScript, RecordedTraffic
from headway.simulator.workload.base import MAX_NAME, ClientRequest, Segment

_LONGEST_OPEN = 1 << 14  # tokens of an output of which the recording knows no end


@dataclass(frozen=True, slots=True)
class RecordedWorkload:
    """`block_size`: of the recording. `first`: so many requests. `time_scale` stretches time."""

    recorded: RecordedTraffic
    block_size: int
    first: int | None = None
    time_scale: float = 1.0

    def traffic(self) -> _Traffic:
        return _Traffic(self)

    @property
    def num_requests(self) -> int:
        return len(self.recorded) if self.first is None else min(self.first, len(self.recorded))

    def at_rate(self, rate: float) -> RecordedWorkload:
        """Stretched to so many requests a second. Raises ValueError where all come at once."""
        *_, last = self.traffic().arrivals()
        if not last.arrival_ns:
            raise ValueError("the recording's requests all came at once: there is no rate")
        now = (self.num_requests - 1) * 1e9 / last.arrival_ns
        scale = self.time_scale * now / rate
        return RecordedWorkload(self.recorded, self.block_size, self.first, scale)


class _Traffic:
    def __init__(self, workload: RecordedWorkload) -> None:
        self._workload = workload

    def arrivals(self) -> Iterator[ClientRequest]:
        """Raises ValueError for a recording without a request."""
        workload = self._workload
        if not workload.num_requests:
            raise ValueError("the recording has no requests")
        scripts = zip(range(workload.num_requests), workload.recorded.scripts(), strict=False)
        for place, script in scripts:
            yield _client(script, place, workload)

    def follow_up(self, ended: ClientRequest, now_ns: int) -> Iterable[ClientRequest]:
        return ()


def _client(script: RecordedScript, place: int, workload: RecordedWorkload) -> ClientRequest:
    request = script.request
    arrival_ns = request.arrival_ns
    leaves_ns = script.leaves_ns
    longest = request.max_output_tokens or _LONGEST_OPEN
    return ClientRequest(
        request_id=request.request_id,
        arrival_ns=round(arrival_ns * workload.time_scale),
        prompt=_segments(request.prompt_token_ids, place, workload.block_size),
        output=Segment(MAX_NAME, max(1, min(script.num_output_tokens(0), longest))),
        tenant=request.tenant,
        adapter=request.adapter,
        priority=request.priority,
        leaves_after_ns=None if leaves_ns is None else max(1, leaves_ns - arrival_ns),
    )


def _segments(tokens: tuple[int, ...], place: int, block_size: int) -> tuple[Segment, ...]:
    """A text for each full block, which its last token names; its own for what is left."""
    names = tokens[block_size - 1 :: block_size]
    segments = [Segment(name, block_size) for name in names]
    if rest := len(tokens) % block_size:
        segments.append(Segment(MAX_NAME - 1 - place, rest))
    return tuple(segments)
