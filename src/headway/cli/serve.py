"""`headway serve`: the engine process and the API process, from start to the last goodbye."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
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

from headway.cli.help import print_command_help
from headway.cli.listening import ListenError, address, listening, remove_file
from headway.cli.settings import app_settings, sampling_defaults
from headway.cli.sources import read_flags
from headway.engine.config import EngineConfig
from headway.server.config import ServerConfig
from headway.server.engine_client import EngineClient, EngineStartError, StartEngine
from headway.server.log_format import relay, set_up_logging
from headway.server.log_stats import INTERVAL_S, StatsLog, limits_line, start_lines

if TYPE_CHECKING:
    import uvicorn

    from headway.model_text import ModelText

OpenText = Callable[[EngineConfig, ServerConfig], "ModelText"]
_ABOUT = """\
Answer over HTTP, as OpenAI's API does.

  --config FILE   flags as YAML, without their dashes; the command line goes before them"""
_log = logging.getLogger("headway")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main(argv: Sequence[str]) -> int:
    if "--help" in argv or "-h" in argv:
        print_command_help("serve", _ABOUT)
        return 0
    try:
        flags = read_flags(argv, os.environ)
        engine, server = flags.configs()
        sampling_defaults(server, {})
        if server.custom_histogram_buckets:
            from headway.insight.metrics.buckets import bounds_by_family

            bounds_by_family(engine.max_model_len or 1, server.custom_histogram_buckets)
    except ValueError as error:
        return _fail(str(error))
    for warning in flags.warnings:
        _say(warning)
    return serve(engine, server)


def serve(
    engine: EngineConfig,
    server: ServerConfig,
    *,
    start_engine: StartEngine | None = None,
    open_text: OpenText | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code: 2 when it could not start."""
    set_up_logging(server.uvicorn_log_level, server.log_format)
    if server.otlp_traces_endpoint is not None or server.explain_buffer:
        engine = dataclasses.replace(engine, trace_steps=True)
    starter = start_engine or partial(
        start_engine_process, engine, relays=server.log_format == "json"
    )
    try:
        with listening(server) as listener:
            _log.info("Loading %s", engine.model or "the default model")
            client = EngineClient(
                starter,
                restart_limit=server.engine_restart_limit,
                health_timeout_s=server.health_timeout_s,
            )
            run = _run(engine, server, client, listener, open_text or open_model_text)
            return asyncio.run(run)
    except (ListenError, EngineStartError) as error:
        return _fail(str(error))


def start_engine_process(
    config: EngineConfig, to_engine: str, from_engine: str, *, relays: bool = False
) -> subprocess.Popen[bytes]:
    """In a process group of its own: Ctrl-C is the API process's to pass on.

    `relays`: what it writes to its stderr goes through this process's log.
    """
    words = [sys.executable, "-m", "headway.engine.process"]
    words += ["--to-engine", to_engine, "--from-engine", from_engine]
    words += ["--parent-pid", str(os.getpid())]
    words += ["--config", msgspec.json.encode(config).decode()]
    errors = subprocess.PIPE if relays else None
    process = subprocess.Popen(words, process_group=0, stdin=subprocess.DEVNULL, stderr=errors)
    if process.stderr is not None:
        relay(process.stderr)
    return process


def open_model_text(engine: EngineConfig, server: ServerConfig) -> ModelText:
    """Raises ValueError or OSError with a sentence."""
    from headway.model.source import resolve
    from headway.model_text import open_text

    source = resolve(engine.model, revision=engine.revision, download_dir=engine.download_dir)
    return open_text(source, tokenizer_path=server.tokenizer, chat_template=server.chat_template)


async def _run(
    engine: EngineConfig,
    server: ServerConfig,
    client: EngineClient,
    listener: socket.socket,
    open_text: OpenText,
) -> int:
    try:
        with _cancelled_by_signals():
            text = await load(engine, server, client, open_text)
        return await _serve_http(engine, server, client, listener, text)
    except (EngineStartError, ValueError, OSError) as error:
        return _fail(str(error))
    except asyncio.CancelledError:
        _say("stopped before the engine was ready")
        return 1
    finally:
        await client.close()


async def load(
    engine: EngineConfig, server: ServerConfig, client: EngineClient, open_text: OpenText
) -> ModelText:
    """The tokenizer and FastAPI load here while the engine loads its weights there.

    Raises EngineStartError, ValueError or OSError.
    """
    text, _, _ = await asyncio.gather(
        asyncio.to_thread(open_text, engine, server),
        asyncio.to_thread(_import_server),
        client.wait_ready(),
    )
    return text


def _import_server() -> None:
    for name in ("headway.server.app", "headway.cli.leaving", "uvicorn"):
        importlib.import_module(name)


async def _serve_http(
    engine: EngineConfig,
    server: ServerConfig,
    client: EngineClient,
    listener: socket.socket,
    text: ModelText,
) -> int:
    from headway.cli.leaving import HttpServer, Leaving
    from headway.server.app import create_app

    sampling = sampling_defaults(server, text.sampling_defaults)
    settings = app_settings(engine, server, client.facts, text, sampling)
    app = create_app(client, text.tokenizer, text.template, settings)
    for line in start_lines(client.facts, [str(stop) for stop in text.stop_ids]):
        _log.info(line)
    _log.info(limits_line(settings))
    http = HttpServer(_uvicorn_config(app, server))
    leaving = Leaving(
        http,
        client,
        app.state.traffic,
        server.shutdown_timeout,
        partial(remove_file, server),
    )
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, leaving.on_signal, number)
    _log.info("Listening on %s", address(server, listener))
    async with _stats_lines(client, shown=not server.disable_log_stats):
        await http.serve(sockets=[listener])
    if app.state.tracing is not None:
        await asyncio.to_thread(app.state.tracing.close)
    return 0


def _uvicorn_config(app: Any, server: ServerConfig) -> uvicorn.Config:
    import uvicorn

    from headway.server.connections import ConnectionLimits, watched

    limits = ConnectionLimits(
        read_timeout_s=server.http_read_timeout_s,
        write_timeout_s=server.http_write_timeout_s,
        max_connections=server.max_connections,
    )
    return uvicorn.Config(
        app,
        http=watched(limits),
        ws="none",  # an upgraded connection would be watched by nobody
        lifespan="off",
        log_config=None,
        log_level=server.uvicorn_log_level,
        access_log=False,  # ours has the request id and the client that went
        server_header=False,
        timeout_graceful_shutdown=1,  # by then nothing is under way any more
        h11_max_incomplete_event_size=server.h11_max_incomplete_event_size,
        ssl_keyfile=server.ssl_keyfile,
        ssl_certfile=server.ssl_certfile,
        ssl_ca_certs=None if server.ssl_ca_certs is None else str(server.ssl_ca_certs),
        ssl_cert_reqs=server.ssl_cert_reqs,
        ssl_ciphers=server.ssl_ciphers,
    )


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


def _fail(sentence: str) -> int:
    _say(sentence)
    return 2


def _say(sentence: str) -> None:
    print(f"headway serve: {sentence}", file=sys.stderr)
