"""llama.cpp's server, asked over HTTP in this machine.

A slot each where requests must run together; for mixed requests 16 slots, the best for it: slots
that are not neighbours are decoded in passes of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.load.receiving import Stream, receive
from benchmarks.load.server import HOST, free_port, wait_for_health
from benchmarks.peers.engine import CHUNK_TOKENS, Engine, Item, Setup, check, steps_between

FORMS = {"bf16": "bf16.gguf", "int8": "q8_0.gguf", "int4": "q4_0.gguf"}
BEST_SLOTS, CONTEXT_STEP = 16, 256
_START_S = 60


def server_words(setup: Setup, port: int, slots: int, tokens: int) -> list[str]:
    """The command of a server with so many slots, each for so many tokens."""
    threads = str(setup.num_threads)
    words = [str(setup.program), "-m", str(setup.folder / FORMS[setup.weights])]
    words += ["--host", HOST, "--port", str(port), "-t", threads, "-tb", threads]
    words += ["-np", str(slots), "-c", str(slots * tokens), "-ub", str(CHUNK_TOKENS)]
    return [*words, "-fa", "on", "--cache-ram", "0", "--no-webui"]


class LlamaCpp(Engine):
    def __init__(self, setup: Setup) -> None:
        if setup.program is None:
            raise ValueError("llamacpp needs the path of its llama-server")
        self._setup = setup
        self._server: subprocess.Popen[bytes] | None = None
        self._port = free_port()
        self._running = (0, 0)  # slots, tokens in each
        self.settings = f"{FORMS[setup.weights]}, flash attention, chunks of {CHUNK_TOKENS}"
        self.version = _version(setup.program)

    def ready(self, items: Sequence[Item], *, together: bool) -> None:
        slots = len(items) if together else min(len(items), BEST_SLOTS)
        longest = max(len(prompt) + count for prompt, count in items) + 1
        wanted = slots, -(-longest // CONTEXT_STEP) * CONTEXT_STEP
        if wanted != self._running:
            self.close()
            self._start(*wanted)

    def _start(self, slots: int, tokens: int) -> None:
        words = server_words(self._setup, self._port, slots, tokens)
        self._server = subprocess.Popen(words, stdout=sys.stderr, stderr=sys.stderr)
        wait_for_health(self._server, self._port, _START_S)
        self._running = slots, tokens
        self.generate([([1] * 16, 4)])

    def generate(self, items: Sequence[Item]) -> float:
        began_ns = time.monotonic_ns()
        streams = self._ask(items)
        return (max(stream.events[-1][1] for stream in streams) - began_ns) / 1e9

    def decode(self, items: Sequence[Item]) -> list[float]:
        """From the count of tokens that each event carries: one that ends no text has no event."""
        arrivals = []
        for index, stream in enumerate(self._ask(items)):
            for event, at_ns in stream.events[:-1]:
                arrivals.append((at_ns, index, json.loads(event)["timings"]["predicted_n"]))
        counts = [0] * len(items)
        seen = []
        for at_ns, index, count in sorted(arrivals):
            counts[index] = count
            if index == 0:  # once a step; the others' tokens of this step come a moment later
                seen.append((at_ns / 1e9, list(counts)))
        return steps_between(seen, [count for _, count in items])

    def _ask(self, items: Sequence[Item]) -> list[Stream]:
        bodies = [_body(prompt, count) for prompt, count in items]
        streams = receive(self._port, "/v1/completions", bodies)
        lasts = [json.loads(stream.events[-2][0]) for stream in streams]
        check([last["timings"]["predicted_n"] for last in lasts], items)
        return streams

    def close(self) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait()
            self._server = None


def _body(prompt: list[int], count: int) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "max_tokens": count,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
        "timings_per_token": True,
        "stream": True,
    }


def _version(program: str) -> str:
    folder = os.path.dirname(os.path.abspath(program))
    done = subprocess.run([program, "--version"], capture_output=True, text=True, cwd=folder)
    lines = (done.stderr + done.stdout).splitlines()
    return next((line for line in lines if line.startswith("version")), "unknown")


def open_engine(setup: Setup) -> Engine:
    return LlamaCpp(setup)
