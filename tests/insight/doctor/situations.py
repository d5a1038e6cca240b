"""Simulated servers with a planted cause, and what the doctor must say of them.

No threshold was chosen by those of `HELD_OUT`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headway.insight.doctor.findings import Wall
from tests.insight.doctor.simulated import SimulatedServer


@dataclass(frozen=True)
class Situation:
    """`also`: kinds of findings that must be there; `is_clean`: there is nothing to warn of."""

    name: str
    wall: Wall
    workload: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    also: frozenset[str] = frozenset()
    is_clean: bool = False

    def __str__(self) -> str:
        return self.name


def closed(clients: int, prompt: Any, output: Any, **more: Any) -> dict[str, Any]:
    return {
        "arrivals": f"closed:{clients}",
        "prompt_tokens": prompt,
        "output_tokens": output,
        "duration_s": 14,
        **more,
    }


def poisson(rate: float, prompt: Any, output: Any, **more: Any) -> dict[str, Any]:
    return {**closed(1, prompt, output, **more), "arrivals": f"poisson:{rate}"}


def clean(name: str, wall: Wall, workload: dict[str, Any], **settings: Any) -> Situation:
    return Situation(name, wall, workload, settings, is_clean=True)


CHAT, LONG = "lognormal:200:0.8:16-1000", "lognormal:3000:0.5:500-8000"
SHORT_OUT, LONG_OUT = "lognormal:60:0.8:4-400", "lognormal:400:0.6:50-1500"

TUNED = (
    Situation("4 slots, 12 clients", Wall.SLOTS, closed(12, CHAT, 100), {"max_num_seqs": 4}),
    Situation("16 slots, 40 clients", Wall.SLOTS, closed(40, CHAT, LONG_OUT), {"max_num_seqs": 16}),
    Situation(
        "open load on 2 slots",
        Wall.SLOTS,
        poisson(5, CHAT, 120),
        {"max_num_seqs": 2},
        frozenset({"queueing-collapse"}),
    ),
    Situation(
        "a pool of 4,000 tokens",
        Wall.KV_MEMORY,
        closed(32, CHAT, LONG_OUT),
        {"pool": 4_000},
        frozenset({"preemption-thrash"}),
    ),
    Situation(
        "a pool that reserves",
        Wall.KV_MEMORY,
        closed(24, CHAT, 100, max_tokens="8x"),
        {"pool": 6_000, "kv_policy": "reserve"},
        frozenset({"max-tokens-above-use"}),
    ),
    Situation(
        "a pool with predict",
        Wall.KV_MEMORY,
        closed(32, CHAT, LONG_OUT),
        {"pool": 6_000, "kv_policy": "predict"},
    ),
    Situation(
        "prompts of 6,000, budget 1,024",
        Wall.PREFILL,
        closed(12, 6000, 8),
        {"max_num_batched_tokens": 1024},
    ),
    Situation(
        "prompts in an open load",
        Wall.PREFILL,
        poisson(12, LONG, 10),
        also=frozenset({"queueing-collapse"}),
    ),
    clean("24 clients that decode", Wall.DECODE, closed(24, CHAT, LONG_OUT)),
    clean("one long stream", Wall.DECODE, closed(1, 100, 2000)),
    clean("one client, long prompts", Wall.PREFILL, closed(1, 8000, 5)),
    clean("nobody", Wall.CLIENT, poisson(0.001, CHAT, 50)),
    clean("a request now and then", Wall.CLIENT, poisson(0.5, CHAT, 30)),
    clean("clients that think", Wall.CLIENT, {**closed(3, CHAT, 40), "arrivals": "closed:3:2"}),
    clean("a moderate load", Wall.NOTHING, poisson(5, CHAT, SHORT_OUT)),
)
HELD_OUT = (
    Situation("one slot", Wall.SLOTS, closed(5, 300, 60), {"max_num_seqs": 1}),
    Situation(
        "32 slots under 100 clients",
        Wall.SLOTS,
        closed(100, 64, "uniform:50-300"),
        {"max_num_seqs": 32},
    ),
    Situation(
        "a pool of 12,000 under 64 clients",
        Wall.KV_MEMORY,
        closed(64, 300, LONG_OUT),
        {"pool": 12_000},
        frozenset({"preemption-thrash"}),
    ),
    Situation(
        "long contexts fill the pool",
        Wall.KV_MEMORY,
        closed(20, 4000, 300),
        {"pool": 30_000, "max_num_batched_tokens": 8192},
    ),
    Situation(
        "prompts of 3,000 from 30 clients",
        Wall.PREFILL,
        closed(30, 3000, 4),
        {"max_num_batched_tokens": 512},
    ),
    Situation(
        "a tenant's cap", Wall.TENANT, closed(12, CHAT, 100, tenants="a=1"), {"max_tenant_seqs": 2}
    ),
    clean("48 clients, short prompts", Wall.DECODE, closed(48, 32, 300)),
    clean(
        "idle after a burst",
        Wall.CLIENT,
        {"arrivals": "at-once", "requests": 6, "prompt_tokens": 50, "output_tokens": 20},
    ),
    clean("two slow clients", Wall.CLIENT, {**closed(2, 100, 30), "arrivals": "closed:2:4"}),
    clean("half a load", Wall.NOTHING, poisson(8, 150, "uniform:20-60")),
)


def served(situation: Situation) -> SimulatedServer:
    return SimulatedServer(situation.workload, **situation.settings)
