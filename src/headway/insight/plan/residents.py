"""How many sequences run at once when more wait: what each policy lets into a pool of blocks.

A resident stays for as many steps as it has tokens of output (and chunks of its prompt), and holds
a little more in each. Over the steps of all requests together, that is what one holds on average;
so a long output counts as often as it is there. The head of the queue waits until there are blocks
for its prompt: what is free meanwhile, half of what it needs on average, is not held by anybody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headway.core.config import KV_RISK
from headway.core.policies.peak import expected_victims
from headway.insight.plan.demand import F64, I64, Demand
from headway.simulator.workload.lengths import LengthLaw

KV_POLICIES = ("on-demand", "reserve", "predict")
_P95 = 1.645  # standard deviations of a normal variable
_HORIZONS = 48
_AGES = 512
_HALVINGS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Residents:
    """Sequences that run at once, were there always somebody waiting.

    `mean` over steps, `p05` and `p95` of them; `wall`: what ends it, "blocks", "budget" or "slots".
    `blocks_each`: held by one, on average; `steps_each`: how many steps one stays.
    """

    kv_policy: str
    mean: float
    p05: float
    p95: float
    wall: str
    blocks_each: float
    steps_each: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the scheduler is told; `max_num_seqs` None: no cap."""

    num_blocks: int
    block_size: int
    max_num_batched_tokens: int
    max_model_len: int
    max_num_seqs: int | None = None
    kv_risk: float = KV_RISK


def expected_residents(demand: Demand, limits: Limits, kv_policy: str) -> Residents:
    """Under one of KV_POLICIES. Every request must fit the pool by itself."""
    held = _Held.of(demand, limits, kv_policy)
    budget = limits.max_num_batched_tokens
    by_blocks = held.fill(limits.num_blocks)
    if kv_policy == "predict":
        by_blocks = min(by_blocks, _with_margin(demand, limits, held.free))
    walls = {
        "blocks": max(1.0, by_blocks),
        "budget": budget * held.steps / demand.mean(demand.sizes - 1),
        "slots": limits.max_num_seqs or math.inf,
    }
    wall = min(walls, key=walls.__getitem__)
    mean = walls[wall]
    spread = held.deviation * math.sqrt(mean) / held.mean if wall == "blocks" else 0.0
    return Residents(
        kv_policy=kv_policy,
        mean=mean,
        p05=max(1.0, mean - _P95 * spread),
        p95=mean + _P95 * spread,
        wall=wall,
        blocks_each=held.mean,
        steps_each=held.steps,
    )


@dataclass(frozen=True, slots=True)
class _Held:
    """Blocks of one resident over all steps of all: mean and standard deviation.

    `free`: what lies free while the next waits; `steps`: that one stays, on average.
    """

    mean: float
    deviation: float
    free: float
    steps: float

    @staticmethod
    def of(demand: Demand, limits: Limits, kv_policy: str) -> _Held:
        p, o, size = demand.prompt_sizes, demand.output_sizes, limits.block_size
        chunks = -(-p // limits.max_num_batched_tokens)
        steps = o + chunks - 1
        if kv_policy == "reserve":
            need = -(-demand.reserved(limits.max_model_len) // size)
            total, squares = need * steps, need * need * steps
        else:
            need = -(-p // size)
            filling = need * (chunks - 1) / 2
            total = _sum_of_blocks(p + o - 1, size) - _sum_of_blocks(p - 1, size) + filling
            squares = _sum_of_squares(p + o - 1, size) - _sum_of_squares(p - 1, size)
            squares = squares + filling * need / 2
        mean_steps = demand.mean(steps)
        mean = demand.mean(total) / mean_steps
        variance = max(0.0, demand.mean(squares) / mean_steps - mean * mean)
        free = demand.mean(need * need) / demand.mean(need) / 2
        return _Held(mean, math.sqrt(variance), free, mean_steps)

    def fill(self, num_blocks: int) -> float:
        return (num_blocks - min(self.free, num_blocks / 2)) / self.mean


def _with_margin(demand: Demand, limits: Limits, free: float) -> float:
    """Residents of whom the expected peak puts out no more than the risk allows.

    At each point to come: those of today who are still there, in the mix that is always there.
    Their expected number falls, and what is not known of it grows.
    """
    ages, weights = _ages(demand.outputs)
    beyond = _beyond(demand.outputs, ages)
    mean_prompt = demand.mean(demand.prompt_sizes) + limits.block_size / 2
    variance = demand.mean(demand.prompt_sizes**2) - demand.mean(demand.prompt_sizes) ** 2
    room = (limits.num_blocks - min(free, limits.num_blocks / 2)) * limits.block_size
    longest = float(demand.outputs.values[-1])
    fewest = math.inf
    for horizon in np.geomspace(1, max(2.0, longest / 2), _HORIZONS):
        stays = _beyond(demand.outputs, ages + horizon) / np.maximum(beyond, 1e-300)
        size = mean_prompt + ages + horizon
        mean = float(weights @ (stays * size))
        squares = float(weights @ (stays * (1 - stays) * (size * size + variance)))
        if mean > 0:
            deviation = math.sqrt(max(0.0, squares))
            most = _most(room, mean, deviation, round(mean_prompt + horizon), limits.kv_risk)
            fewest = min(fewest, most)
    return fewest


def _most(room: float, mean: float, deviation: float, newest: int, risk: float) -> float:
    """How many, each of that mean and deviation, put out `risk` as large as the newest."""
    least, most = 0.0, room / mean
    for _ in range(_HALVINGS):
        number = (least + most) / 2
        left, spread = round(room - mean * number), round(deviation * math.sqrt(number))
        if expected_victims(left, spread, newest) > risk * 1e6:
            most = number
        else:
            least = number
    return least


def _ages(outputs: LengthLaw) -> tuple[F64, F64]:
    """How many tokens residents have made, and how large a share of them has."""
    longest = int(outputs.values[-1])
    edges = np.unique(np.rint(np.geomspace(1, longest + 1, _AGES))).astype(np.float64) - 1
    ages = (edges[:-1] + edges[1:]) / 2 if len(edges) > 1 else np.zeros(1)
    widths = np.diff(edges) if len(edges) > 1 else np.ones(1)
    weights = _beyond(outputs, ages) * widths
    return ages, weights / weights.sum()


def _beyond(outputs: LengthLaw, ages: F64) -> F64:
    """The share of outputs that are longer, [ages]."""
    index = np.searchsorted(outputs.values, ages, side="right")
    return np.asarray(1.0 - np.concatenate([[0.0], outputs.cumulative])[index])


def _sum_of_blocks(num_tokens: I64, block_size: int) -> I64:
    """Of blocks for 1, 2, ... up to so many tokens."""
    whole, rest = np.divmod(num_tokens, block_size)
    return np.asarray(block_size * whole * (whole + 1) // 2 + rest * (whole + 1))


def _sum_of_squares(num_tokens: I64, block_size: int) -> F64:
    whole, rest = np.divmod(num_tokens.astype(np.float64), block_size)
    thirds = block_size * whole * (whole + 1) * (2 * whole + 1) / 6
    return np.asarray(thirds + rest * (whole + 1) ** 2)
