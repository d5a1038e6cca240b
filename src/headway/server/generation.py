"""The choices of one HTTP request as a stream of deltas; a plain answer is the same, collected."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from headway.core.events import AbortCause, Aborted, RefusalCause, Rejected, Retired
from headway.core.request import FinishReason, Request
from headway.server.errors import ApiError, Problem
from headway.server.schema.answers import PromptTokensDetails, Usage
from headway.server.subscription import EngineDeadError, SequenceUpdate, Subscription
from headway.text.assembler import TextAssembler
from headway.text.endings import ends_unseen, stop_reason
from headway.text.tokenizer import Tokenizer
from headway.wire import TokenLogprobs

# What a client reads as stop_reason where a limit of the server's ended its choice.
_LIMIT_NAMES = {
    AbortCause.QUEUE_TIME: "max_queue_time_s",
    AbortCause.RUN_TIME: "max_request_seconds",
    AbortCause.DEADLINE: "deadline",
    AbortCause.UNREACHABLE: "deadline",
}


class ChoiceDelta(msgspec.Struct, frozen=True):  # one per token: a struct is made in no time
    """New text of one choice, with the tokens it came from; `is_first` of its choice."""

    index: int
    text: str
    token_ids: Sequence[int] = ()
    logprobs: Sequence[TokenLogprobs] = ()
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    is_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How deltas are cut. `interval`: tokens of a choice between two; None gives one at its end.

    `shows_output` is False where a prompt is only scored: the engine computes one token, because a
    prompt needs a pass, and it is neither shown nor counted. `follows_text`: see `Detokenizer`.
    """

    interval: int | None = 1
    shows_output: bool = True
    follows_text: bool = False


@dataclass(slots=True, eq=False)
class _Choice:
    """One sequence on its way to text, and what of it has not been given out."""

    index: int
    request: Request
    assembler: TextAssembler
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    is_begun: bool = False
    is_finished: bool = False


