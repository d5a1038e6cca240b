"""A live server for the tests: uvicorn in a thread, the fake engine in a process."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
import uvicorn
from fastapi import FastAPI

from headway.server.app import create_app
from headway.server.config import AppSettings
from headway.server.connections import ConnectionLimits, watched
from headway.server.engine_client import EngineClient, StartEngine
from headway.text.chat_template import ChatTemplate
from headway.text.tokenizer import Tokenizer
from tests.server import fake_engine

END = "<|end|>"
# The echoing engine then answers with the last message and its end.
TEMPLATE = "{{ messages[-1]['content'] }}<|end|>"


def byte_tokenizer() -> Tokenizer:
    """One token per byte, ids as `ByteLevel` writes bytes; 256 is the end, 257 another special."""
    alphabet = [_letter(byte) for byte in range(256)]
    vocabulary = {letter: byte for byte, letter in enumerate(alphabet)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens([END, "<|other|>"])
    return Tokenizer(backend, eos_token_id=fake_engine.END_ID)


def _letter(byte: int) -> str:
    """GPT-2's printable stand-in for a byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in printable:
        return chr(byte)
    return chr(256 + sum(1 for b in range(byte) if b not in printable))


class LiveServer:
    def __init__(self, log: Path, port: int, client: EngineClient, app: FastAPI) -> None:
        self.log = log
        self.port = port
        self.client = client
        self.app = app
        self.url = f"http://127.0.0.1:{port}"

    def commands(self, kind: str) -> list[dict[str, Any]]:
        """What the engine was told so far."""
        if not self.log.exists():
            return []
        entries = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [entry for entry in entries if entry["kind"] == kind]

    def wait_for(self, holds: Callable[[], bool], timeout_s: float = 5.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)

    def metric(self, name: str, text: str) -> float:
        """The sum over the samples of that name in an exposition."""
        lines = [x for x in text.splitlines() if x.startswith((name + "{", name + " "))]
        assert lines, f"no sample {name}"
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def _taken(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: settings.pop(name) for name in names if name in settings}


@contextmanager
def live_server(
    directory: Path,
    *engine_flags: str,
    template: str | None = TEMPLATE,
    start_engine: StartEngine | None = None,
    **settings: Any,
) -> Iterator[LiveServer]:
    log = directory / "commands.jsonl"
    # Named, so that asyncio sets TCP_NODELAY: else every answer waits 40 ms for an acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    port = listener.getsockname()[1]
    ready = threading.Event()
    found: dict[str, Any] = {}

    start = start_engine or fake_engine.start(log, *engine_flags)
    client_settings = _taken(settings, "restart_limit", "health_timeout_s")
    limits = _taken(settings, "read_timeout_s", "write_timeout_s", "max_connections")

    async def serve() -> None:
        client = EngineClient(start, **client_settings)
        try:
            await client.wait_ready()
            names = settings.pop("served_model_names", ("echo", "echo-2"))
            stop_ids = frozenset({fake_engine.END_ID})
            app = create_app(
                client,
                byte_tokenizer(),
                None if template is None else ChatTemplate(template),
                AppSettings(served_model_names=names, stop_token_ids=stop_ids, **settings),
            )
            config = uvicorn.Config(
                app,
                http=watched(ConnectionLimits(**limits)),
                ws="none",
                log_config=None,
                log_level="warning",
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=2,
                h11_max_incomplete_event_size=64 << 10,
            )
            server = uvicorn.Server(config)
            found.update(client=client, app=app, server=server)
            ready.set()
            await server.serve(sockets=[listener])
        finally:
            await client.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(20), "the server did not start"
    try:
        yield LiveServer(log, port, found["client"], found["app"])
    finally:
        found["server"].should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"
