"""What prompts do to those who decode, on the real engine: `stall_guard --engine SCENE` runs one.

    two-7k     one stream; two prompts of 7,000 tokens at once, and one of 64 a second later
    eight-2k   eight streams with a context of 2,048 each; a prompt of 7,000
    many-256   four streams; a prompt of 256 five times a second, for 20 seconds

All prompts are cold. They begin three seconds after the last stream does. As in a server, the KV
cache has its memory before the first step: a page taken from the system in the midst of a step
holds it up for some milliseconds, a block for as many pages as the model has layers, twice.

What the host does is told apart from what is mispredicted: by how much steps that only decode
exceed the median of the seven before, and steps with a prompt what was predicted for them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.policies.gaps import Watch, percentile

from headway.core.events import Aborted, Event, Retired
from headway.core.request import Request, SamplingParams
from headway.drive.ports import Command, Submit, Withdraw
from headway.engine.build import assemble
from headway.engine.config import EngineConfig
from headway.engine.garbage import rarely_look_for_garbage
from headway.engine.populating import populate_in_background
from headway.model.loader import load_model
from headway.model.source import resolve
from headway.ops.cpu.backend import CpuOps

_MAX_MODEL_LEN = 8192
_LEAD_NS = 3_000_000_000  # in which the streams are alone


@dataclass(frozen=True, slots=True)
class Scene:
    """Streams of a context, and prompts of so many tokens, so many seconds after the lead."""

    num_streams: int
    context: int
    prompts: tuple[tuple[float, int], ...]


SCENES = {
    "two-7k": Scene(1, 64, ((0, 7000), (0, 7000), (1, 64))),
    "eight-2k": Scene(8, 2048, ((0, 7000),)),
    "many-256": Scene(4, 64, tuple((number / 5, 256) for number in range(100))),
}


class Clients:
    """Inbox: a scene's streams until its prompts have ended, or the time is over."""

    def __init__(self, scene: Scene, watch: Watch, seconds: float) -> None:
        self._scene = scene
        self._watch = watch
        self._rng = Random(1)
        self._over_ns = time.monotonic_ns() + round(seconds * 1e9)
        self._to_come: list[Request] | None = None  # prompts, once it is known when
        self._has_begun = False
        self._live: set[str] = set()
        self._num_left = len(scene.prompts)
        self.num_cut_off = 0
        self.num_streams = scene.num_streams
        self.sent: list[Request] = []

    def take(self) -> list[Command]:
        now_ns = time.monotonic_ns()
        if not self._has_begun:
            self._has_begun = True
            streams = [(f"stream-{number}", now_ns) for number in range(self._scene.num_streams)]
            return [self._submit(self._request(*one, self._scene.context, 8192)) for one in streams]
        if now_ns > self._over_ns or not self._num_left:
            self.num_cut_off = self.num_cut_off or self._num_left
            return [Withdraw(name) for name in sorted(self._live)]
        if self._to_come is None:
            if len(self._watch.first_token_ns) == self._scene.num_streams:
                self._watch.forget()
                self._to_come = self._prompts(now_ns + _LEAD_NS)
            return []
        due = [request for request in self._to_come if request.arrival_ns <= now_ns]
        self._to_come = self._to_come[len(due) :]
        self.sent += due
        return [self._submit(request) for request in due]

    def _prompts(self, begin_ns: int) -> list[Request]:
        return [
            self._request(f"prompt-{number}", begin_ns + round(after_s * 1e9), size, 4)
            for number, (after_s, size) in enumerate(self._scene.prompts)
        ]

    def _request(self, name: str, arrival_ns: int, size: int, most: int) -> Request:
        tokens = tuple(self._rng.randrange(1000, 40_000) for _ in range(size))
        sampling = SamplingParams(max_tokens=min(most, _MAX_MODEL_LEN - size), ignore_eos=True)
        return Request(
            request_id=name, prompt_token_ids=tokens, sampling=sampling, arrival_ns=arrival_ns
        )

    def _submit(self, request: Request) -> Command:
        self._live.add(request.request_id)
        return Submit(request)

    def wait(self, until_ns: int | None = None) -> bool:
        return False

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        ended = {event.request_id for event in events if isinstance(event, Retired | Aborted)}
        self._live -= ended
        self._num_left -= sum(name.startswith("prompt") for name in ended)


class Bench:
    """The default model, loaded once; a run is an engine of its own."""

    def __init__(self) -> None:
        self._source, self._ops = resolve(None), CpuOps()
        self._model = load_model(self._source, self._ops, "bfloat16")
        rarely_look_for_garbage()

    def run(self, scene: Scene, seconds: float, knobs: Mapping[str, Any]) -> tuple[Watch, Clients]:
        config = EngineConfig(
            max_num_batched_tokens=2048,
            max_num_seqs=16,
            num_gpu_blocks_override=3200,
            max_model_len=_MAX_MODEL_LEN,
            **knobs,
        )
        watch = Watch()
        clients = Clients(scene, watch, seconds)
        engine = assemble(
            config, self._source, self._model, self._ops, clients, (clients,), (watch,)
        )
        populate_in_background(engine.kv_cache).join()
        engine.loop.run()
        return watch, clients


def report(watch: Watch, clients: Clients, target_ms: float) -> str:
    """Gaps, first tokens, and the prompt tokens a second while there were prompts."""
    gaps = watch.gaps_ms
    places = {"p50": 500, "p99": 990, "p99.9": 999}
    found = ", ".join(f"{name} {percentile(gaps, place):.1f}" for name, place in places.items())
    late = sum(gap > 1.1 * target_ms for gap in gaps) / len(gaps)
    seconds = (watch.prompts_ns - watch.begun_ns) / 1e9
    lines = [
        f"gaps {found} ms of {len(gaps)}; {late:.1%} above 1.1 x target",
        f"first tokens after {_first_tokens(watch, clients)} s; "
        f"{watch.num_prompt_tokens / seconds:.0f} prompt tokens/s",
        f"beyond the median, only decodes: {_tail(watch.decodes_late_ms())}",
    ]
    if watch.late_ms:
        lines.append(f"beyond the prediction:           {_tail(watch.late_ms)}")
    if clients.num_cut_off:
        lines.append(f"cut off with {clients.num_cut_off} prompts left: raise --seconds")
    return "\n".join(f"    {line}" for line in lines)


def _first_tokens(watch: Watch, clients: Clients) -> str:
    numbers = range(clients.num_streams, clients.num_streams + len(clients.sent))
    waits = [
        (watch.first_token_ns[number] - request.arrival_ns) / 1e9
        for number, request in zip(numbers, clients.sent, strict=True)
        if number in watch.first_token_ns
    ]
    if len(waits) <= 3:  # none, if it was cut off before
        return ", ".join(f"{wait:.2f}" for wait in waits)
    return f"p50 {percentile(waits, 500):.2f}, p99 {percentile(waits, 990):.2f}"


def _tail(late_ms: Sequence[float]) -> str:
    cells = (f"p{place} {percentile(late_ms, 10 * place):.1f}" for place in (50, 90, 95, 99))
    return f"{', '.join(cells)}, longest {max(late_ms):.1f} ms of {len(late_ms)}"
