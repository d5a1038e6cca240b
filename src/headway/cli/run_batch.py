"""`headway run-batch`: the requests of a file, answered without a server."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from headway.bench.http1 import printable
from headway.cli.help import print_command_help
from headway.cli.own_flags import split_own
from headway.cli.status_line import StatusLine
from headway.flags import FlagError
from headway.insight.figures import counted, number, seconds

if TYPE_CHECKING:
    import httpx

    from headway.cli.batch_file import Answer, AnswerFile, Line
    from headway.cli.parsing import ParsedFlags
    from headway.cli.serve import OpenText
    from headway.engine.config import EngineConfig
    from headway.model_text import ModelText
    from headway.server.config import ServerConfig
    from headway.server.engine_client import EngineClient, StartEngine

_NAMES = {"-i": "--input-file", "-o": "--output-file"}
_ABOUT = """\
Answer the requests of a file in OpenAI's batch format, all together and without a server. The
output has an answer for each line, in the same order. What a server would refuse is refused on its
line alone. A line is

  {"custom_id": "a", "url": "/v1/chat/completions", "body": {...}}

  -i, --input-file FILE   the requests; .gz and .zst are read as they are
  -o, --output-file FILE  the answers; - is standard output
  --config FILE           flags as YAML, without their dashes

Exit code: 0 all were answered, 1 some were not, 2 it could not be run."""
# Flags of the server that say how requests are read, run and answered.
_TAKEN = frozenset(
    {
        *("tokenizer", "chat_template", "chat_template_content_format"),
        *("default_chat_template_kwargs", "trust_request_chat_template", "response_role"),
        *("generation_config", "override_generation_config", "clamp_max_tokens"),
        *("return_tokens_as_token_ids", "enable_per_request_metrics", "explain_buffer"),
        *("fingerprint_mode", "fingerprint_value", "max_request_seconds", "max_body_bytes"),
    }
)
_LEAST_OPEN = 1024  # requests that the scheduler may choose from, or four times its slots
_INTERRUPTED = 130
_log = logging.getLogger("headway")


def main(argv: Sequence[str]) -> int:
    """Returns the exit code."""
    if "--help" in argv or "-h" in argv:
        print_command_help("run-batch", _ABOUT, _TAKEN)
        return 0
    try:
        source, target, flags = _asked(argv)
        engine, server = flags.configs()
        return run_batch(source, target, engine, server)
    except (ValueError, OSError) as error:
        print(f"headway run-batch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("headway run-batch: stopped; the output has what was answered", file=sys.stderr)
        return _INTERRUPTED


def _asked(argv: Sequence[str]) -> tuple[str, str, ParsedFlags]:
    """Input, output, and the rest of the line. Raises FlagError."""
    from headway.cli.readouts import refuse_unwritable
    from headway.cli.sources import read_flags

    given, rest = split_own(argv, (*_NAMES, *_NAMES.values()))
    own = {_NAMES.get(name, name): value for name, value in given.items()}
    for name in _NAMES.values():
        if name not in own:
            raise FlagError(f"{name} is missing: headway run-batch -i FILE -o FILE [MODEL]")
    source, target = own["--input-file"], own["--output-file"]
    refuse_unwritable("--output-file", target)
    if all(map(os.path.exists, (source, target))) and os.path.samefile(source, target):
        raise FlagError(f"the answers would replace the requests in {target}: give another file")
    flags = read_flags(rest, {})
    for field in flags.server:
        if field not in _TAKEN:
            raise FlagError(f"{flags.names[field]} is for headway serve: leave it out")
    return source, target, flags


def run_batch(
    source: str,
    target: str,
    engine: EngineConfig,
    server: ServerConfig,
    *,
    start_engine: StartEngine | None = None,
    open_text: OpenText | None = None,
) -> int:
    """Raises ValueError or OSError, with a sentence, where it cannot be run."""
    from headway.cli.batch_file import read_batch
    from headway.cli.serve import open_model_text, start_engine_process
    from headway.server.engine_client import EngineStartError
    from headway.server.log_format import set_up_logging

    batch = _Batch(read_batch(source), target)
    set_up_logging("warning", server.log_format)
    server = dataclasses.replace(server, disable_uvicorn_access_log=True)
    engine = dataclasses.replace(engine, trace_steps=bool(server.explain_buffer))
    start = start_engine or partial(start_engine_process, engine)
    try:
        asyncio.run(batch.run(engine, server, start, open_text or open_model_text))
    except EngineStartError as error:
        raise ValueError(str(error)) from None
    print(batch.report(), file=sys.stderr)
    return 1 if batch.problems else 0


class _Usage(msgspec.Struct):
    completion_tokens: int = 0
    output_tokens: int = 0  # as responses call them


class _Told(msgspec.Struct):
    usage: _Usage


class _Batch:
    """The lines of a file on their way through the application that `headway serve` serves."""

    def __init__(self, lines: Sequence[Line], target: str) -> None:
        self._lines = lines
        self._target = target
        self._progress = StatusLine()
        self._num_answers = 0
        self._num_tokens = 0
        self._seconds = 0.0
        self.problems: dict[int, str] = {}  # of lines, by their place

    async def run(
        self, engine: EngineConfig, server: ServerConfig, start: StartEngine, open_text: OpenText
    ) -> None:
        """Raises EngineStartError, ValueError or OSError."""
        from headway.cli.batch_file import AnswerFile
        from headway.cli.serve import load
        from headway.server.engine_client import EngineClient

        self._progress.say("loading the model")
        client = EngineClient(start, restart_limit=0)
        try:
            text = await load(engine, server, client, open_text)
            door = _door(engine, server, client, text)
            most_open = max(_LEAST_OPEN, 4 * client.facts.max_num_seqs)
            with AnswerFile(self._target) as answers:
                await self._answer_all(door, answers, most_open)
        finally:
            self._progress.clear()
            await _close(client)

    async def _answer_all(
        self, door: httpx.AsyncClient, answers: AnswerFile, most_open: int
    ) -> None:
        began = time.monotonic()
        places = iter(enumerate(self._lines))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(most_open, len(self._lines))):
                    group.create_task(self._answer_some(door, answers, places))
        except* ValueError as errors:  # of the output: the disk is full
            raise errors.exceptions[0] from None
        finally:
            self._seconds = time.monotonic() - began

    async def _answer_some(
        self, door: httpx.AsyncClient, answers: AnswerFile, places: Iterator[tuple[int, Line]]
    ) -> None:
        for place, line in places:
            answer = await _answer(door, line)
            self._count(place, answer)
            answers.add(place, answer)

    def _count(self, place: int, answer: Answer) -> None:
        self._num_answers += 1
        if answer.error is not None:
            self.problems[place] = answer.error.message
        elif answer.response is not None:
            usage = msgspec.json.decode(answer.response.body, type=_Told).usage
            self._num_tokens += usage.completion_tokens + usage.output_tokens
        failed = f", {len(self.problems):,} not served" if self.problems else ""
        self._progress.say(f"{self._num_answers:,} of {len(self._lines):,} answered{failed}")

    def report(self) -> str:
        rate = self._num_tokens / self._seconds
        line = (
            f"{counted(self._num_answers - len(self.problems), 'request')} answered with "
            f"{self._num_tokens:,} tokens in {seconds(self._seconds)} ({number(rate)} tokens/s)"
        )
        if not self.problems:
            return line
        first = min(self.problems)
        named = self._lines[first].custom_id
        said = f"{'a line without custom_id' if named is None else named}: {self.problems[first]}"
        return f"{line}\n{len(self.problems):,} not served; the first is {printable(said)}"


async def _close(client: EngineClient) -> None:
    try:
        await client.close()
    except asyncio.CancelledError:  # by a second Ctrl-C
        client.kill()
        raise


def _door(
    engine: EngineConfig, server: ServerConfig, client: EngineClient, text: ModelText
) -> httpx.AsyncClient:
    """What asks the server's application, without a socket."""
    import httpx

    from headway.cli.settings import app_settings, sampling_defaults
    from headway.server.app import create_app

    sampling = sampling_defaults(server, text.sampling_defaults)
    settings = app_settings(engine, server, client.facts, text, sampling)
    app = create_app(client, text.tokenizer, text.template, settings)

    async def logged(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        except Exception:  # it has been answered with status 500
            _log.exception("A request of the batch failed")

    return httpx.AsyncClient(
        transport=httpx.ASGITransport(logged), base_url="http://batch", trust_env=False
    )


async def _answer(door: httpx.AsyncClient, line: Line) -> Answer:
    from headway.cli.batch_file import answered, unasked

    if line.problem:
        return unasked(line)
    headers = {"content-type": "application/json"}
    reply = await door.post(line.url, content=line.body, headers=headers)
    return answered(line, reply.status_code, reply.content)
