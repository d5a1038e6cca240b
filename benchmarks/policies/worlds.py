"""The worlds that policies are compared in: nine kinds of traffic, each with its machine and pool.

    python -m benchmarks.policies.worlds

prints what each world is like under the defaults. A machine is a roofline, so a run is exact; it
takes a second or two. Another seed is another draw of the same traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.core.config import SchedulerConfig
from headway.simulator.result import Result
from headway.simulator.simulate import simulate
from headway.simulator.step_time.hardware import hardware_named
from headway.simulator.step_time.models import shape_named
from headway.simulator.step_time.roofline import RooflineModel, roofline
from headway.simulator.workload.spec import from_spec

SEEDS = (1, 2, 3, 4, 5)
BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Traffic that fills its machine: `rate` is about 1.2 times what it serves.

    `spec` is a workload's (docs/guides/workloads.md) without rate and seed; `num_blocks` the pool.
    """

    name: str
    spec: Mapping[str, Any]
    rate: float
    num_blocks: int
    max_num_batched_tokens: int = 2048
    max_model_len: int = 32_768
    variation: float = 1.0  # of the gaps between arrivals; 1 is a Poisson process

    def config(self, **changes: Any) -> SchedulerConfig:
        sizes = {
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_model_len": self.max_model_len,
            "block_size": BLOCK_SIZE,
        }
        return SchedulerConfig(**{**sizes, **changes})

    def workload_spec(self, seed: int, load: float = 1.2) -> dict[str, Any]:
        """`load`: the rate as a share of about what the machine can serve."""
        rate = self.rate * load / 1.2
        spec = dict(self.spec)
        if "streams" in spec:
            spec["streams"] = [
                {**part, "rate": rate * part["rate"]} if "rate" in part else part
                for part in spec["streams"]
            ]
        else:
            spec["arrivals"] = f"gamma:{rate:.6g}:{self.variation:g}"
        return {**spec, "seed": seed}

    def run(
        self, seed: int, *, load: float = 1.2, num_blocks: int | None = None, **config: Any
    ) -> Result:
        """One run with the defaults but `config`."""
        return simulate(
            self.config(**config),
            from_spec(self.workload_spec(seed, load)),
            machine(),
            num_blocks=num_blocks or self.num_blocks,
        )


def machine() -> RooflineModel:
    """Qwen3-8B on an H100: 147,456 bytes of keys and values a token."""
    return roofline(shape_named("Qwen3-8B"), hardware_named("h100"))


def blocks_of(gib: float) -> int:
    """Blocks of a pool of that size."""
    return int(gib * 2**30) // (BLOCK_SIZE * 147_456)


WORLDS = {
    world.name: world
    for world in (
        World(
            name="wide-chat",
            spec={
                "requests": 1000,
                "prompt_tokens": "lognormal:700:1.0:16-8192",
                "output_tokens": "lognormal:350:1.0:4-4096",
                "max_tokens": "4x",
            },
            rate=20,
            num_blocks=blocks_of(16),
        ),
        World(
            name="fixed-length",
            spec={"requests": 1000, "prompt_tokens": 512, "output_tokens": 256, "max_tokens": 256},
            rate=30,
            num_blocks=blocks_of(8),
        ),
        World(
            name="long-shared-prompts",
            spec={
                "requests": 1000,
                "prefixes": 8,
                "prefix_tokens": "fixed:3000",
                "prefix_skew": 1.0,
                "prompt_tokens": "lognormal:200:0.8:8-2048",
                "output_tokens": "lognormal:250:0.8:8-2048",
                "max_tokens": "4x",
            },
            rate=30,
            num_blocks=blocks_of(12),
        ),
        World(
            name="multi-turn",
            spec={
                "requests": 2500,
                "turns": "uniform:2-8",
                "think_s": "exponential:5",
                "prompt_tokens": "lognormal:400:0.8:16-4096",
                "later_prompt_tokens": "lognormal:80:0.8:4-1024",
                "output_tokens": "lognormal:250:0.8:8-2048",
                "max_tokens": "4x",
            },
            rate=20,
            num_blocks=blocks_of(8),
        ),
        World(
            name="long-reasoning",
            spec={
                "requests": 400,
                "prompt_tokens": "lognormal:300:0.7:16-4096",
                "output_tokens": "lognormal:3000:0.9:64-16384",
                "max_tokens": 16384,
            },
            rate=2,
            num_blocks=blocks_of(16),
        ),
        World(
            name="bursty",
            spec={
                "requests": 1000,
                "prompt_tokens": "lognormal:700:0.8:16-8192",
                "output_tokens": "lognormal:250:0.8:4-2048",
                "max_tokens": "4x",
            },
            rate=22,
            variation=4.0,
            num_blocks=blocks_of(8),
        ),
        World(
            name="one-huge-prompt",
            spec={
                "streams": [
                    {
                        "rate": 1.0,
                        "requests": 1000,
                        "prompt_tokens": "lognormal:200:0.7:16-2048",
                        "output_tokens": "lognormal:200:0.7:8-1024",
                    },
                    {"rate": 0.02, "requests": 20, "prompt_tokens": 24_000, "output_tokens": 200},
                ],
                "max_tokens": "2x",
            },
            rate=30,
            num_blocks=blocks_of(12),
        ),
        World(
            name="flooding-tenant",
            spec={
                "streams": [
                    {"rate": 0.1, "requests": 100, "tenants": "quiet=1"},
                    {"rate": 0.9, "requests": 900, "tenants": "flood=1"},
                ],
                "prompt_tokens": "lognormal:600:0.8:16-8192",
                "output_tokens": "lognormal:250:0.8:8-2048",
                "max_tokens": "4x",
            },
            rate=25,
            num_blocks=blocks_of(8),
        ),
        World(
            name="oversubscribed",
            spec={
                "requests": 800,
                "prompt_tokens": "lognormal:700:1.0:16-4096",
                "output_tokens": "lognormal:500:1.0:4-4096",
                "max_tokens": "4x",
            },
            rate=6,
            num_blocks=blocks_of(3),
        ),
    )
}


def main() -> None:
    columns = ("req/s", "tok/s", "batch", "peak", "preempted", "redone", "TTFT p50", "p99, s")
    print(f"{'world':20}" + "".join(f"{name:>10}" for name in columns))
    for world in WORLDS.values():
        figures = world.run(SEEDS[0]).summary()
        cells = (
            f"{figures.requests_per_second:.1f}",
            f"{figures.output_tokens_per_second:,.0f}",
            f"{figures.mean_batch:.1f}",
            f"{figures.peak_batch}",
            f"{figures.num_preemptions}",
            f"{figures.num_recomputed_tokens:,}",
            f"{figures.ttft_s.p50:.2f}",
            f"{figures.ttft_s.p99:.2f}",
        )
        print(f"{world.name:20}" + "".join(f"{cell:>10}" for cell in cells))


if __name__ == "__main__":
    main()
