"""What a workload amounts to: the figures to publish beside a result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice

import numpy as np

from headway.simulator.workload.base import ClientRequest, Segment, Traffic, Workload
from headway.simulator.workload.lengths import LengthLaw
from headway.simulator.workload.synthetic import Synthetic
from headway.simulator.workload.traces.trace import TraceFile
from headway.simulator.workload.waits import SECOND


@dataclass(frozen=True, slots=True)
class Moments:
    """Of a column; percentiles are the least values that so large a share does not exceed."""

    mean: float
    standard_deviation: float
    minimum: int
    p50: int
    p90: int
    p99: int
    maximum: int

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        p50, p90, p99 = np.percentile(values, (50, 90, 99), method="inverted_cdf")
        return cls(
            float(values.mean()),
            float(values.std()),
            int(values.min()),
            int(p50),
            int(p90),
            int(p99),
            int(values.max()),
        )

    @classmethod
    def of_law(cls, law: LengthLaw) -> Moments:
        return cls(
            law.mean(),
            law.standard_deviation(),
            int(law.values[0]),
            law.quantile(0.5),
            law.quantile(0.9),
            law.quantile(0.99),
            int(law.values[-1]),
        )


@dataclass(frozen=True, slots=True)
class Description:
    """Moments of the requests, as if every one were answered at once.

    `is_whole`: all requests were counted, not only the first. `num_sessions`: of `num_requests`,
    those that follow no answer; the rate and the burstiness are theirs. `burstiness`: standard
    deviation of the gaps between arrivals over their mean; 1 for Poisson, None where there are no
    gaps. `shared_share`: prompt tokens that a cache which never forgets would find, over all.
    `prompt_law`, `output_law`: the exact moments of the laws that lengths are drawn from.
    """

    num_requests: int
    num_sessions: int
    is_whole: bool
    span_s: float
    rate: float | None
    burstiness: float | None
    prompt_tokens: Moments
    output_tokens: Moments
    shared_share: float
    tenants: dict[str, int]
    notes: tuple[str, ...] = ()
    prompt_law: Moments | None = None
    output_law: Moments | None = None

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def describe(workload: Workload, max_requests: int = 100_000) -> Description:
    """The moments of a workload's first requests. Raises what reading the workload raises."""
    known, tenants = _KnownTexts(), dict[str, int]()
    arrivals_ns: list[int] = []
    prompts: list[int] = []
    outputs: list[int] = []
    requests = _answered_at_once(workload.traffic())
    for request, is_first in islice(requests, max_requests):
        if is_first:
            arrivals_ns.append(request.arrival_ns)
        known.read(request)
        prompts.append(request.num_prompt_tokens)
        outputs.append(request.output.num_tokens)
        tenants[request.tenant] = tenants.get(request.tenant, 0) + 1
    if not prompts:
        raise ValueError("the workload makes no requests")
    gaps = np.diff(np.array(arrivals_ns, dtype=np.int64))
    span_ns = int(gaps.sum())
    prompt_law, output_law = _laws(workload)
    return Description(
        num_requests=len(prompts),
        num_sessions=len(arrivals_ns),
        is_whole=next(requests, None) is None,
        span_s=span_ns / SECOND,
        rate=len(gaps) * SECOND / span_ns if span_ns else None,
        burstiness=float(gaps.std() / gaps.mean()) if span_ns else None,
        prompt_tokens=Moments.of(np.array(prompts)),
        output_tokens=Moments.of(np.array(outputs)),
        shared_share=known.num_found / sum(prompts),
        tenants=dict(sorted(tenants.items())),
        notes=notes_of(workload),
        prompt_law=None if prompt_law is None else Moments.of_law(prompt_law),
        output_law=None if output_law is None else Moments.of_law(output_law),
    )


def _laws(workload: Workload) -> tuple[LengthLaw | None, LengthLaw | None]:
    if not isinstance(workload, Synthetic):
        return None, None
    return workload.prompt_tokens, workload.output_tokens


def notes_of(workload: object) -> tuple[str, ...]:
    """What of its file was left out or taken for granted, in sentences."""
    if isinstance(workload, Synthetic) and workload.conversations is not None:
        return (workload.conversations.source,)
    return workload.notes if isinstance(workload, TraceFile) else ()


def _answered_at_once(traffic: Traffic) -> Iterator[tuple[ClientRequest, bool]]:
    """Requests with what follows their answers; whether a request follows none."""
    for arrived in traffic.arrivals():
        yield arrived, True
        answered = [arrived]
        while answered:
            request = answered.pop()
            for follow_up in traffic.follow_up(request, request.arrival_ns):
                yield follow_up, False
                answered.append(follow_up)


class _KnownTexts:
    """All prompts with their outputs so far, as a tree of texts."""

    def __init__(self) -> None:
        self.num_found = 0
        self._longest: dict[tuple[int, int], int] = {}  # by node and name
        self._nodes: dict[tuple[int, int, int], int] = {}  # after so much of a text

    def read(self, request: ClientRequest) -> None:
        """Counts what of the prompt was there before, then remembers it and its output."""
        node, is_known = 0, True
        for segment in request.prompt:
            found, node = self._step(node, segment)
            if is_known:
                self.num_found += found
            is_known = is_known and found == segment.num_tokens
        self._step(node, request.output)

    def _step(self, node: int, segment: Segment) -> tuple[int, int]:
        name, num_tokens = segment
        longest = self._longest.get((node, name), 0)
        if num_tokens > longest:
            self._longest[node, name] = num_tokens
        place = (node, name, num_tokens)
        return min(longest, num_tokens), self._nodes.setdefault(place, len(self._nodes) + 1)
