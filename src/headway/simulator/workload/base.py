"""What a simulated client asks for, and a workload as a stream of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

MAX_NAME = 2**31 - 2  # a name serves as a token id; the one above ends an output


class Segment(NamedTuple):
    """The first `num_tokens` tokens of a text called `name`, a number in [0, MAX_NAME].

    Texts of equal names begin with equal tokens; what follows equal beginnings is found by the
    prefix cache. Texts of different names have nothing in common.
    """

    name: int
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """A request with the output that it will get. Times in nanoseconds from the start of the run.

    `prompt`: texts one after another, at least one token. `output`: at least one token; it ends
    there unless `max_tokens`, which the client declares (None: no limit), or the model's length
    ends it before. A name that no other request uses makes a text of its own.
    """

    request_id: str
    arrival_ns: int
    prompt: tuple[Segment, ...]
    output: Segment
    max_tokens: int | None = None
    tenant: str = ""
    adapter: str = ""
    priority: int = 0
    leaves_after_ns: int | None = None  # the client goes away so long after arriving
    max_queue_ns: int | None = None
    deadline_ns: int | None = None

    @property
    def num_prompt_tokens(self) -> int:
        return sum(segment.num_tokens for segment in self.prompt)


class Traffic(Protocol):
    """One run of a workload."""

    def arrivals(self) -> Iterator[ClientRequest]:
        """Requests whose time is known beforehand, in order of arrival; made when asked for."""
        ...

    def follow_up(self, ended: ClientRequest, now_ns: int) -> Iterable[ClientRequest]:
        """Requests that come because this one has ended: a next turn, a closed loop's next.

        None of them arrives before `now_ns`.
        """
        ...


class Workload(Protocol):
    def traffic(self) -> Traffic:
        """A fresh run: the same requests each time."""
        ...
