"""The choices of one HTTP request as a stream of deltas; a plain answer is the same, collected."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from headway.core.events import Aborted, Rejected, Retired
from headway.core.request import FinishReason, Request
from headway.server.errors import ApiError, Problem
from headway.server.subscription import EngineDeadError, SequenceUpdate, Subscription
from headway.text.assembler import TextAssembler
from headway.text.tokenizer import Tokenizer
from headway.wire import TokenLogprobs


@dataclass(frozen=True, slots=True)
class ChoiceDelta:
    """New text of one choice, with the logprobs of the tokens it came from."""

    index: int
    text: str
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None


@dataclass(slots=True)
class Usage:
    """Tokens of a whole HTTP request: every prompt counted once, every choice's output."""

    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    num_cached_tokens: int = 0

    def body(self) -> dict[str, object]:
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": self.num_completion_tokens,
            "total_tokens": self.num_prompt_tokens + self.num_completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.num_cached_tokens},
        }


@dataclass(slots=True, eq=False)
class _Choice:
    """One sequence on its way to text."""

    index: int
    request: Request
    assembler: TextAssembler
    held_logprobs: list[TokenLogprobs] = field(default_factory=list)
    finished: bool = False


class Generation:
    """Some prompts times n choices. Choice i of prompt p has index p * n + i.

    Call `close` in the end: what has not ended is withdrawn from the engine.
    """

    def __init__(
        self, subscription: Subscription, requests: Sequence[Request], tokenizer: Tokenizer
    ) -> None:
        self._subscription = subscription
        self._choices: dict[tuple[str, int], _Choice] = {}
        for request in requests:
            for index in range(request.sampling.n):
                assembler = TextAssembler(tokenizer, request.sampling)
                choice = _Choice(len(self._choices), request, assembler)
                self._choices[request.request_id, index] = choice
        self._num_unfinished = len(self._choices)
        self._early: list[SequenceUpdate] = []
        self.usage = Usage(sum(request.num_prompt_tokens for request in requests))
        self.prompt_logprobs: dict[str, list[TokenLogprobs | None]] = {}
        self._requests = requests

    @property
    def num_choices(self) -> int:
        return len(self._choices)

    async def accepted(self) -> None:
        """Wait until the engine has taken every request. Raises ApiError where it refused one."""
        waiting = {request.request_id for request in self._requests}
        while waiting:
            update = await self._next_update()
            self._early.append(update)
            waiting.discard(update.request_id)

    async def deltas(self) -> AsyncIterator[ChoiceDelta]:
        """Until every choice has finished. Raises ApiError when the engine dies or gives up."""
        while self._num_unfinished:
            update = self._early.pop(0) if self._early else await self._next_update()
            delta = self._advance(update)
            if delta is not None:
                yield delta

    def close(self) -> None:
        self._subscription.close()

    async def _next_update(self) -> SequenceUpdate:
        try:
            update = await self._subscription.get()
        except EngineDeadError as error:
            raise ApiError(Problem.ENGINE_DEAD, f"no answer: {error}") from None
        if isinstance(update, Rejected):
            raise ApiError(Problem.NEVER_FITS, update.reason)
        return update

    def _advance(self, update: SequenceUpdate) -> ChoiceDelta | None:
        choice = self._choices[update.request_id, update.index]
        if update.num_cached_tokens is not None and update.index == 0:
            self.usage.num_cached_tokens += update.num_cached_tokens
        if update.prompt_logprobs and update.index == 0:
            known = self.prompt_logprobs.setdefault(update.request_id, [])
            known += update.prompt_logprobs
        if choice.finished:
            return None  # stopped by a string; this is the engine's confirmation
        return self._delta(choice, update)

    def _delta(self, choice: _Choice, update: SequenceUpdate) -> ChoiceDelta | None:
        shown = update.token_ids
        if _ends_unseen(choice.request, update):
            shown = shown[:-1]
        delta = choice.assembler.push(shown)
        text, stopped_by = delta.text, delta.stopped_by
        num_tokens = len(update.token_ids) if stopped_by is None else delta.num_tokens
        self.usage.num_completion_tokens += num_tokens
        choice.held_logprobs += update.logprobs[:num_tokens]
        if stopped_by is None and update.ended is not None:
            rest = choice.assembler.finish()
            text, stopped_by = text + rest.text, rest.stopped_by
        if stopped_by is not None:
            return self._stop(choice, update, text, stopped_by)
        if update.ended is not None:
            return self._finish(choice, text, *_outcome(choice.request, update.ended))
        return self._take(choice, text) if text else None

    def _stop(self, choice: _Choice, update: SequenceUpdate, text: str, stop: str) -> ChoiceDelta:
        if update.ended is None:
            self._subscription.withdraw(update.request_id, update.index, FinishReason.STOP)
        return self._finish(choice, text, FinishReason.STOP, stop)

    def _finish(
        self, choice: _Choice, text: str, reason: FinishReason, stop_reason: int | str | None
    ) -> ChoiceDelta:
        choice.finished = True
        self._num_unfinished -= 1
        return self._take(choice, text, reason, stop_reason)

    def _take(
        self,
        choice: _Choice,
        text: str,
        reason: FinishReason | None = None,
        stop_reason: int | str | None = None,
    ) -> ChoiceDelta:
        logprobs, choice.held_logprobs = tuple(choice.held_logprobs), []
        return ChoiceDelta(choice.index, text, logprobs, reason, stop_reason)


def _ends_unseen(request: Request, update: SequenceUpdate) -> bool:
    """Whether the last token is a stop token, which shows only where the client wants it to."""
    ended = update.ended
    return (
        isinstance(ended, Retired)
        and ended.stop_token_id is not None
        and not request.sampling.include_stop_str_in_output
        and update.token_ids[-1:] == [ended.stop_token_id]
    )


def _outcome(request: Request, ended: Retired | Aborted) -> tuple[FinishReason, int | str | None]:
    """The finish reason and the stop reason, which names a stop token of the client's own."""
    if ended.reason is FinishReason.ERROR:
        raise ApiError(Problem.INTERNAL, ended.detail or "the engine could not go on with this")
    stop_id = ended.stop_token_id if isinstance(ended, Retired) else None
    is_own = stop_id in (request.sampling.stop_token_ids or ())
    return ended.reason, stop_id if is_own else None
