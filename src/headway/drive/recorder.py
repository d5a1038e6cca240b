"""Writes a recording while an engine runs: a listener, and an inbox round the real one."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from typing import assert_never

from headway.core.events import Aborted, Advanced, Event, Queued, Rejected, Retired
from headway.core.request import Request
from headway.drive.ports import (
    Clock,
    Command,
    CommandListener,
    Inbox,
    ResetPrefixCache,
    Submit,
    Withdraw,
)
from headway.drive.record import StepRecord
from headway.drive.recording import (
    Arrival,
    CacheReset,
    EndedSequence,
    Entry,
    FilledBlocks,
    QueuedSequence,
    RefusedRequest,
    Withdrawal,
    write_line,
)


class BlockNames:
    """Names full blocks of tokens by a salted hash over everything up to their end.

    Equal prefixes have equal names within one recording. Eight bytes of a hash whose salt is
    written nowhere: no guess at a prompt can be checked against them.
    """

    def __init__(self, root: bytes, block_size: int) -> None:
        self._parent = root
        self._block_size = block_size
        self._open: list[int] = []  # tokens of the block that is not full yet

    def fork(self) -> BlockNames:
        """Another sequence that goes on from here."""
        twin = BlockNames(self._parent, self._block_size)
        twin._open = list(self._open)
        return twin

    def push(self, token_ids: SequenceOf[int]) -> list[str]:
        """The names of the blocks that these tokens fill."""
        self._open += token_ids
        names: list[str] = []
        size = self._block_size
        while len(self._open) >= size:
            block, self._open = self._open[:size], self._open[size:]
            content = b"".join(token_id.to_bytes(8, "little", signed=True) for token_id in block)
            self._parent = hashlib.sha256(self._parent + content).digest()
            names.append(self._parent[:8].hex())
        return names


class _Output:
    """What is remembered of a live sequence."""

    def __init__(self, names: BlockNames) -> None:
        self.names = names
        self.num_tokens = 0


def without_quotes(record: StepRecord) -> StepRecord:
    """The record as it is written: the message of an error may quote what was computed."""
    return replace(record, error="the step failed") if record.error else record


class Recorder:
    """Listener and StepListener; `write` takes one line.

    Steps are kept until their events have been told, so that writing delays nobody's tokens.
    """

    def __init__(self, write: Callable[[str], None], *, salt: bytes, block_size: int) -> None:
        self._write = write
        self._salt = salt
        self._block_size = block_size
        self._steps: list[StepRecord] = []
        self._prompts: deque[tuple[str, BlockNames]] = deque()  # not answered yet, in order
        self._queued: tuple[str, BlockNames] = ("", BlockNames(b"", block_size))
        self._outputs: dict[int, _Output] = {}
        self._filled: list[tuple[int, str]] = []  # blocks of outputs, not written yet

    def on_commands(self, commands: SequenceOf[Command], now_ns: int) -> None:
        self.write_steps()
        for command in commands:
            match command:
                case Submit(request):
                    self._note(self._arrival(request, now_ns))
                case Withdraw(request_id, index, reason):
                    self._note(
                        Withdrawal(
                            at_ns=now_ns, request_id=request_id, index=index, reason=reason.value
                        )
                    )
                case ResetPrefixCache():
                    self._note(CacheReset(at_ns=now_ns))
                case _:
                    assert_never(command)

    def on_step(self, record: StepRecord) -> None:
        self._steps.append(without_quotes(record))

    def on_events(self, events: SequenceOf[Event], now_ns: int) -> None:
        self.write_steps()
        for event in events:
            self._fold(event)
        self._write_filled()

    def _fold(self, event: Event) -> None:
        match event:
            case Queued(sequence_id, request_id, index):
                self._outputs[sequence_id] = _Output(self._names_for(request_id, index))
                self._note(
                    QueuedSequence(sequence_id=sequence_id, request_id=request_id, index=index)
                )
            case Rejected(request_id, _, cause):
                self._prompts.popleft()
                self._note(RefusedRequest(request_id=request_id, cause=cause.value))
            case Advanced(sequence_id, _, token_ids):
                output = self._outputs[sequence_id]
                output.num_tokens += len(token_ids)
                self._filled += [(sequence_id, name) for name in output.names.push(token_ids)]
            case Retired() | Aborted():
                self._write_filled()
                output = self._outputs.pop(event.sequence_id)
                self._note(
                    EndedSequence(
                        sequence_id=event.sequence_id,
                        reason=event.reason.value,
                        num_output_tokens=output.num_tokens,
                    )
                )

    def _names_for(self, request_id: str, index: int) -> BlockNames:
        """Requests are answered in order, each by its refusal or by its sequences from 0."""
        if index == 0:
            self._queued = self._prompts.popleft()
        asked_id, names = self._queued
        if asked_id != request_id:
            raise RuntimeError(f"{request_id!r} was queued, {asked_id!r} should have been")
        return names.fork()

    def write_steps(self) -> None:
        """Write the steps that no event has followed yet."""
        for record in self._steps:
            self._note(record)
        self._steps.clear()

    def _write_filled(self) -> None:
        if self._filled:
            sequence_ids, names = zip(*self._filled, strict=True)
            self._note(FilledBlocks(sequence_ids=sequence_ids, names=names))
            self._filled.clear()

    def _note(self, entry: Entry) -> None:
        self._write(write_line(entry))

    def _arrival(self, request: Request, now_ns: int) -> Arrival:
        names = BlockNames(self._root(request), self._block_size)
        blocks = names.push(request.prompt_token_ids)
        self._prompts.append((request.request_id, names))
        sampling, limits = request.sampling, request.limits
        return Arrival(
            at_ns=now_ns,
            request_id=request.request_id,
            arrival_ns=request.arrival_ns,
            num_prompt_tokens=request.num_prompt_tokens,
            prompt_blocks=tuple(blocks),
            n=sampling.n,
            max_tokens=sampling.max_tokens,
            min_tokens=sampling.min_tokens,
            ignore_eos=sampling.ignore_eos,
            num_forced_tokens=len(request.forced_token_ids),
            prompt_logprobs=sampling.prompt_logprobs,
            priority=request.priority,
            tenant=request.tenant,
            adapter=request.adapter,
            max_queue_ns=limits.max_queue_ns,
            max_run_ns=limits.max_run_ns,
            deadline_ns=limits.deadline_ns,
        )

    def _root(self, request: Request) -> bytes:
        digest = hashlib.sha256()
        for part in (self._salt, request.adapter.encode(), request.cache_salt.encode()):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.digest()


class RecordedInbox:
    """The inbox that it is given, with a listener told of all that is taken out of it."""

    def __init__(self, inbox: Inbox, listener: CommandListener, clock: Clock) -> None:
        self._inbox = inbox
        self._listener = listener
        self._clock = clock

    def take(self) -> list[Command]:
        commands = self._inbox.take()
        if commands:
            self._listener.on_commands(commands, self._clock.now_ns())
        return commands

    def wait(self, until_ns: int | None = None) -> bool:
        return self._inbox.wait(until_ns)
