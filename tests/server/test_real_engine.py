"""A real engine with a tiny model behind the server: who leaves frees what it held, at once."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from headway.cli.serve import start_engine_process
from headway.core.events import Aborted, Event
from headway.core.request import FinishReason, Request
from headway.engine.config import EngineConfig
from headway.server.engine_client import EngineClient
from headway.wire import EngineStats
from tests.model.tiny import make_tiny_llama
from tests.server.bench import LiveServer, live_server
from tests.server.test_disconnects import send

# Wide enough for a step to take longer than a message between the processes.
SHAPE = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 12}
FOREVER = {"prompt": "abc", "max_tokens": 1900, "ignore_eos": True}


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    directory = tmp_path_factory.mktemp("real")
    make_tiny_llama(
        directory, vocab_size=258, max_position_embeddings=2048, eos_token_id=256, **SHAPE
    )
    config = EngineConfig(
        model=str(directory),
        dtype="float32",
        max_num_seqs=8,
        num_gpu_blocks_override=2048,
        num_threads=1,
    )
    with live_server(directory, start_engine=partial(start_engine_process, config)) as live:
        yield live


class Witness:
    """How many steps passed between a withdrawal and its end."""

    def __init__(self, client: EngineClient) -> None:
        self.step = 0
        self.begun: dict[str, int] = {}
        self.told: set[str] = set()
        self.steps: list[int] = []
        client.add_fold(self)
        withdraw = client._withdraw

        def seen(request_id: str, index: int | None, reason: FinishReason) -> None:
            self.begun.setdefault(request_id, self.step)
            withdraw(request_id, index, reason)
            self.told.add(request_id)

        client._withdraw = seen  # type: ignore[method-assign]

    def on_submitted(self, request: Request, now_ns: int) -> None: ...

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self.steps += [
            self.step - self.begun[event.request_id]
            for event in events
            if isinstance(event, Aborted) and event.request_id in self.begun
        ]

    def on_stats(self, stats: EngineStats) -> None:
        self.step = stats.step_index


@contextmanager
def standing_engine(live: LiveServer, witness: Witness) -> Iterator[None]:
    """While clients leave, no step passes, so that only those count that begin with it known."""
    os.kill(live.client.engine_pid, signal.SIGSTOP)
    told = len(witness.told)
    try:
        time.sleep(0.1)  # what it had said is read
        yield
        live.wait_for(lambda: len(witness.told) > told)
        time.sleep(0.1)  # and it has what it was told
    finally:
        os.kill(live.client.engine_pid, signal.SIGCONT)


def held(live: LiveServer) -> tuple[int, int, int]:
    stats = live.client.stats
    if stats is None:  # no step yet
        return 0, 0, 0
    return stats.num_running, stats.num_waiting, stats.num_held_blocks


def test_who_leaves_frees_slot_and_blocks_within_two_steps(real_server: LiveServer) -> None:
    witness = Witness(real_server.client)
    streamed = send(real_server, {**FOREVER, "stream": True, "n": 4})
    plain = send(real_server, {**FOREVER, "n": 4})
    real_server.wait_for(lambda: held(real_server)[0] == 8)
    queued = send(real_server, FOREVER)
    queued_stream = send(real_server, {**FOREVER, "stream": True})
    real_server.wait_for(lambda: held(real_server)[1] == 2)
    assert b"200 OK" in streamed.recv(4096)
    for connection, left in ((queued, (8, 1)), (queued_stream, (8, 0)), (plain, (4, 0))):
        with standing_engine(real_server, witness):
            connection.close()
        real_server.wait_for(lambda left=left: held(real_server)[:2] == left)
    # As a killed process does: a reset, not a polite end.
    streamed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    with standing_engine(real_server, witness):
        streamed.close()
    real_server.wait_for(lambda: held(real_server) == (0, 0, 0))
    assert len(witness.steps) == 10
    assert max(witness.steps) <= 2


def test_a_killed_engine_comes_back_with_the_same_answers(real_server: LiveServer) -> None:
    body = {"prompt": "abc", "max_tokens": 20, "temperature": 0, "ignore_eos": True}
    before = httpx.post(real_server.url + "/v1/completions", json=body).json()
    stream = send(real_server, {**FOREVER, "stream": True})
    assert b"200 OK" in stream.recv(4096)
    os.kill(real_server.client.engine_pid, signal.SIGKILL)
    while b"killed by signal 9" not in (piece := stream.recv(65536)):
        assert piece
    stream.close()
    real_server.wait_for(lambda: httpx.get(real_server.url + "/health").status_code == 200, 10)
    after = httpx.post(real_server.url + "/v1/completions", json=body).json()
    assert after["choices"] == before["choices"]


def test_a_stopped_engine_is_told_from_a_busy_one(tmp_path: Path) -> None:
    make_tiny_llama(tmp_path, vocab_size=258, eos_token_id=256)
    config = EngineConfig(model=str(tmp_path), num_gpu_blocks_override=64, num_threads=1)
    start = partial(start_engine_process, config)
    with live_server(tmp_path, start_engine=start, health_timeout_s=2) as live:
        os.kill(live.client.engine_pid, signal.SIGSTOP)
        try:
            live.wait_for(lambda: httpx.get(live.url + "/health").status_code == 503)
            assert "nothing heard of it" in httpx.get(live.url + "/health").json()["status"]
        finally:
            os.kill(live.client.engine_pid, signal.SIGCONT)
        live.wait_for(lambda: httpx.get(live.url + "/health").status_code == 200)
