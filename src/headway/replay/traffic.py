"""A recording as a workload: the same requests at the same times, under whatever settings."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, replace

import numpy as np

from headway.core.events import RefusalCause
from headway.core.request import FinishReason, Request
from headway.drive.record import StepRecord
from headway.drive.recording import (
    Arrival,
    EndedSequence,
    Entry,
    FilledBlocks,
    QueuedSequence,
    RecordingHeader,
    RefusedRequest,
    Withdrawal,
)
from headway.replay.requests import recorded_config, request_of
from headway.replay.tokens import FIRST_NAME, BlockTokens, check_blocks

_NO_END = 1 << 40  # tokens: max_tokens or the model's length come first


@dataclass(slots=True)
class _Output:
    """What is known of one sequence's output. `is_open`: nothing that it said ended it."""

    num_tokens: int = 0
    is_open: bool = False
    blocks: array[int] = field(default_factory=lambda: array("Q"))  # that it fills


@dataclass(slots=True)
class _Recorded:
    arrival: Arrival  # without the names of its blocks
    blocks: array[int]  # first names, then the numbers that take their places
    outputs: list[_Output]
    leaves_ns: int | None = None


class RecordedScript:
    """A recorded request with the tokens that it will get: a Script of the simulator."""

    filler = None

    def __init__(
        self, request: Request, recorded: _Recorded, tokens: BlockTokens, leaves_ns: int | None
    ) -> None:
        self.request = request
        self.leaves_ns = leaves_ns
        self._outputs = recorded.outputs
        self._tokens = tokens

    def num_output_tokens(self, index: int) -> int:
        output = self._outputs[index]
        return _NO_END if output.is_open else max(1, output.num_tokens)

    def output_token_ids(self, index: int, start: int, count: int) -> SequenceOf[int]:
        first = self.request.num_prompt_tokens + start
        return [self._token(index, position) for position in range(first, first + count)]

    def _token(self, index: int, position: int) -> int:
        block_size, tokens = self._tokens.block_size, self._tokens
        if (position + 1) % block_size:
            return tokens.filler(position)
        place = position // block_size - self.request.num_prompt_tokens // block_size
        blocks = self._outputs[index].blocks
        if place < len(blocks):
            return blocks[place]
        # Nobody knows what it would have said: something that nobody else says.
        return tokens.number_of(f"{self.request.request_id} {index} {place}")


class RecordedTraffic:
    """Scripts for the simulator, times from the first arrival on.

    Outputs are as long as they were, blocks as equal as they were. A client that left leaves as
    long after its arrival as it did, and until then its output goes on; so does that of a request
    that was given up or refused. What only the recording's end, or a failed step, cut short ends
    with the tokens that it had: `num_cut_off` sequences. A request whose id was in use is left
    out: `num_left_out`.
    """

    def __init__(
        self, header: RecordingHeader, entries: Iterable[Entry], *, block_size: int | None = None
    ) -> None:
        """`block_size`: of the scheduler to come, if not the recorded one.

        Raises ValueError when blocks of that size are not made of recorded ones.
        """
        recorded_size = recorded_config(header).block_size
        if block_size is not None and block_size % recorded_size:
            raise ValueError(
                f"block_size={block_size} cannot be replayed: the recording knows equal texts in "
                f"blocks of {recorded_size} tokens, so give a multiple of {recorded_size}"
            )
        fold = _Fold(recorded_size)
        for number, entry in enumerate(entries, 1):
            try:
                fold.take(entry)
            except LookupError as error:
                raise ValueError(
                    f"entry {number} of the recording does not follow from those before it: {error}"
                ) from error
            except OverflowError as error:
                raise ValueError(
                    f"entry {number} of the recording: the name of a block is a number of 64 bits"
                ) from error
            except ValueError as error:
                raise ValueError(f"entry {number} of the recording: {error}") from error
        self._requests = sorted(fold.requests, key=lambda r: arrived_ns(r.arrival))
        self._tokens = BlockTokens(recorded_size, first_name=_number_blocks(self._requests))
        self.num_cut_off = fold.num_open_sequences + fold.num_failed
        self.num_left_out = fold.num_left_out

    def __len__(self) -> int:
        return len(self._requests)

    def scripts(self) -> Iterator[RecordedScript]:
        """In order of arrival."""
        if not self._requests:
            return
        start_ns = arrived_ns(self._requests[0].arrival)
        used: dict[str, int] = {}
        for recorded in self._requests:
            yield self._script(recorded, start_ns, used)

    def _script(self, recorded: _Recorded, start_ns: int, used: dict[str, int]) -> RecordedScript:
        arrival = recorded.arrival
        times_used = used[arrival.request_id] = used.get(arrival.request_id, 0) + 1
        name = arrival.request_id if times_used == 1 else f"{arrival.request_id} ({times_used})"
        deadline_ns = arrival.deadline_ns
        moved = replace(
            arrival,
            request_id=name,
            arrival_ns=arrived_ns(arrival) - start_ns,
            max_tokens=_declared(arrival),
            num_forced_tokens=0,  # forced ones come all of them, even where a cut left fewer
            min_tokens=0,  # lengths are given
            deadline_ns=None if deadline_ns is None else deadline_ns - start_ns,
        )
        leaves_ns = None if recorded.leaves_ns is None else recorded.leaves_ns - start_ns
        prompt = self._tokens.prompt(recorded.blocks, arrival.num_prompt_tokens)
        return RecordedScript(request_of(moved, prompt), recorded, self._tokens, leaves_ns)


