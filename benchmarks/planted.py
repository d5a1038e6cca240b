"""Whether explanations of a real server name a cause that was planted.

    python -m benchmarks.planted [--rounds 4] [--only WORDS]

Each traffic is served twice, without the cause and with it. Affected is a request that, by its
client's own clock, took longer with it by at least a quarter of what it then took. Counted is how
many of these are explained by that cause; the others are listed. Exits with 1 below 95 % of any.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
from benchmarks.load.server import HOST, Server, running

from headway.insight.explain.report import Explanation

_LEAST_GROWTH = 0.25
_BAR = 0.95
_FLAGS = ("--quantization", "int8", "--no-enable-prefix-caching", "--max-logprobs", "20")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request; `bytes_per_s`: how fast its client reads, None for as fast as it can."""

    name: str
    prompt: str = "Say something about rivers."
    max_tokens: int = 100
    after_s: float = 0.0
    tenant: str = ""
    fields: dict[str, Any] | None = None
    bytes_per_s: int | None = None

    @property
    def body(self) -> dict[str, Any]:
        usual = {"prompt": self.prompt, "max_tokens": self.max_tokens, "ignore_eos": True}
        return {**usual, **(self.fields or {}), "request_id": self.name}


@dataclass(frozen=True, kw_only=True)
class Plant:
    """`causes`: any of these is right; `culprit`: the request that must be named besides."""

    name: str
    causes: tuple[str, ...]
    traffic: Callable[[str, bool], Sequence[Asked]]
    plain: tuple[str, ...] = ()
    planted: tuple[str, ...] = ()
    culprit: str = ""


# ---- The traffics ----


def _crowd(prefix: str, planted: bool) -> list[Asked]:
    return [Asked(name=f"{prefix}-{number}") for number in range(12)]


def _decoders(prefix: str, planted: bool) -> list[Asked]:
    decoders = [Asked(name=f"{prefix}-{number}", max_tokens=60) for number in range(6)]
    long = Asked(name=f"{prefix}-long", prompt="river " * 3000, max_tokens=2, after_s=0.3)
    return [*decoders, long] if planted else decoders


def _tenants(prefix: str, planted: bool) -> list[Asked]:
    tenants = "a" * 9 + "b" * 3
    return [Asked(name=f"{prefix}-{n}", tenant=tenant) for n, tenant in enumerate(tenants)]


def _readers(prefix: str, planted: bool) -> list[Asked]:
    """A megabyte each: what the system holds for a client is a few hundred kilobytes."""
    fields = {"stream": True, "logprobs": 20, "n": 4}
    rate = 100_000 if planted else None
    return [
        Asked(name=f"{prefix}-{number}", max_tokens=250, fields=fields, bytes_per_s=rate)
        for number in range(4)
    ]


# Slots are named: unnamed they are as many as fit, and then these are what one waits for.
_SMALL = ("--num-gpu-blocks-override", "30", "--max-model-len", "480", "--max-num-seqs", "32")
_LARGE = ("--num-gpu-blocks-override", "600", "--max-model-len", "480", "--max-num-seqs", "32")
PLANTS = (
    Plant(name="a long prompt", causes=("stall",), traffic=_decoders, culprit="long"),
    Plant(
        name="a small pool, on demand",
        causes=("queue: blocks", "preempted"),
        traffic=_crowd,
        plain=(*_LARGE, "--kv-policy", "on-demand"),
        planted=(*_SMALL, "--kv-policy", "on-demand"),
    ),
    Plant(
        name="a small pool, predicted",
        causes=("queue: blocks", "preempted"),
        traffic=_crowd,
        plain=_LARGE,
        planted=_SMALL,
    ),
    Plant(
        name="two slots",
        causes=("queue: slots",),
        traffic=_crowd,
        plain=("--max-num-seqs", "32"),
        planted=("--max-num-seqs", "2"),
    ),
    Plant(
        name="a tenant's cap",
        causes=("queue: tenant",),
        traffic=_tenants,
        planted=("--max-tenant-seqs", "2"),
    ),
    Plant(name="slow clients", causes=("delivery",), traffic=_readers),
)


# ---- Serving them ----


