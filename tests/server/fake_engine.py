"""An engine without a model: it speaks the wire protocol and echoes the prompt, token by token.

Every command that it receives goes to `--log` as one JSON line, so that a test can see what the
API process told the engine. The other flags make it misbehave.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import zmq

from headway.core.events import (
    AbortCause,
    Aborted,
    Admitted,
    Advanced,
    Event,
    Queued,
    Rejected,
    Retired,
)
from headway.core.request import FinishReason, Request
from headway.wire import (
    AliveMessage,
    EngineFacts,
    EngineStats,
    FailedMessage,
    ReadyMessage,
    SequenceLogprobs,
    ShutdownMessage,
    SubmitMessage,
    TokenLogprobs,
    TurnMessage,
    WithdrawMessage,
    decode_to_engine,
    encode,
    pack_events,
)

VOCAB_SIZE = 258
END_ID = 256
NUM_BLOCKS = 64
BLOCK_SIZE = 16

FACTS = EngineFacts(
    model="echo",
    dtype="float32",
    backend="fake",
    backend_reason="for tests",
    num_threads=1,
    vocab_size=VOCAB_SIZE,
    max_model_len=2048,
    block_size=BLOCK_SIZE,
    num_blocks=NUM_BLOCKS,
    kv_cache_dtype="float32",
    kv_bytes_per_token=64,
    max_num_seqs=8,
    max_num_batched_tokens=512,
    enable_prefix_caching=True,
    kv_policy="on-demand",
    stop_token_ids=[END_ID],
    max_logprobs=20,
    phases_ms={"load": 1.0},
)


def start(log: Path, *flags: str):
    """A `start_engine` callable for `EngineClient`."""

    def start_engine(to_engine: str, from_engine: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, __file__, to_engine, from_engine, "--log", str(log), *flags]
        return subprocess.Popen(words, process_group=0)

    return start_engine


@dataclass
class Stream:
    sequence_id: int
    index: int
    request: Request
    num_out: int = 0


class FakeEngine:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.sockets = sockets = zmq.Context()
        self.inbox = sockets.socket(zmq.PULL)
        self.outbox = sockets.socket(zmq.PUSH)
        for socket in (self.inbox, self.outbox):
            socket.set_hwm(0)
        self.inbox.connect(args.to_engine)
        self.outbox.connect(args.from_engine)
        self.log = Path(args.log)
        self.streams: list[Stream] = []
        self.next_id = 0
        self.step_index = 0
        self.num_tokens = 0
        self.is_open = True
        self.step_began_ns: int | None = None
        self.parent = os.getppid()

    def say(self, message: object) -> None:
        self.outbox.send(encode(message))  # type: ignore[arg-type]

    def run(self) -> None:
        time.sleep(self.args.load)
        if self.args.fail:
            self.say(FailedMessage(self.args.fail))
            return
        self.say(ReadyMessage(self.facts()))
        threading.Thread(target=self.keep_saying_alive, daemon=True).start()
        while self.is_open and os.getppid() == self.parent:
            events = self.take()
            logprobs: list[SequenceLogprobs] = []
            if self.streams:
                self.step(events, logprobs)
            if events or self.args.chatty:
                self.tell(events, logprobs)
            if self.args.delay:
                time.sleep(self.args.delay)

    def facts(self) -> EngineFacts:
        return msgspec.structs.replace(
            FACTS,
            scheduling_policy=self.args.policy,
            enable_trace_replay=self.args.trace_replay,
        )

    def keep_saying_alive(self) -> None:
        """Also during a step, as the real one does."""
        outbox = self.sockets.socket(zmq.PUSH)
        outbox.connect(self.args.from_engine)
        while True:
            alive = AliveMessage(
                time.monotonic_ns(), self.step_index, self.step_began_ns, len(self.streams)
            )
            outbox.send(encode(alive))
            time.sleep(self.args.alive_every)

    def take(self) -> list[Event]:
        events: list[Event] = []
        timeout = 0 if self.streams else 200
        while self.is_open and self.inbox.poll(timeout):
            timeout = 0
            message = decode_to_engine(self.inbox.recv())
            self.note(message)
            match message:
                case SubmitMessage(request):
                    events += self.submit(request)
                case WithdrawMessage(request_id, index, reason):
                    events += self.withdraw(request_id, index, reason)
                case ShutdownMessage():
                    self.is_open = False
        return events

    def note(self, message: object) -> None:
        entry = {"kind": type(message).__name__}
        if isinstance(message, SubmitMessage):
            entry |= {"id": message.request.request_id, "seed": message.request.seed}
            entry |= {"stop_ids": sorted(message.request.stop_token_ids)}
            entry |= {"request": msgspec.to_builtins(message.request, str_keys=True)}
        if isinstance(message, WithdrawMessage):
            entry |= {"id": message.request_id, "index": message.index}
            entry |= {"reason": message.reason.value}
        with self.log.open("a") as log:
            log.write(json.dumps(entry) + "\n")

    def submit(self, request: Request) -> list[Event]:
        if request.num_prompt_tokens > NUM_BLOCKS * BLOCK_SIZE:
            return [Rejected(request.request_id, "needs more blocks than the pool has")]
        events: list[Event] = []
        for index in range(request.sampling.n):
            stream = Stream(self.next_id, index, request)
            self.next_id += 1
            self.streams.append(stream)
            events.append(Queued(stream.sequence_id, request.request_id, index))
            events.append(Admitted(stream.sequence_id, request.request_id, self.args.cached))
        return events

    def withdraw(self, request_id: str, index: int | None, reason: FinishReason) -> list[Event]:
        gone = [
            s
            for s in self.streams
            if s.request.request_id == request_id and index in (None, s.index)
        ]
        self.streams = [s for s in self.streams if s not in gone]
        return [Aborted(s.sequence_id, request_id, reason) for s in gone]

    def step(self, events: list[Event], logprobs: list[SequenceLogprobs]) -> None:
        self.step_began_ns = time.monotonic_ns()
        if self.args.hang_after is not None and self.num_tokens >= self.args.hang_after:
            time.sleep(20)
        self.step_index += 1
        for stream in list(self.streams):
            self.advance(stream, events, logprobs)
        self.step_began_ns = None
        if self.args.die_after is not None and self.num_tokens >= self.args.die_after:
            self.tell(events, logprobs)
            time.sleep(0.05)
            os._exit(3)

    def advance(
        self, stream: Stream, events: list[Event], logprobs: list[SequenceLogprobs]
    ) -> None:
        request = stream.request
        prompt = request.prompt_token_ids
        said = request.forced_token_ids or prompt
        if self.args.expire and stream.num_out == self.args.expire_after:
            cause = AbortCause(self.args.expire)
            detail = f"{cause.value} is over"
            events.append(
                Aborted(stream.sequence_id, request.request_id, detail=detail, cause=cause)
            )
            self.streams.remove(stream)
            return
        token_id = said[stream.num_out % len(said)]
        logprobs.append(self.logprobs(stream, token_id))
        stream.num_out += 1
        self.num_tokens += 1
        events.append(Advanced(stream.sequence_id, request.request_id, (token_id,)))
        if token_id in request.stop_token_ids and stream.num_out > request.sampling.min_tokens:
            self.retire(stream, events, FinishReason.STOP, token_id)
        elif request.sampling.repetition_detection and stream.num_out == 4:
            self.retire(stream, events, FinishReason.REPETITION, None)
        elif stream.num_out == request.sampling.max_tokens:
            self.retire(stream, events, FinishReason.LENGTH, None)

    def retire(
        self, stream: Stream, events: list[Event], reason: FinishReason, stop_id: int | None
    ) -> None:
        events.append(Retired(stream.sequence_id, stream.request.request_id, reason, stop_id))
        self.streams.remove(stream)

    def logprobs(self, stream: Stream, token_id: int) -> SequenceLogprobs:
        sampling = stream.request.sampling
        output = [] if sampling.logprobs is None else [position(token_id, sampling.logprobs)]
        prompt: list[TokenLogprobs | None] = []
        if sampling.prompt_logprobs is not None and stream.num_out == 0:
            ids = stream.request.prompt_token_ids
            prompt = [None, *(position(i, sampling.prompt_logprobs) for i in ids[1:])]
        return SequenceLogprobs(stream.sequence_id, output, prompt)

    def tell(self, events: list[Event], logprobs: list[SequenceLogprobs]) -> None:
        stats = EngineStats(
            step_index=self.step_index,
            num_running=len(self.streams),
            num_waiting=0,
            num_total_blocks=NUM_BLOCKS,
            num_held_blocks=len(self.streams),
            num_cached_blocks=0,
            num_resident_tokens=sum(s.num_out for s in self.streams),
            num_backlog_tokens=self.args.backlog,
        )
        self.say(TurnMessage(time.monotonic_ns(), pack_events(events), logprobs, stats))


def position(token_id: int, num_top: int) -> TokenLogprobs:
    top = [((token_id + i) % 256, -0.5 - i) for i in range(num_top)]
    return TokenLogprobs(token_id, -0.5, 1, top)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("to_engine")
    parser.add_argument("from_engine")
    parser.add_argument("--log", required=True)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--backlog", type=int, default=0)
    parser.add_argument("--cached", type=int, default=0)
    parser.add_argument("--fail")
    parser.add_argument("--load", type=float, default=0.0)
    parser.add_argument("--die-after", type=int)
    parser.add_argument("--hang-after", type=int)
    parser.add_argument("--alive-every", type=float, default=1.0)
    parser.add_argument("--chatty", action="store_true")
    parser.add_argument("--policy", default="fcfs")
    parser.add_argument("--trace-replay", action="store_true")
    parser.add_argument("--expire", help="the AbortCause that ends every sequence")
    parser.add_argument("--expire-after", type=int, default=0, help="tokens")
    FakeEngine(parser.parse_args()).run()


if __name__ == "__main__":
    main()
