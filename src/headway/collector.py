"""Folds events into `RequestOutput`s: the offline counterpart of the API process's streams."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from contextlib import contextmanager
from dataclasses import dataclass, field

from headway.core.events import (
    Aborted,
    Admitted,
    Advanced,
    Event,
    Preempted,
    Queued,
    Rejected,
    Retired,
)
from headway.core.request import FinishReason, Request
from headway.drive.ports import Withdraw
from headway.outputs import CompletionOutput, Logprob, PositionLogprobs, RequestOutput
from headway.text.assembler import TextAssembler
from headway.text.endings import stop_reason
from headway.text.tokenizer import Tokenizer
from headway.wire import SequenceLogprobs, TokenLogprobs


@dataclass(slots=True)
class _Entry:
    """One request under way: its output so far and a text assembler for each completion."""

    request: Request
    output: RequestOutput
    assemblers: list[TextAssembler]
    sequence_index: dict[int, int] = field(default_factory=dict)


class Collector:
    """A listener. `withdraw` is called to end a sequence whose stop string has come."""

    def __init__(self, tokenizer: Tokenizer, withdraw: Callable[[Withdraw], None]) -> None:
        self._tokenizer = tokenizer
        self._withdraw = withdraw
        self._entries: dict[str, _Entry] = {}
        self._entry_of: dict[int, _Entry] = {}
        self._rejections: list[Rejected] = []
        self._on_finished: Callable[[RequestOutput], None] = lambda output: None
        self.num_unfinished = 0

    def expect(self, request: Request, prompt: str | None, *, follows_text: bool) -> None:
        """Announce a request before it is submitted. `follows_text`: see `Detokenizer`."""
        sampling = request.sampling
        completions = [
            CompletionOutput(index, logprobs=None if sampling.logprobs is None else [])
            for index in range(sampling.n)
        ]
        output = RequestOutput(
            request.request_id, prompt, list(request.prompt_token_ids), completions
        )
        if sampling.prompt_logprobs is not None:
            output.prompt_logprobs = []
        assemblers = [
            TextAssembler(self._tokenizer, sampling, follows_text=follows_text) for _ in completions
        ]
        self._entries[request.request_id] = _Entry(request, output, assemblers)
        self.num_unfinished += 1

    def output(self, request_id: str) -> RequestOutput:
        return self._entries[request_id].output

    def take(self, request_id: str) -> RequestOutput:
        entry = self._entries.pop(request_id)
        for sequence_id in entry.sequence_index:
            del self._entry_of[sequence_id]
        if entry.output.prompt_logprobs == []:
            entry.output.prompt_logprobs = [None]  # a prompt of one token: nothing predicts it
        return entry.output

    def raise_rejections(self) -> None:
        """Raise ValueError for a request that the scheduler refused."""
        if self._rejections:
            rejected, self._rejections = self._rejections[0], []
            raise ValueError(rejected.reason)

    @contextmanager
    def progress(self, total: int, *, shown: bool) -> Iterator[None]:
        """A progress bar over finished requests, where `shown` and there is a terminal."""
        if not (shown and sys.stderr.isatty()):
            yield
            return
        from rich.console import Console
        from rich.progress import Progress, TextColumn

        rate = TextColumn("{task.fields[tokens]} tokens")
        columns = (*Progress.get_default_columns(), rate)
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("Processed prompts", total=total, tokens=0)
            done = 0

            def advance(output: RequestOutput) -> None:
                nonlocal done
                done += sum(len(o.token_ids) for o in output.outputs)
                bar.update(task, advance=1, tokens=done)

            self._on_finished = advance
            try:
                yield
            finally:
                self._on_finished = lambda output: None

    def on_logprobs(self, logprobs: SequenceOf[SequenceLogprobs]) -> None:
        """Logprobs of the turn whose events came just before."""
        for item in logprobs:
            entry = self._entry_of.get(item.sequence_id)
            if entry is None:
                continue
            completion = entry.output.outputs[entry.sequence_index[item.sequence_id]]
            if completion.logprobs is not None:
                self._add_logprobs(completion, item.output)
            if entry.output.prompt_logprobs is not None and completion.index == 0:
                entry.output.prompt_logprobs += [
                    None if position is None else self._position(position)
                    for position in item.prompt
                ]

    def on_events(self, events: SequenceOf[Event], now_ns: int) -> None:
        stopped = {
            event.sequence_id
            for event in events
            if isinstance(event, Retired) and event.stop_token_id is not None
        }
        for event in events:
            if isinstance(event, Advanced):
                self._advance(event, ends=event.sequence_id in stopped)
            else:
                self._fold(event)

    def _fold(self, event: Event) -> None:
        match event:
            case Queued():
                entry = self._entries[event.request_id]
                entry.sequence_index[event.sequence_id] = event.index
                self._entry_of[event.sequence_id] = entry
            case Admitted():
                self._entries[event.request_id].output.num_cached_tokens += event.num_cached_tokens
            case Preempted():
                self._entries[event.request_id].output.num_preemptions += 1
            case Retired() | Aborted():
                self._finish(event)
            case Rejected():
                self._reject(event)

    def _advance(self, event: Advanced, *, ends: bool) -> None:
        """`ends`: the last of the tokens is a stop id, whose text shows only if asked for."""
        entry = self._entry_of[event.sequence_id]
        index = entry.sequence_index[event.sequence_id]
        completion = entry.output.outputs[index]
        if completion.finished():
            return  # ended by a stop string; the withdrawal is on its way
        is_hidden = ends and not entry.request.sampling.include_stop_str_in_output
        shown = event.token_ids[:-1] if is_hidden else event.token_ids
        delta = entry.assemblers[index].push(shown)
        completion.token_ids += event.token_ids
        completion.text += delta.text
        if delta.stopped_by is not None:
            self._end(entry, completion, FinishReason.STOP, delta.stopped_by)
            self._withdraw(Withdraw(event.request_id, index, FinishReason.STOP))

    def _finish(self, event: Retired | Aborted) -> None:
        entry = self._entry_of.get(event.sequence_id)
        if entry is None:
            return
        index = entry.sequence_index[event.sequence_id]
        completion = entry.output.outputs[index]
        if completion.finished():
            return
        delta = entry.assemblers[index].finish()
        completion.text += delta.text
        completion.detail = event.detail
        reason = event.reason if delta.stopped_by is None else FinishReason.STOP
        why: int | str | None = delta.stopped_by
        if why is None and isinstance(event, Retired):
            why = stop_reason(entry.request.sampling, event)
        self._end(entry, completion, reason, why)

    def _end(
        self,
        entry: _Entry,
        completion: CompletionOutput,
        reason: FinishReason,
        stop_reason: int | str | None,
    ) -> None:
        completion.finish_reason = reason.value
        completion.stop_reason = stop_reason
        if entry.output.finished:
            self.num_unfinished -= 1
            self._on_finished(entry.output)

    def _reject(self, event: Rejected) -> None:
        entry = self._entries[event.request_id]
        self._rejections.append(event)
        for completion in entry.output.outputs:
            completion.finish_reason = FinishReason.ERROR.value
            completion.detail = event.reason
        self.num_unfinished -= 1

    def _add_logprobs(
        self, completion: CompletionOutput, positions: SequenceOf[TokenLogprobs]
    ) -> None:
        assert completion.logprobs is not None
        room = len(completion.token_ids) - len(completion.logprobs)  # none after a stop string
        for position in positions[:room]:
            completion.logprobs.append(self._position(position))
            total = completion.cumulative_logprob or 0.0
            completion.cumulative_logprob = total + position.logprob

    def _position(self, entry: TokenLogprobs) -> PositionLogprobs:
        own = {entry.token_id: self._logprob(entry.token_id, entry.logprob, entry.rank)}
        top = {
            token_id: self._logprob(token_id, logprob, rank)
            for rank, (token_id, logprob) in enumerate(entry.top, start=1)
        }
        return own | top

    def _logprob(self, token_id: int, logprob: float, rank: int) -> Logprob:
        return Logprob(logprob, rank, self._tokenizer.decode([token_id], skip_special_tokens=False))
