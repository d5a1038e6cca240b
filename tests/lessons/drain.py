"""Article 1 on the product's scheduler and simulator: 256 requests wait, the queue is drained."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headway.core.blocks import BlockPool
from headway.core.config import SchedulerConfig
from headway.core.policies import build_policies
from headway.core.policies.victim import Newest
from headway.core.sequence import Sequence
from headway.drive.record import StepRecord
from headway.simulator.result import Result, Summary
from headway.simulator.simulate import simulate
from tests.lessons.clocks import CLOCK_1, QWEN
from tests.lessons.published import HERE
from tests.simulator.worlds import Listed, Log, asks

_WITNESS = json.loads((HERE / "workload001.json").read_text())
PROMPTS: tuple[int, ...] = tuple(_WITNESS["prompt"])
OUTPUTS: tuple[int, ...] = tuple(_WITNESS["output"])
UNIFORM = (256,) * 256
BUDGET = 8192


class StartOver(Newest):
    """The newest, which forgets what it has generated and makes it again: the article's rule.

    Headway and vLLM keep those tokens and compute prompt and output together.
    """

    def choose(self, running: Mapping[int, Sequence], pool: BlockPool) -> Sequence:
        victim = super().choose(running, pool)
        del victim.token_ids[victim.num_prompt_tokens :]
        return victim


@dataclass(frozen=True)
class Drained:
    result: Result
    summary: Summary
    records: list[StepRecord]
    num_tokens: int  # wanted, each counted once

    @property
    def decisions(self) -> list[tuple[object, ...]]:
        return [record.decision for record in self.records]

    @property
    def seconds(self) -> float:
        return float(self.result.steps["end_ns"][-1]) / 1e9

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds


def num_blocks_in(gib: float) -> int:
    return QWEN.blocks_in(int(gib * 2**30))


@functools.cache
def drain(
    *,
    prompts: tuple[int, ...] = PROMPTS,
    outputs: tuple[int, ...] = OUTPUTS,
    slots: int = 256,
    gib: float = 16,
    kv_policy: str = "on-demand",
    unit: str = "step",
    declared: int | None = 4,
    starts_over: bool = True,
    logged: bool = False,
) -> Drained:
    """`declared`: max_tokens over what a request makes; None: not declared."""
    config = SchedulerConfig(
        max_num_seqs=slots,
        max_num_batched_tokens=BUDGET,
        max_model_len=100_000,
        enable_prefix_caching=False,
        reserve_full_isl=False,
        kv_policy=kv_policy,
        unit=unit,
    )
    policies = build_policies(config)
    if starts_over:
        policies = replace(policies, victim=StartOver())
    log = Log()
    result = simulate(
        config,
        Listed(
            asks(number, prompt, output, max_tokens=declared and output * declared)
            for number, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
        ),
        CLOCK_1,
        num_blocks=num_blocks_in(gib),
        policies=policies,
        step_listeners=(log,) if logged else (),
    )
    assert result.sequences["num_prompt_tokens"].tolist() == list(prompts)
    return Drained(result, result.summary(), log.records, sum(outputs))


SETTINGS: dict[str, dict[str, Any]] = {
    **{f"seqs_{slots}": {"slots": slots} for slots in (1, 8, 32, 64, 128, 256, 512)},
    **{f"pool_{gib}": {"gib": gib} for gib in (2, 8, 32, 64)},
    "pool_2_seqs_512": {"gib": 2, "slots": 512},
    **{f"reserve_{m}x": {"kv_policy": "reserve", "declared": m} for m in (1, 2, 4, 8)},
    "static": {"kv_policy": "reserve", "unit": "request"},
    **{
        f"uniform_{short}_{unit}": {
            "outputs": UNIFORM,
            "slots": 64,
            "kv_policy": kv_policy,
            "unit": {"request": "request", "pass": "step"}[unit],
        }
        for short, kv_policy in (("reserve", "reserve"), ("demand", "on-demand"))
        for unit in ("request", "pass")
    },
}


def run(name: str, **others: Any) -> Drained:
    """A run of the article by its name there, or one that differs from it; with its log."""
    return drain(**{**SETTINGS[name], **others}, logged=True)
