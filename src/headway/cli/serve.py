"""`headway serve`: the engine process and the API process, from start to the last goodbye."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from headway.cli.parsing import parse_flags, print_help
from headway.engine.config import EngineConfig
from headway.flags import FlagError
from headway.server.config import AppSettings, ServerConfig
from headway.server.engine_client import EngineClient, EngineStartError, StartEngine
from headway.server.log_stats import INTERVAL_S, StatsLog, start_lines

if TYPE_CHECKING:
    import uvicorn

    from headway.model_text import ModelText

OpenText = Callable[[EngineConfig, ServerConfig], "ModelText"]
_log = logging.getLogger("headway")
_GOODBYE_S = 5  # for errors to reach their clients after the shutdown timeout
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main(argv: Sequence[str]) -> int:
    if "--help" in argv or "-h" in argv:
        print_help("serve", "Answer over HTTP, as OpenAI's API does.")
        return 0
    try:
        flags = parse_flags(argv)
        engine, server = flags.configs()
    except FlagError as error:
        print(f"headway serve: {error}", file=sys.stderr)
        return 2
    for warning in flags.warnings:
        print(f"headway serve: {warning}", file=sys.stderr)
    return serve(engine, server)


def serve(
    engine: EngineConfig,
    server: ServerConfig,
    *,
    start_engine: StartEngine | None = None,
    open_text: OpenText | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code: 1 when it could not start."""
    _set_up_logging(server)
    try:
        listener = _listen(server)
    except OSError as error:
        return _fail(f"cannot listen on {server.host}:{server.port}: {error.strerror or error}")
    client = EngineClient(start_engine or partial(start_engine_process, engine))
    with listener:
        return asyncio.run(_run(engine, server, client, listener, open_text or open_model_text))


def start_engine_process(
    config: EngineConfig, to_engine: str, from_engine: str
) -> subprocess.Popen[bytes]:
    """In a process group of its own: Ctrl-C is the API process's to pass on."""
    words = [sys.executable, "-m", "headway.engine.process"]
    words += ["--to-engine", to_engine, "--from-engine", from_engine]
    words += ["--parent-pid", str(os.getpid())]
    words += ["--config", msgspec.json.encode(config).decode()]
    return subprocess.Popen(words, process_group=0, stdin=subprocess.DEVNULL)


def open_model_text(engine: EngineConfig, server: ServerConfig) -> ModelText:
    """Raises ValueError or OSError with a sentence."""
    from headway.model.source import resolve
    from headway.model_text import open_text

    source = resolve(engine.model, revision=engine.revision, download_dir=engine.download_dir)
    template = None if server.chat_template is None else server.chat_template.read_text()
    return open_text(source, tokenizer_path=server.tokenizer, chat_template=template)


async def _run(
    engine: EngineConfig,
    server: ServerConfig,
    client: EngineClient,
    listener: socket.socket,
    open_text: OpenText,
) -> int:
    try:
        with _cancelled_by_signals():
            # The tokenizer and FastAPI load here while the engine loads its weights there.
            text, _, _ = await asyncio.gather(
                asyncio.to_thread(open_text, engine, server),
                asyncio.to_thread(importlib.import_module, "headway.server.app"),
                client.wait_ready(),
            )
        return await _serve_http(engine, server, client, listener, text)
    except (EngineStartError, ValueError, OSError) as error:
        return _fail(str(error))
    except asyncio.CancelledError:
        return _fail("stopped before the engine was ready")
    finally:
        await client.close()


async def _serve_http(
    engine: EngineConfig,
    server: ServerConfig,
    client: EngineClient,
    listener: socket.socket,
    text: ModelText,
) -> int:
    import uvicorn

    from headway.server.app import create_app

    settings = AppSettings(
        served_model_names=engine.served_model_name or (client.facts.model,),
        stop_token_ids=text.stop_token_ids | frozenset(client.facts.stop_token_ids),
        default_sampling=text.sampling_defaults,
        api_keys=server.api_key,
    )
    app = create_app(client, text.tokenizer, text.template, settings)
    for line in start_lines(client.facts, [str(stop) for stop in text.stop_ids]):
        _log.info(line)
    _log.info("Listening on http://%s:%d", *listener.getsockname()[:2])
    config = uvicorn.Config(
        app,
        log_level=server.uvicorn_log_level,
        lifespan="off",
        timeout_graceful_shutdown=server.shutdown_timeout + _GOODBYE_S,
    )
    # uvicorn raises the signal that ended it once more; by then it must not end us.
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    async with _stats_lines(client, shown=not server.disable_log_stats):
        http = uvicorn.Server(config)
        watch = asyncio.create_task(_end_in_time(http, client, server.shutdown_timeout))
        await http.serve(sockets=[listener])
        watch.cancel()
    return 0


async def _end_in_time(http: uvicorn.Server, client: EngineClient, timeout_s: float) -> None:
    """Once told to stop, what still runs after `timeout_s` ends with an error, not a cut line."""
    while not http.should_exit:
        await asyncio.sleep(0.1)
    await asyncio.sleep(timeout_s)
    client.end_requests("the server is shutting down")


@contextlib.asynccontextmanager
async def _stats_lines(client: EngineClient, *, shown: bool) -> Any:
    task = asyncio.create_task(_say_stats(client)) if shown else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


async def _say_stats(client: EngineClient) -> None:
    stats = StatsLog()
    client.add_fold(stats)
    while True:
        began = time.monotonic()
        await asyncio.sleep(INTERVAL_S)
        _log.log(*stats.line(time.monotonic() - began))


@contextlib.contextmanager
def _cancelled_by_signals() -> Any:
    """While the engine starts there is nothing to finish: a signal ends it all at once."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in _SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _listen(server: ServerConfig) -> socket.socket:
    """Bound before anything is loaded, so that a port in use is known in milliseconds."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY: else a small answer waits 40 ms for an ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((server.host, server.port))
    except OSError:
        listener.close()
        raise
    return listener


def _set_up_logging(server: ServerConfig) -> None:
    level = logging.DEBUG if server.uvicorn_log_level in ("debug", "trace") else logging.INFO
    logging.basicConfig(format="%(levelname)s %(asctime)s %(message)s", stream=sys.stderr)
    _log.setLevel(level)


def _fail(sentence: str) -> int:
    print(f"headway serve: {sentence}", file=sys.stderr)
    return 1
