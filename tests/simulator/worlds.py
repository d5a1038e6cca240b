"""Small simulated worlds for tests: workloads from lists, step times from a formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from headway.drive.record import StepRecord
from headway.simulator.step_time.base import StepShape
from headway.simulator.workload.base import ClientRequest, Segment


class Listed:
    """A workload of given requests; `then` makes what follows when one has ended."""

    def __init__(
        self,
        requests: Iterable[ClientRequest],
        then: Callable[[ClientRequest, int], Sequence[ClientRequest]] | None = None,
    ) -> None:
        self._requests = sorted(requests, key=lambda request: request.arrival_ns)
        self._then = then

    def traffic(self) -> Listed:
        return self

    def arrivals(self):
        return iter(self._requests)

    def follow_up(self, ended: ClientRequest, now_ns: int) -> Sequence[ClientRequest]:
        return self._then(ended, now_ns) if self._then else ()


class PerToken:
    """So many nanoseconds a step, a token, and an attended token."""

    def __init__(self, step: int = 1000, token: int = 100, attended: int = 1) -> None:
        self._step, self._token, self._attended = step, token, attended

    def step_ns(self, shape: StepShape) -> int:
        attended = shape.decode_attended + shape.prefill_attended
        return self._step + self._token * shape.num_tokens + self._attended * attended

    def terms_ns(self, shape: StepShape) -> Mapping[str, float]:
        return {"all": float(self.step_ns(shape))}


class Log:
    """Every step as it was decided."""

    def __init__(self) -> None:
        self.records: list[StepRecord] = []

    def on_step(self, record: StepRecord) -> None:
        self.records.append(record)

    @property
    def decisions(self) -> list[tuple[object, ...]]:
        return [record.decision for record in self.records]


def asks(
    name: int, prompt: int, output: int, *, at_ns: int = 0, prefix: int = 0, **fields
) -> ClientRequest:
    """A request called by its number; its first `prefix` tokens are everybody's."""
    own = Segment(2 * name + 2, prompt - prefix)
    shared = (Segment(1, prefix),) if prefix else ()
    return ClientRequest(
        request_id=str(name),
        arrival_ns=at_ns,
        prompt=(*shared, own) if own.num_tokens else shared,
        output=Segment(2 * name + 3, output),
        **fields,
    )
