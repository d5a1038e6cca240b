"""The engine as a process of its own, over its sockets: what it says and when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zmq

from headway.core.events import AbortCause
from headway.core.request import TimeLimits
from headway.drive.ports import ResetPrefixCache
from headway.drive.record import StepRecord
from headway.drive.recording import read_recordings
from headway.engine import heartbeat
from headway.engine.heartbeat import Heartbeat, Progress
from headway.engine.process import SocketInbox
from headway.model.source import ModelSource
from headway.wire import (
    AliveMessage,
    FailedMessage,
    FromEngine,
    ReadyMessage,
    ResetPrefixCacheMessage,
    ShutdownMessage,
    SubmitMessage,
    TurnMessage,
    decode_from_engine,
    encode,
    unpack_events,
)
from tests.engine.harness import ask

WAIT_MS = 20_000


class Engine:
    """An engine process under test and the sockets of its API process."""

    def __init__(self, folder: Path, model: str, **settings: object) -> None:
        self._sockets = zmq.Context()
        self._to, self._from = (self._sockets.socket(kind) for kind in (zmq.PUSH, zmq.PULL))
        self._to.set(zmq.LINGER, 0)
        addresses = [f"ipc://{folder}/{name}" for name in ("to", "from")]
        self._to.bind(addresses[0])
        self._from.bind(addresses[1])
        config = {"model": model, "num_gpu_blocks_override": 64, "max_num_seqs": 8} | settings
        words = ["--to-engine", addresses[0], "--from-engine", addresses[1]]
        words += ["--parent-pid", str(os.getpid()), "--config", json.dumps(config)]
        self._errors = folder / "stderr"
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headway.engine.process", *words],
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
                stderr=errors,
            )
        self.alive: list[AliveMessage] = []
        self.ready = self.receive()

    def send(self, message: object) -> None:
        self._to.send(encode(message))  # type: ignore[arg-type]

    def receive(self) -> FromEngine:
        """The next message that is not a heartbeat."""
        while True:
            assert self._from.poll(WAIT_MS), "the engine says nothing"
            message = decode_from_engine(self._from.recv())
            if not isinstance(message, AliveMessage):
                return message
            self.alive.append(message)

    def run(self, *messages: object) -> list[TurnMessage]:
        """Send requests and take turns until each has ended."""
        for message in messages:
            self.send(message)
        turns: list[TurnMessage] = []
        ended: set[str] = set()
        while len(ended) < len(messages):
            turn = self.receive()
            assert isinstance(turn, TurnMessage)
            turns.append(turn)
            ended |= {
                event.request_id
                for event in unpack_events(turn.events)
                if type(event).__name__ in ("Retired", "Aborted", "Rejected")
            }
        return turns

    def stop(self) -> int:
        self.send(ShutdownMessage())
        code = self.process.wait(10)
        self._to.close()
        self._from.close()
        self._sockets.term()
        assert "leaked" not in self._errors.read_text()  # what the kernels' binding says at the end
        return code


@pytest.fixture(scope="module")
def record_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recording") / "trace.jsonl"


@pytest.fixture(scope="module")
def engine(
    tmp_path_factory: pytest.TempPathFactory, tiny_source: ModelSource, record_path: Path
) -> Iterator[Engine]:
    settings = {"trace_steps": True, "record": str(record_path), "enable_trace_replay": True}
    settings |= {"scheduling_policy": "priority", "max_num_batched_tokens": 64}
    engine = Engine(tmp_path_factory.mktemp("engine"), str(tiny_source.path), **settings)
    yield engine
    if engine.process.poll() is None:
        assert engine.stop() == 0


def test_its_facts_say_what_it_was_told(engine: Engine) -> None:
    assert isinstance(engine.ready, ReadyMessage)
    facts = engine.ready.facts
    assert (facts.scheduling_policy, facts.enable_trace_replay) == ("priority", True)


def test_every_step_that_ran_comes_with_its_trace_and_the_backlog_shrinks(engine: Engine) -> None:
    turns = engine.run(SubmitMessage(ask("traced", [5] * 150, max_tokens=3)))
    steps = [turn.step for turn in turns if turn.step is not None]
    chunks = [[(first, count) for _, first, count in s.chunks] for s in steps]
    assert chunks == [[(0, 64)], [(64, 64)], [(128, 22)], [], []]
    decodes = [(s.num_decodes, s.decode_attended) for s in steps]
    assert decodes == [(0, 0), (0, 0), (0, 0), (1, 151), (1, 152)]
    assert [s.index for s in steps] == list(range(steps[0].index, steps[0].index + 5))
    [first, *_] = engine.run(SubmitMessage(ask("next", [5] * 9, max_tokens=1)))
    assert first.step is None  # who was admitted is told before a step ran
    assert all(s.start_ns < s.end_ns for s in steps)
    for turn in turns:
        if turn.step is not None:
            assert turn.now_ns >= turn.step.end_ns
    backlog = [turn.stats.num_backlog_tokens for turn in turns]
    assert backlog == [86, 86, 22, 0, 0, 0] or backlog == [86, 86, 22, 0, 0, 0, 0]


def test_a_reset_empties_the_cache(engine: Engine) -> None:
    first = engine.run(SubmitMessage(ask("before", [9] * 60)))
    assert first[-1].stats.num_cached_blocks > 0
    engine.send(ResetPrefixCacheMessage())
    turns = engine.run(SubmitMessage(ask("after", [9] * 60)))
    [admitted] = [
        event
        for turn in turns
        for event in unpack_events(turn.events)
        if type(event).__name__ == "Admitted"
    ]
    assert admitted.num_cached_tokens == 0


def test_a_deadline_in_the_past_ends_a_request_before_its_first_step(engine: Engine) -> None:
    now_ns = time.monotonic_ns()
    limits = TimeLimits(deadline_ns=now_ns - 1)
    late = replace(ask("late", [5] * 9), arrival_ns=now_ns, limits=limits)
    [*_, last] = engine.run(SubmitMessage(late))
    [aborted] = [e for e in unpack_events(last.events) if type(e).__name__ == "Aborted"]
    assert aborted.cause is AbortCause.DEADLINE
    assert last.stats.num_held_blocks == 0


def test_it_beats_while_it_is_idle_and_its_recording_is_whole_when_it_stops(
    engine: Engine, record_path: Path
) -> None:
    engine.alive.clear()
    while not engine.alive:
        engine.receive()
    assert engine.alive[-1].step_began_ns is None
    assert abs(engine.alive[-1].now_ns - time.monotonic_ns()) < 5e9
    assert engine.stop() == 0
    [recording] = read_recordings(record_path.read_text().splitlines())
    steps = [entry for entry in recording.entries if isinstance(entry, StepRecord)]
    assert steps[-1].index == engine.alive[-1].step_index - 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"record": "/nowhere/trace.jsonl"}, "record: cannot write"),
        ({"num_gpu_blocks_override": 1 << 45}, "there is not enough memory: cannot map"),
        ({"scheduler_cls": "headway.core.request.Request"}, "must be a subclass"),
    ],
)
def test_what_cannot_work_is_one_sentence_at_the_start(
    tmp_path: Path, tiny_source: ModelSource, settings: dict[str, object], sentence: str
) -> None:
    engine = Engine(tmp_path, str(tiny_source.path), **settings)
    assert isinstance(engine.ready, FailedMessage)
    assert sentence in engine.ready.message
    assert engine.process.wait(10) == 1


def test_the_heartbeat_tells_of_a_step_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_PERIOD_S", 0.01)
    sockets, progress = zmq.Context(), Progress()
    with sockets.socket(zmq.PULL) as receiver:
        receiver.bind("inproc://beats")
        beat = Heartbeat(sockets, "inproc://beats", progress)
        progress.turn_began(41, 1000)
        progress.step_runs(42, 300)
        beat.start()
        assert receiver.poll(WAIT_MS)
        message = decode_from_engine(receiver.recv())
        assert isinstance(message, AliveMessage)
        assert (message.step_index, message.step_began_ns, message.step_num_tokens) == (
            42,
            1000,
            300,
        )
        progress.rests(43)
        while message.step_index != 43:
            assert receiver.poll(WAIT_MS)
            message = decode_from_engine(receiver.recv())
            assert isinstance(message, AliveMessage)
        assert (message.step_began_ns, message.step_num_tokens) == (None, 0)
        beat.stop()
    sockets.term()


def test_an_idle_wait_ends_when_a_time_limit_is_due_or_something_comes() -> None:
    sockets = zmq.Context()
    with sockets.socket(zmq.PULL) as receiver, sockets.socket(zmq.PUSH) as sender:
        receiver.bind("inproc://commands")
        sender.connect("inproc://commands")
        inbox = SocketInbox(receiver, os.getppid())
        due_ns = time.monotonic_ns() + 20_000_000
        assert inbox.wait(due_ns)
        assert due_ns <= time.monotonic_ns() < due_ns + 500_000_000
        assert inbox.take() == []
        sender.send(encode(ResetPrefixCacheMessage()))
        assert inbox.wait()
        assert inbox.take() == [ResetPrefixCache()]
        sender.send(encode(ShutdownMessage()))
        assert inbox.wait()
        assert inbox.take() == []
        assert not inbox.wait(due_ns)
    sockets.term()


def test_left_alone_by_the_api_process_it_goes_at_once_and_tidies_up(
    tmp_path: Path, tiny_source: ModelSource
) -> None:
    """The process in between is the API process that is killed."""
    folder = tmp_path / "sockets"
    folder.mkdir()
    addresses = [f"ipc://{folder}/{name}" for name in ("to", "from")]
    config = json.dumps({"model": str(tiny_source.path), "num_gpu_blocks_override": 64})
    words = [sys.executable, "-m", "headway.engine.process", "--config", config]
    words += ["--to-engine", addresses[0], "--from-engine", addresses[1], "--parent-pid"]
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([*sys.argv[1:], str(os.getpid())])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    sockets = zmq.Context()
    with sockets.socket(zmq.PUSH) as to_engine, sockets.socket(zmq.PULL) as from_engine:
        to_engine.set(zmq.LINGER, 0)
        to_engine.bind(addresses[0])
        from_engine.bind(addresses[1])
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        parent = subprocess.Popen(
            [sys.executable, "-c", code, *words], env=environment, stdout=subprocess.PIPE
        )
        assert parent.stdout is not None
        engine_pid = int(parent.stdout.readline())
        assert from_engine.poll(WAIT_MS)
        parent.kill()
        parent.wait()
        parent.stdout.close()
        deadline = time.monotonic() + 5
        while folder.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not folder.exists()
        while Path(f"/proc/{engine_pid}/exe").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not Path(f"/proc/{engine_pid}/exe").exists()
    sockets.term()