def serve(plant: Plant, rounds: int, *, planted: bool) -> dict[str, tuple[float, Explanation]]:
    """By request: seconds at its client, and what the server says."""
    found: dict[str, tuple[float, Explanation]] = {}
    with running([*_FLAGS, *(plant.planted if planted else plant.plain)]) as server:
        asyncio.run(_ask_all(server, [Asked(name="warm-up", max_tokens=20)]))
        for number in range(rounds):
            asked = plant.traffic(f"r{number}", planted)
            for name, seconds in asyncio.run(_ask_all(server, asked)).items():
                found[name] = (seconds, _explained(server, name))
    return found


async def _ask_all(server: Server, asked: Sequence[Asked]) -> dict[str, float]:
    async with httpx.AsyncClient(base_url=server.url, timeout=300) as http:
        seconds = await asyncio.gather(*(_ask(http, server.port, one) for one in asked))
    return {one.name: taken for one, taken in zip(asked, seconds, strict=True)}


async def _ask(http: httpx.AsyncClient, port: int, asked: Asked) -> float:
    await asyncio.sleep(asked.after_s)
    began = time.monotonic()
    if asked.bytes_per_s is not None:
        await _read_slowly(port, asked, asked.bytes_per_s)
    else:
        headers = {"x-tenant-id": asked.tenant} if asked.tenant else {}
        answer = await http.post("/v1/completions", json=asked.body, headers=headers)
        answer.raise_for_status()
    return time.monotonic() - began


async def _read_slowly(port: int, asked: Asked, bytes_per_s: int) -> None:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (HOST, port))
        content = json.dumps(asked.body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: {HOST}\r\n"
        await loop.sock_sendall(
            connection, f"{head}content-length: {len(content)}\r\n\r\n".encode() + content
        )
        end = b""
        while not end.endswith(b"0\r\n\r\n"):
            piece = await loop.sock_recv(connection, bytes_per_s // 20)
            end = (end + piece)[-8:]
            await asyncio.sleep(len(piece) / bytes_per_s)


def _explained(server: Server, name: str) -> Explanation:
    """Once its delivery is over, too."""
    for _ in range(50):
        status, content = server.get(f"/v1/requests/{name}/explain", 30)
        assert status == 200, content
        explanation = msgspec.json.decode(content, type=Explanation)
        if explanation.status not in ("waiting", "running", "preempted"):
            return explanation
        time.sleep(0.1)
    raise RuntimeError(f"{name} does not end")


# ---- What came of it ----


def judge(plant: Plant, rounds: int) -> bool:
    plain = serve(plant, rounds, planted=False)
    planted = serve(plant, rounds, planted=True)
    affected = {
        name: explanation
        for name, (seconds, explanation) in planted.items()
        if name in plain and seconds - plain[name][0] >= _LEAST_GROWTH * seconds
    }
    right = {name for name, explanation in affected.items() if _is_named(plant, explanation)}
    share = len(right) / len(affected) if affected else 0.0
    print(f"{plant.name:26} {len(plain):4} {len(affected):8} {len(right):6} {share:8.1%}", end="  ")
    causes = Counter(explanation.cause for explanation in affected.values())
    print(", ".join(f"{cause} {count}" for cause, count in causes.most_common()), flush=True)
    for name in sorted(affected.keys() - right):
        was, took = plain[name][0], planted[name][0]
        print(f"    {name}, {was:.2f} s to {took:.2f} s. {affected[name].verdict}")
    return share >= _BAR


def _is_named(plant: Plant, explanation: Explanation) -> bool:
    if explanation.cause not in plant.causes:
        return False
    stalled_by = [one.request_id for s in explanation.sequences for one in s.stall.by[:1]]
    return not plant.culprit or any(f"-{plant.culprit}-" in name for name in stalled_by)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", default="", help="plants with these words in their names")
    args = parser.parse_args()
    print(f"{'planted':26} {'asked':>4} {'affected':>7} {'named':>6} {'share':>8}  causes")
    judged = [judge(plant, args.rounds) for plant in PLANTS if args.only in plant.name]
    return 0 if all(judged) else 1


if __name__ == "__main__":
    sys.exit(main())
