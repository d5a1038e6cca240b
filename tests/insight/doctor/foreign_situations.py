"""Other servers' pages with the wall that they show.

No threshold was chosen by those of `HELD_OUT`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headway.insight.doctor.findings import Wall
from tests.insight.doctor.foreign import Seen, llama_cpp, sglang, tgi, vllm, vllm_old


@dataclass(frozen=True)
class Shown:
    name: str
    wall: Wall
    write: Callable[[Seen, int, float], str]
    seen: Seen
    also: frozenset[str] = field(default_factory=frozenset)
    is_clean: bool = False

    def __str__(self) -> str:
        return self.name


def steady(value: float, count: int = 6) -> list[float]:
    return [value] * count


BUSY = {"prompt": 900.0, "output": 1200.0, "steps": 48.0, "ended": 6.0}
PROMPTS = {
    "prompt": 16_000.0,
    "output": 60.0,
    "steps": 9.0,
    "ended": 4.0,
    "gap": 0.11,
    "prefill": 2.2,
    "decode": 1.6,
    "prompt_length": 4000.0,
    "output_length": 15.0,
}
THRASH = frozenset({"preemption-thrash"})

TUNED = (
    Shown(
        "vllm: memory, by the book",
        Wall.KV_MEMORY,
        vllm,
        Seen(
            [81, 83, 80, 82, 83, 79],
            steady(41),
            [0.99, 0.998, 0.99, 1.0, 0.99, 0.98],
            **BUSY,
            preempted=0.8,
        ),
        THRASH,
    ),
    Shown(
        "vllm before the renaming: memory",
        Wall.KV_MEMORY,
        vllm_old,
        Seen([50, 52, 49, 51, 50, 52], steady(20), steady(0.96), **BUSY),
    ),
    Shown(
        "vllm: 256 slots, cap not told",
        Wall.SLOTS,
        vllm,
        Seen(steady(256), [300, 310, 305, 299, 301, 310], steady(0.55), **BUSY),
    ),
    Shown(
        "vllm before the renaming: 16 slots",
        Wall.SLOTS,
        vllm_old,
        Seen([16, 16, 15, 16, 16, 16], steady(9), steady(0.2), **BUSY),
    ),
    Shown(
        "vllm: prompts saturate, memory at 32 % (P60)",
        Wall.PREFILL,
        vllm,
        Seen([14, 9, 12, 16, 11, 13], [40, 52, 61, 70, 83, 95], steady(0.32), **PROMPTS),
        frozenset({"queueing-collapse"}),
    ),
    Shown(
        "vllm: adapters (P18)",
        Wall.ADAPTERS,
        vllm,
        Seen(
            steady(1),
            steady(3),
            steady(0.03),
            **BUSY,
            deferred=steady(3),
            max_loras=1,
            adapters=[("a", "b,c,d")] * 6,
        ),
    ),
    Shown(
        "vllm: decodes, nobody waits",
        Wall.DECODE,
        vllm,
        Seen([30, 32, 31, 29, 30, 30], steady(0), steady(0.4), **BUSY),
        is_clean=True,
    ),
    Shown("vllm: idle", Wall.CLIENT, vllm, Seen(steady(0), steady(0), steady(0.0)), is_clean=True),
    Shown(
        "vllm: nobody runs, 6 wait, memory empty",
        Wall.STUCK,
        vllm,
        Seen(steady(0), steady(6), steady(0.0)),
    ),
    Shown(
        "vllm: runs, and no step is made",
        Wall.STUCK,
        vllm,
        Seen(steady(4), steady(2), steady(0.1), seconds=65),
    ),
    Shown(
        "sglang: memory",
        Wall.KV_MEMORY,
        sglang,
        Seen([60, 62, 61, 63, 62, 60], steady(30), steady(0.97), **BUSY, preempted=0.3),
        THRASH,
    ),
    Shown("sglang: slots", Wall.SLOTS, sglang, Seen(steady(48), steady(20), steady(0.4), **BUSY)),
    Shown(
        "sglang: prompts",
        Wall.PREFILL,
        sglang,
        Seen([5, 9, 7, 4, 8, 6], steady(12), steady(0.3), **PROMPTS),
    ),
    Shown(
        "tgi: tokens set aside",
        Wall.KV_MEMORY,
        tgi,
        Seen(
            [21, 24, 19, 22, 25, 20],
            steady(15),
            **BUSY,
            declared=2000,
            reserved=[15_800, 15_950, 15_700, 15_990, 15_600, 15_900],
            decode_busy=0.8,
            prefill_busy=0.15,
        ),
        frozenset({"max-tokens-above-use"}),
    ),
    Shown(
        "tgi: slots",
        Wall.SLOTS,
        tgi,
        Seen(
            steady(4),
            steady(11),
            **BUSY,
            reserved=[2400, 3100, 2700, 2900, 2500, 3000],
            decode_busy=0.9,
            prefill_busy=0.05,
        ),
    ),
    Shown(
        "llama.cpp: 4 slots",
        Wall.SLOTS,
        llama_cpp,
        Seen(
            steady(4), steady(7), prompt=90, output=60, steps=18, decode_busy=3.2, prefill_busy=0.6
        ),
    ),
    Shown("llama.cpp: idle", Wall.CLIENT, llama_cpp, Seen(steady(0), steady(0)), is_clean=True),
)
HELD_OUT = (
    Shown(
        "vllm: memory a little below the top",
        Wall.KV_MEMORY,
        vllm,
        Seen([40, 43, 41, 39, 42, 44], steady(12), [0.93, 0.95, 0.94, 0.92, 0.95, 0.94], **BUSY),
    ),
    Shown(
        "vllm: preempts without a queue",
        Wall.KV_MEMORY,
        vllm,
        Seen([30, 28, 31, 29, 30, 28], [0, 1, 0, 0, 1, 0], steady(0.97), **BUSY, preempted=1.5),
        THRASH,
    ),
    Shown(
        "vllm: one slot held for ever (P17)",
        Wall.SLOTS,
        vllm,
        Seen(
            steady(1),
            steady(14),
            steady(0.1),
            output=5.4,
            steps=5.4,
            gap=0.185,
            seconds=60,
            queue=3.0,
            decode=8.0,
        ),
        frozenset({"slots-held"}),
    ),
    Shown(
        "vllm: stops no more",
        Wall.DECODE,
        vllm,
        Seen(steady(20), steady(0), steady(0.3), **BUSY, length_share=0.7),
        frozenset({"runaway-generations"}),
    ),
    Shown(
        "vllm: stalls",
        Wall.DECODE,
        vllm,
        Seen(steady(24), steady(0), steady(0.3), **BUSY, stall=0.9, stalls=0.03, prefill=1.2),
        frozenset({"decode-stalls"}),
    ),
    Shown(
        "vllm: moderate",
        Wall.NOTHING,
        vllm,
        Seen(
            [2, 3, 1, 2, 4, 2], steady(0), steady(0.02), prompt=300, output=120, steps=35, ended=1.0
        ),
        is_clean=True,
    ),
    Shown(
        "vllm: one client with long prompts",
        Wall.PREFILL,
        vllm,
        Seen(
            steady(1),
            steady(0),
            steady(0.05),
            **{**PROMPTS, "decode": 0.9, "gap": 0.105, "steps": 9.4},
        ),
        is_clean=True,
    ),
    Shown(
        "vllm: 1024 slots, told",
        Wall.KV_MEMORY,
        vllm,
        Seen([83, 80, 82, 81, 83, 80], steady(100), steady(0.985), **BUSY),
    ),
    Shown(
        "sglang: decodes",
        Wall.DECODE,
        sglang,
        Seen([12, 13, 12, 11, 12, 12], steady(0), steady(0.1), **BUSY),
        is_clean=True,
    ),
    Shown(
        "sglang: grammars",
        Wall.GRAMMARS,
        sglang,
        Seen([6, 5, 6, 7, 6, 5], steady(4), steady(0.1), **BUSY, deferred=steady(4)),
    ),
    Shown(
        "tgi: prompts in an open load",
        Wall.PREFILL,
        tgi,
        Seen(
            [6, 9, 3, 8, 5, 7],
            [10, 14, 21, 26, 33, 41],
            **PROMPTS,
            reserved=[9000, 13000, 4000, 12000, 7000, 10000],
            prefill_busy=0.85,
            decode_busy=0.1,
        ),
        frozenset({"queueing-collapse"}),
    ),
    Shown(
        "tgi: decodes",
        Wall.DECODE,
        tgi,
        Seen(
            steady(6), steady(0), **BUSY, prefill_busy=0.05, decode_busy=0.92, reserved=steady(3000)
        ),
        is_clean=True,
    ),
    Shown(
        "llama.cpp: one stream",
        Wall.DECODE,
        llama_cpp,
        Seen(
            steady(1), steady(0), prompt=5, output=30, steps=30, decode_busy=0.97, prefill_busy=0.03
        ),
        is_clean=True,
    ),
)