def arrived_ns(arrival: Arrival) -> int:
    """When the client came; where nobody noted that, when the engine took the request."""
    return arrival.arrival_ns or arrival.at_ns


def _declared(arrival: Arrival) -> int | None:
    """The length at which the client said that an output ends."""
    return arrival.num_forced_tokens or arrival.max_tokens


def _number_blocks(requests: list[_Recorded]) -> int:
    """Put small numbers, in the order of the names, in the places of the names; the next number.

    Millions of names fit into a sort, but not into a dictionary.
    """
    holders: list[_Recorded | _Output] = []
    for recorded in requests:
        holders += [recorded, *recorded.outputs]
    names = [np.frombuffer(holder.blocks, np.uint64) for holder in holders]
    if not names:
        return FIRST_NAME
    distinct, numbers = np.unique(np.concatenate(names), return_inverse=True)
    numbers = (numbers + FIRST_NAME).astype(np.intc)
    end = 0
    for holder in holders:
        start, end = end, end + len(holder.blocks)
        holder.blocks = array("i", numbers[start:end].tobytes())
    return FIRST_NAME + len(distinct)


class _Fold:
    """Requests from the entries of a recording."""

    def __init__(self, block_size: int) -> None:
        self._answered: list[_Recorded] = []
        self.num_left_out = 0
        self.num_failed = 0
        self._block_size = block_size
        self._unanswered: deque[_Recorded] = deque()
        self._latest: dict[str, _Recorded] = {}
        self._open: dict[int, tuple[_Output, int | None]] = {}  # with the client's limit

    @property
    def requests(self) -> list[_Recorded]:
        return [*self._answered, *self._unanswered]

    @property
    def num_open_sequences(self) -> int:
        return len(self._open) + sum(len(recorded.outputs) for recorded in self._unanswered)

    def take(self, entry: Entry) -> None:
        match entry:
            case StepRecord():
                for sequence_id, num_tokens in entry.outputs:
                    self._open[sequence_id][0].num_tokens += num_tokens
            case FilledBlocks():
                for sequence_id, name in zip(entry.sequence_ids, entry.names, strict=True):
                    self._open[sequence_id][0].blocks.append(int(name, 16))
            case Arrival():
                self._arrived(entry)
            case QueuedSequence():
                self._queued(entry)
            case RefusedRequest():
                self._refused(entry)
            case Withdrawal():
                self._withdrawn(entry)
            case EndedSequence():
                self._ended(entry)
            case _:
                pass  # a reset of the prefix cache is the operator's, not the traffic's

    def _arrived(self, arrival: Arrival) -> None:
        check_blocks(arrival, self._block_size)
        names = array("Q", (int(name, 16) for name in arrival.prompt_blocks))
        outputs = [_Output() for _ in range(arrival.n)]
        self._unanswered.append(_Recorded(replace(arrival, prompt_blocks=()), names, outputs))

    def _queued(self, queued: QueuedSequence) -> None:
        if queued.index == 0:
            self._latest[queued.request_id] = recorded = self._unanswered.popleft()
            self._answered.append(recorded)
        recorded = self._answered[-1]
        declared = _declared(recorded.arrival)
        self._open[queued.sequence_id] = recorded.outputs[queued.index], declared

    def _refused(self, refused: RefusedRequest) -> None:
        recorded = self._unanswered.popleft()
        if refused.cause == RefusalCause.ID_IN_USE.value:
            self.num_left_out += 1
            return
        self._answered.append(recorded)
        for output in recorded.outputs:
            output.is_open = True

    def _withdrawn(self, withdrawal: Withdrawal) -> None:
        recorded = self._latest.get(withdrawal.request_id)
        is_client_gone = withdrawal.reason == FinishReason.ABORT.value and withdrawal.index is None
        if recorded is not None and is_client_gone and recorded.leaves_ns is None:
            recorded.leaves_ns = withdrawal.at_ns

    def _ended(self, ended: EndedSequence) -> None:
        output, declared = self._open.pop(ended.sequence_id)
        output.num_tokens = ended.num_output_tokens
        was_full = ended.reason == FinishReason.LENGTH.value and output.num_tokens == declared
        output.is_open = was_full or ended.reason == FinishReason.ABORT.value
        self.num_failed += ended.reason == FinishReason.ERROR.value
