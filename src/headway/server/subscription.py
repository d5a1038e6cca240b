"""Who waits for which sequence: one turn's events, sorted to the requests that they belong to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headway.core.events import (
    Aborted,
    Admitted,
    Advanced,
    Event,
    Preempted,
    Queued,
    Rejected,
    Resumed,
    Retired,
)
from headway.core.request import FinishReason, Request
from headway.wire import SequenceLogprobs, TokenLogprobs

Withdraw = Callable[[str, int | None, FinishReason], None]


class EngineDeadError(Exception):
    """The engine is gone; the message says how. `retry_after_s`: None where none will come."""

    def __init__(self, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class SequenceUpdate:
    """What one turn brought for one sequence. `num_cached_tokens` is set by its admission."""

    request_id: str
    index: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    num_cached_tokens: int | None = None
    ended: Retired | Aborted | None = None


Update = SequenceUpdate | Rejected
SequenceEvent = Queued | Admitted | Resumed | Preempted | Advanced | Retired | Aborted


class Subscription:
    """The updates of some requests that belong together, in order."""

    def __init__(self, requests: Sequence[Request], router: UpdateRouter, withdraw: Withdraw):
        self._live = {request.request_id: request.sampling.n for request in requests}
        self._updates: list[Update] = []
        self._death: EngineDeadError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._router = router
        self._withdraw = withdraw

    async def take(self) -> list[Update]:
        """What has come since the last call, at least one update: waits for it.

        Raises EngineDeadError when nothing more will come.
        """
        # A list and one future: a queue costs three times as much for each token of each stream.
        if not self._updates and self._death is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        updates, self._updates = self._updates, []
        if not updates and self._death is not None:
            raise self._death
        return updates

    def withdraw(self, request_id: str, index: int, reason: FinishReason) -> None:
        """End one sequence; its terminal event still comes."""
        self._withdraw(request_id, index, reason)

    def close(self) -> None:
        """Withdraw whatever has not ended. May be called again."""
        for request_id in list(self._live):
            self._withdraw(request_id, None, FinishReason.ABORT)
            self._router.forget(request_id)
        self._live.clear()

    def put(self, update: Update | EngineDeadError) -> None:
        if isinstance(update, EngineDeadError):
            self._death = update
        else:
            self._updates.append(update)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        match update:
            case Rejected(request_id=request_id):
                self._end(request_id, self._live.get(request_id, 0))
            case SequenceUpdate(request_id=request_id, ended=ended) if ended is not None:
                self._end(request_id, 1)
            case EngineDeadError():
                self._live.clear()

    def _end(self, request_id: str, num_sequences: int) -> None:
        left = self._live.get(request_id, 0) - num_sequences
        if left > 0:
            self._live[request_id] = left
        else:
            self._live.pop(request_id, None)
            self._router.forget(request_id)


class UpdateRouter:
    """Sequence ids are the engine's, request ids ours: `Queued` is what joins the two."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, Subscription] = {}
        self._sequences: dict[int, tuple[str, int]] = {}

    def open(self, requests: Sequence[Request], withdraw: Withdraw) -> Subscription:
        subscription = Subscription(requests, self, withdraw)
        for request in requests:
            self._subscriptions[request.request_id] = subscription
        return subscription

    def forget(self, request_id: str) -> None:
        self._subscriptions.pop(request_id, None)

    def fail_all(self, error: EngineDeadError) -> None:
        for subscription in set(self._subscriptions.values()):
            subscription.put(error)
        self._subscriptions.clear()
        self._sequences.clear()

    def deliver(self, events: Sequence[Event], logprobs: Sequence[SequenceLogprobs]) -> None:
        """One update per sequence and turn, so that a stop token and its `Retired` come at once."""
        updates: dict[int, SequenceUpdate] = {}
        for event in events:
            if isinstance(event, Rejected):
                self._put(event)
            else:
                self._fold(event, updates)
        for item in logprobs:
            update = self._update_of(item.sequence_id, updates)
            if update is not None:
                update.logprobs += item.output
                update.prompt_logprobs += item.prompt
        for sequence_id, update in updates.items():
            if update.ended is not None:
                self._sequences.pop(sequence_id, None)
            self._put(update)

    def _fold(self, event: SequenceEvent, updates: dict[int, SequenceUpdate]) -> None:
        if isinstance(event, Queued) and event.request_id in self._subscriptions:
            self._sequences[event.sequence_id] = (event.request_id, event.index)
        update = self._update_of(event.sequence_id, updates)
        if update is None:
            return  # its client has gone
        match event:
            case Admitted():
                update.num_cached_tokens = event.num_cached_tokens
            case Advanced():
                update.token_ids += event.token_ids
            case Retired() | Aborted():
                update.ended = event

    def _update_of(
        self, sequence_id: int, updates: dict[int, SequenceUpdate]
    ) -> SequenceUpdate | None:
        if sequence_id not in updates:
            known = self._sequences.get(sequence_id)
            if known is None:
                return None
            updates[sequence_id] = SequenceUpdate(*known)
        return updates[sequence_id]

    def _put(self, update: Update) -> None:
        subscription = self._subscriptions.get(update.request_id)
        if subscription is not None:
            subscription.put(update)
