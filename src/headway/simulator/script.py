"""A request together with the output that it will get."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from functools import cache
from typing import Protocol

from headway.core.request import Request, SamplingParams, TimeLimits
from headway.simulator.workload.base import MAX_NAME, ClientRequest

END_TOKEN = MAX_NAME + 1  # the last token of every output


class HasRequest(Protocol):
    @property
    def request(self) -> Request: ...


class Script(HasRequest, Protocol):
    """What the simulator must know of a request. Its stop tokens must hold END_TOKEN."""

    @property
    def leaves_ns(self) -> int | None:
        """When the client goes away; None: it waits."""
        ...

    @property
    def filler(self) -> int | None:
        """The token that all its outputs consist of; None: ask for each."""
        ...

    def num_output_tokens(self, index: int) -> int:
        """How many tokens the request's sequence `index` gets before it ends by itself."""
        ...

    def output_token_ids(self, index: int, start: int, count: int) -> SequenceOf[int]:
        """Tokens [start, start + count) of that output; END_TOKEN takes the place of its last."""
        ...


class SyntheticScript:
    """Texts are one token over and over: a name. Raises ValueError for an output of none."""

    def __init__(self, client: ClientRequest) -> None:
        name, num_tokens = client.output
        if num_tokens < 1 or not 0 <= name <= MAX_NAME:
            raise ValueError(
                f"request {client.request_id!r}: an output has at least 1 token and a name between "
                f"0 and {MAX_NAME}, got {num_tokens} of {name}"
            )
        self.client = client
        self.request = _request_of(client)
        self.filler = client.output.name
        leaves = client.leaves_after_ns
        self.leaves_ns = None if leaves is None else client.arrival_ns + leaves

    def num_output_tokens(self, index: int) -> int:
        return self.client.output.num_tokens

    def output_token_ids(self, index: int, start: int, count: int) -> SequenceOf[int]:
        return [self.client.output.name] * count


_END = frozenset({END_TOKEN})


def _request_of(client: ClientRequest) -> Request:
    prompt: tuple[int, ...] = ()
    for name, num_tokens in client.prompt:
        prompt += (name,) * num_tokens
    return Request(
        request_id=client.request_id,
        prompt_token_ids=prompt,
        sampling=_sampling(client.max_tokens),
        stop_token_ids=_END,
        arrival_ns=client.arrival_ns,
        priority=client.priority,
        tenant=client.tenant,
        adapter=client.adapter,
        limits=_limits(client),
    )


@cache
def _sampling(max_tokens: int | None) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens)


def _limits(client: ClientRequest) -> TimeLimits:
    if client.max_queue_ns is None and client.deadline_ns is None:
        return _NO_LIMITS
    return TimeLimits(max_queue_ns=client.max_queue_ns, deadline_ns=client.deadline_ns)


_NO_LIMITS = TimeLimits()