class Generation:
    """Some prompts times n choices. Choice i of prompt p has index p * n + i.

    Call `close` in the end: what has not ended is withdrawn from the engine. `retry_after_s` says
    when it is worth trying again, where a request waited too long.
    """

    def __init__(
        self,
        subscription: Subscription,
        requests: Sequence[Request],
        tokenizer: Tokenizer,
        delivery: Delivery,
        retry_after_s: Callable[[], int],
    ) -> None:
        self.requests = requests
        self.prompt_logprobs: dict[str, list[TokenLogprobs | None]] = {}
        self._subscription = subscription
        self._delivery = delivery
        self._retry_after_s = retry_after_s
        self._choices: dict[tuple[str, int], _Choice] = {}
        for request in requests:
            for index in range(request.sampling.n):
                assembler = TextAssembler(
                    tokenizer, request.sampling, follows_text=delivery.follows_text
                )
                choice = _Choice(len(self._choices), request, assembler)
                self._choices[request.request_id, index] = choice
        self._num_unfinished = len(self._choices)
        self._early: list[SequenceUpdate] = []
        self._num_output_tokens = 0
        self._has_tokens = False
        self._num_cached_tokens: dict[str, int] = {}  # of each request's first admission

    @property
    def num_choices(self) -> int:
        return len(self._choices)

    def usage(self) -> Usage:
        """Tokens so far, of the whole HTTP request."""
        num_prompt_tokens = sum(request.num_prompt_tokens for request in self.requests)
        num_output_tokens = self._num_output_tokens if self._delivery.shows_output else 0
        return Usage(
            num_prompt_tokens,
            num_output_tokens,
            num_prompt_tokens + num_output_tokens,
            PromptTokensDetails(sum(self._num_cached_tokens.values())),
        )

    def request_of(self, choice_index: int) -> Request:
        return self.requests[choice_index // self.requests[0].sampling.n]

    async def begun(self) -> None:
        """Wait until an answer can begin. Raises ApiError where there will be none.

        That is when the engine has taken every request; with a limit on waiting or a deadline,
        when there is a first token: what runs out of time before is told by the status.
        """
        waiting = {request.request_id for request in self.requests}
        while waiting or (self._may_run_out() and not self._has_output):
            updates = await self._next_updates()
            self._early += updates
            waiting -= {update.request_id for update in updates}

    async def batches(self) -> AsyncIterator[Iterable[ChoiceDelta]]:
        """What came together, until every choice has finished. Raises ApiError.

        Take each batch to its end before the next: `usage` counts up with it, delta by delta.
        """
        while self._num_unfinished:
            updates, self._early = self._early, []
            updates = updates or await self._next_updates()
            yield (delta for update in updates if (delta := self._advance(update)) is not None)

    async def collect(self) -> list[ChoiceDelta]:
        """The only delta of each choice, in order. For a delivery without interval."""
        deltas = [delta async for batch in self.batches() for delta in batch]
        return sorted(deltas, key=lambda delta: delta.index)

    def close(self) -> None:
        self._subscription.close()

    @property
    def _has_output(self) -> bool:
        return self._has_tokens or any(update.ended for update in self._early)

    def _may_run_out(self) -> bool:
        limits = [request.limits for request in self.requests]
        return any(x.max_queue_ns is not None or x.deadline_ns is not None for x in limits)

    async def _next_updates(self) -> list[SequenceUpdate]:
        """One turn's or more: what has come meanwhile is taken along."""
        try:
            updates = await self._subscription.take()
        except EngineDeadError as error:
            message = f"no answer: {error}"
            raise ApiError(
                Problem.ENGINE_DEAD, message, retry_after_s=error.retry_after_s
            ) from None
        return [self._noted(update) for update in updates]

    def _noted(self, update: SequenceUpdate | Rejected) -> SequenceUpdate:
        """Take down what belongs to the request, not to one choice. Raises ApiError."""
        if isinstance(update, Rejected):
            raise _refusal(update)
        if update.num_cached_tokens is not None:
            self._num_cached_tokens.setdefault(update.request_id, update.num_cached_tokens)
        if update.prompt_logprobs and update.index == 0:
            self.prompt_logprobs.setdefault(update.request_id, []).extend(update.prompt_logprobs)
        self._has_tokens = self._has_tokens or bool(update.token_ids)
        if isinstance(update.ended, Aborted):
            self._check_aborted(update.ended)
        return update

    def _check_aborted(self, ended: Aborted) -> None:
        """Raise where this end means that the whole request failed."""
        if ended.cause is AbortCause.ENGINE:
            raise ApiError(
                Problem.ENGINE_DEAD,
                ended.detail or "the engine died",
                retry_after_s=self._retry_after_s(),
            )
        if ended.cause is AbortCause.QUEUE_TIME and not self._has_tokens:
            raise ApiError(
                Problem.QUEUE_TIME,
                ended.detail or "the request waited longer than it may",
                retry_after_s=self._retry_after_s(),
            )
        if ended.cause is AbortCause.DEADLINE and not self._has_tokens:
            raise ApiError(Problem.DEADLINE, ended.detail or "the deadline passed")
        if ended.cause is AbortCause.UNREACHABLE and not self._has_tokens:
            raise ApiError(Problem.UNREACHABLE, ended.detail or "the deadline cannot be met")

    def _advance(self, update: SequenceUpdate) -> ChoiceDelta | None:
        choice = self._choices[update.request_id, update.index]
        if choice.is_finished:
            return None  # stopped by a string; this is the engine's confirmation
        stopped_by = self._push(choice, update)
        if stopped_by is not None:
            if update.ended is None:
                self._subscription.withdraw(update.request_id, update.index, FinishReason.STOP)
            return self._finish(choice, FinishReason.STOP, stopped_by)
        if update.ended is not None:
            return self._finish(choice, *_outcome(choice.request, update.ended))
        return self._take(choice) if self._is_due(choice) else None

    def _push(self, choice: _Choice, update: SequenceUpdate) -> str | None:
        """Add new tokens to what is to be given out; the stop string that they complete."""
        hidden = ends_unseen(choice.request.sampling, update.token_ids, update.ended)
        delta = choice.assembler.push(update.token_ids[:-1] if hidden else update.token_ids)
        text, stopped_by = delta.text, delta.stopped_by
        num_tokens = len(update.token_ids) if stopped_by is None else delta.num_tokens
        if stopped_by is None and update.ended is not None:
            rest = choice.assembler.finish()
            text, stopped_by = text + rest.text, rest.stopped_by
        self._num_output_tokens += num_tokens
        if self._delivery.shows_output:
            choice.text += text
            choice.token_ids += update.token_ids[:num_tokens]
            choice.logprobs += update.logprobs[:num_tokens]
        return stopped_by

    def _is_due(self, choice: _Choice) -> bool:
        interval = self._delivery.interval
        if interval is None or not choice.text:
            return False
        return not choice.is_begun or len(choice.token_ids) >= interval

    def _finish(
        self, choice: _Choice, reason: FinishReason, stop_reason: int | str | None
    ) -> ChoiceDelta:
        choice.is_finished = True
        self._num_unfinished -= 1
        if not self._delivery.shows_output:
            reason, stop_reason = FinishReason.LENGTH, None
        return self._take(choice, reason, stop_reason)

    def _take(
        self,
        choice: _Choice,
        reason: FinishReason | None = None,
        stop_reason: int | str | None = None,
    ) -> ChoiceDelta:
        delta = ChoiceDelta(
            choice.index,
            choice.text,
            choice.token_ids,
            choice.logprobs,
            reason,
            stop_reason,
            not choice.is_begun,
        )
        choice.text, choice.token_ids, choice.logprobs, choice.is_begun = "", [], [], True
        return delta


def _refusal(rejected: Rejected) -> ApiError:
    if rejected.cause is RefusalCause.ID_IN_USE:
        return ApiError(Problem.ID_IN_USE, rejected.reason, "request_id")
    return ApiError(Problem.NEVER_FITS, rejected.reason)


def _outcome(request: Request, ended: Retired | Aborted) -> tuple[FinishReason, int | str | None]:
    """The finish reason and the stop reason, which names a stop token of the client's own."""
    if ended.reason is FinishReason.ERROR:
        raise ApiError(Problem.INTERNAL, ended.detail or "the engine could not go on with this")
    if isinstance(ended, Aborted):
        return ended.reason, _LIMIT_NAMES.get(ended.cause)
    return ended.reason, stop_reason(request.sampling, ended)
