"""Does the server keep every stream apart and lose none, under five hundred clients at once?

    python -m benchmarks.load.streams [--minutes 2] [--streams 500] [--seed 1] [-- SERVE FLAGS]

Starts `headway serve` with the default model. Clients come at random (open loop, up to --streams
at once) and stay, leave in the middle of a stream or of the queue with FIN or RST, or ask for what
cannot be. Every answer, whole or cut, must be that of the same request served alone, bit for bit.
The KV cache is small: sequences are preempted, and all of its pages are touched early, so that what
grows after the first minute is a leak.
Prints a table; exits with 1 when a check fails. `--minutes 30` is the soak.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import random
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from benchmarks.load.exchange import BadAnswerError, Exchange
from benchmarks.load.pool import Answer, Item, answer_alone, draw_pool, growing
from benchmarks.load.server import Server, running
from benchmarks.load.watch import Watch, watching

_POOL_SIZE = 40
_DRAIN_S = 180.0  # for what is under way when the last client has come
_RAMP_S = 5.0  # in which the first --streams clients come
_MAX_GROWTH_MIB = 32.0
_MAX_HEALTH_S = 1.0
_FLAGS = ("--kv-cache-memory-bytes", "512MiB")


@dataclass
class Tally:
    """How the clients fared: counts by what they did, and each fault in words."""

    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    faults: list[str] = field(default_factory=list)
    first_token_s: list[float] = field(default_factory=list)
    num_tokens: int = 0
    num_at_once: int = 0


@dataclass
class Clients:
    """One method per way to behave; each adds to the tally and raises nothing."""

    server: Server
    pool: list[Item]
    rng: random.Random
    tally: Tally = field(default_factory=Tally)

    async def stay(self) -> None:
        item, answer = self.rng.choice(self.pool), Answer()
        began = time.monotonic()
        async with Exchange(self.server.port) as exchange:
            await exchange.send(item.path, {**item.body, "stream": True})
            await _expect(exchange, 200)
            first_s = 0.0
            async for _ in growing(exchange, answer):
                if answer.tokens:
                    first_s = first_s or time.monotonic() - began
        self.tally.first_token_s.append(first_s)
        self._compare(item, answer, is_whole=True)

    async def stay_unstreamed(self) -> None:
        item, answer = self.rng.choice(self.pool), Answer()
        async with Exchange(self.server.port) as exchange:
            await exchange.send(item.path, item.body)
            await _expect(exchange, 200)
            answer.add(json.loads(await exchange.body())["choices"][0])
        self._compare(item, answer, is_whole=True)

    async def leave_in_the_middle(self, leave: Callable[[Exchange], None]) -> None:
        item, answer = self.rng.choice(self.pool), Answer()
        patience = self.rng.randrange(1, 8)
        async with Exchange(self.server.port) as exchange:
            await exchange.send(item.path, {**item.body, "stream": True})
            await _expect(exchange, 200)
            async for _ in growing(exchange, answer):
                patience -= 1
                if not patience:
                    leave(exchange)
                    break
        self._compare(item, answer, is_whole=False)

    async def leave_in_the_queue(self, leave: Callable[[Exchange], None]) -> None:
        item, wait_s = self.rng.choice(self.pool), self.rng.uniform(0, 0.5)
        is_streamed = self.rng.random() < 0.5
        async with Exchange(self.server.port) as exchange:
            await exchange.send(item.path, {**item.body, "stream": is_streamed})
            await asyncio.sleep(wait_s)
            leave(exchange)

    async def ask_too_much(self) -> None:
        prompt = [self.rng.randrange(1000, 40000) for _ in range(self.rng.choice((9000, 20000)))]
        await self._be_refused({"prompt": prompt, "stream": self.rng.random() < 0.5})

    async def ask_nonsense(self) -> None:
        bodies: list[dict[str, object] | bytes] = [
            {"prompt": "x", "temperature": -1},
            {"prompt": "x", "n": 0},
            {"prompt": []},
            {"prompt": [999_999_999]},
            {"messages": "x", "prompt": 7},
            {"prompt": "x", "stop": [["deep"]]},
            {"prompt": "x", "top_p": "high"},
            b"{",
            b"\xff\xfe",
            b"[1, 2]",
        ]
        await self._be_refused(self.rng.choice(bodies))

    async def _be_refused(self, body: dict[str, object] | bytes) -> None:
        async with Exchange(self.server.port) as exchange:
            await exchange.send("/v1/completions", body)
            await _expect(exchange, 400)
            error = json.loads(await exchange.body())["error"]
        if set(error) != {"message", "type", "param", "code"} or not error["message"]:
            self.tally.faults.append(f"an error of another shape: {error}")

    def _compare(self, item: Item, answer: Answer, *, is_whole: bool) -> None:
        self.tally.num_tokens += len(answer.tokens)
        same = answer == item.solo if is_whole else answer.is_part_of(item.solo)
        if not same:
            self.tally.faults.append(f"not as when served alone: {answer} instead of {item.solo}")


async def _expect(exchange: Exchange, status: int) -> None:
    if await exchange.read_head() != status:
        body = (await exchange.body()).decode(errors="replace")
        raise BadAnswerError(f"status {exchange.status} instead of {status}: {body[:300]}")


Behaviour = Callable[[Clients], Coroutine[None, None, None]]
BEHAVIOURS: dict[str, tuple[float, Behaviour]] = {
    "streamed to the end": (40, Clients.stay),
    "not streamed": (8, Clients.stay_unstreamed),
    "left a stream, FIN": (12, lambda c: c.leave_in_the_middle(Exchange.close)),
    "left a stream, RST": (12, lambda c: c.leave_in_the_middle(Exchange.reset)),
    "left the queue, FIN": (9, lambda c: c.leave_in_the_queue(Exchange.close)),
    "left the queue, RST": (9, lambda c: c.leave_in_the_queue(Exchange.reset)),
    "too long, refused": (5, Clients.ask_too_much),
    "nonsense, refused": (5, Clients.ask_nonsense),
}


async def run_client(clients: Clients, name: str, behaviour: Behaviour) -> None:
    tally = clients.tally
    tally.num_at_once += 1
    try:
        await behaviour(clients)
        tally.counts[name] += 1
    except (BadAnswerError, OSError, KeyError, ValueError) as error:
        tally.faults.append(f"{name}: {type(error).__name__}: {error}")
    finally:
        tally.num_at_once -= 1


async def come_and_go(clients: Clients, *, limit: int, rate: float, seconds: float) -> list[str]:
    """Returns what hangs: the behaviours of the clients that were still there at the end."""
    names = list(BEHAVIOURS)
    weights = [BEHAVIOURS[name][0] for name in names]
    began, num_come, most = time.monotonic(), 0, 0
    tasks: dict[asyncio.Task[None], str] = {}
    while time.monotonic() - began < seconds:
        for task in [task for task in tasks if task.done()]:
            del tasks[task]
        if len(tasks) < limit:
            name = clients.rng.choices(names, weights)[0]
            work = run_client(clients, name, BEHAVIOURS[name][1])
            tasks[asyncio.create_task(work)] = name
            num_come += 1
        most = max(most, clients.tally.num_at_once)
        ramp = num_come < limit and time.monotonic() - began < _RAMP_S
        await asyncio.sleep(clients.rng.expovariate(limit / _RAMP_S if ramp else rate))
    if tasks:
        await asyncio.wait(tasks, timeout=_DRAIN_S)
    clients.tally.counts["most at once"] = most
    hanging = [name for task, name in tasks.items() if not task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return hanging


async def held_blocks_at_the_end(server: Server) -> float:
    """Two steps after the last client left nothing may be held; a second is enough for them."""
    held = 1.0
    for _ in range(20):
        held = await asyncio.to_thread(server.metric, "headway:blocks", state="held")
        if not held:
            break
        await asyncio.sleep(0.1)
    return held


def report(
    tally: Tally, watch: Watch, hanging: list[str], held: float, preemptions: float, seconds: float
) -> bool:
    for name in [*BEHAVIOURS, "most at once"]:
        print(f"{name:44s} {tally.counts[name]:8d}")
    print(f"{'output tokens per second, of those compared':44s} {tally.num_tokens / seconds:8.1f}")
    print(f"{'preemptions':44s} {preemptions:8.0f}")
    waits = sorted(tally.first_token_s) or [0.0]
    print(f"{'time to first token, median and worst, s':44s} {waits[len(waits) // 2]:8.2f}", end="")
    print(f" {waits[-1]:8.2f}")
    for name in watch.memory:
        print(f"{f'resident memory of {name}, peak, MiB':44s} {watch.peak_mib(name):8.0f}")
    checks = {
        "streams lost, mixed up or refused": (len(tally.faults), 0),
        "streams that hang": (len(hanging), 0),
        "blocks held at the end": (held, 0),
        "slowest /health, s": (watch.worst_health_s(), _MAX_HEALTH_S),
        "/health slower than that or not 200": (len(watch.bad_health(_MAX_HEALTH_S)), 0),
    }
    for name in watch.memory:
        checks[f"growth of {name} after the first minute, MiB"] = (
            watch.growth_mib(name),
            _MAX_GROWTH_MIB,
        )
    for name, (value, most) in checks.items():
        verdict = "ok" if value <= most else f"FAILED, at most {most}"
        print(f"{name:44s} {value:8.2f}  {verdict}")
    for fault in [*tally.faults, *watch.bad_health(_MAX_HEALTH_S)][:20]:
        print("  ", fault[:600])
    return all(value <= most for value, most in checks.values())


async def run(args: argparse.Namespace, server: Server) -> bool:
    pool = draw_pool(_POOL_SIZE, args.seed)
    await answer_alone(server, pool)
    num_tokens = sum(len(item.solo.tokens) for item in pool)
    print(f"{len(pool)} requests served alone: {num_tokens} tokens; seed {args.seed}", flush=True)
    clients = Clients(server, pool, random.Random(args.seed))
    began = time.monotonic()
    async with watching(server) as watch:
        hanging = await come_and_go(
            clients, limit=args.streams, rate=args.rate, seconds=args.minutes * 60
        )
        held = await held_blocks_at_the_end(server)
        preemptions = await asyncio.to_thread(server.metric, "vllm:num_preemptions_total")
    return report(clients.tally, watch, hanging, held, preemptions, time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--streams", type=int, default=500, help="most clients at once")
    parser.add_argument("--rate", type=float, default=40, help="clients per second, after the ramp")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("flags", nargs="*", help="flags of headway serve, after --")
    args = parser.parse_args()
    with running([*_FLAGS, *args.flags]) as server:
        return 0 if asyncio.run(run(args, server)) else 1


if __name__ == "__main__":
    sys.exit(main())
