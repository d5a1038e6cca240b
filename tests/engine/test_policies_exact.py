"""Policies choose who waits, runs and pays; they never change what anybody is told."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from dataclasses import replace

import pytest

from headway.core.request import Request, TimeLimits
from headway.model.loader import LoadedModel, load_model
from headway.model.source import ModelSource
from headway.ops.cpu.backend import CpuOps, available_isas
from headway.ops.interface import Ops
from tests.engine.harness import Bench, Outcome, ask
from tests.engine.test_exactness import prompt_of

ORDERINGS = ("fcfs", "priority", "fair", "sjf", "edf")
HOUR_NS = 3_600_000_000_000


@pytest.fixture(scope="module")
def native(tiny_source: ModelSource) -> tuple[LoadedModel, Ops]:
    """On the best instruction set only: what the policies decide is the same on all of them."""
    ops = CpuOps(isa=available_isas()[0])
    return load_model(tiny_source, ops, "bfloat16"), ops


def requests() -> list[Request]:
    """Long ones first, those that come later more urgent; three tenants, deadlines an hour off."""
    now_ns = time.monotonic_ns()
    return [
        replace(
            ask(f"r{i}", prompt_of(20 + 9 * (i * 5 % 7), i), max_tokens=56 - 4 * i, n=1 + (i == 3)),
            priority=7 - i,
            tenant="abc"[i % 3],
            limits=TimeLimits(deadline_ns=now_ns + (1 + (i * 3 % 5)) * HOUR_NS),
        )
        for i in range(7)
    ]


@pytest.fixture(scope="module")
def alone(tiny_source: ModelSource, native: tuple[LoadedModel, Ops]) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for request in requests():
        found |= Bench(tiny_source, *native).run({0: [request]})
    return found


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_no_policy_changes_an_output(
    tiny_source: ModelSource,
    native: tuple[LoadedModel, Ops],
    alone: dict[str, Outcome],
    ordering: str,
) -> None:
    """P27 to P33 under every combination; the pool holds about three of the eight sequences."""
    combinations = itertools.product(
        ("on-demand", "reserve", "predict"), ("newest", "least-lost"), (0.0, 2.0), (0, 10_000)
    )
    num_preemptions: Counter[str] = Counter()
    for kv_policy, victim, target_itl_ms, skip_blocked_ms in combinations:
        bench = Bench(
            tiny_source,
            *native,
            scheduling_policy=ordering,
            kv_policy=kv_policy,
            preemption_victim=victim,
            target_itl_ms=target_itl_ms,
            skip_blocked_ms=skip_blocked_ms,
            num_gpu_blocks_override=18,
            max_num_batched_tokens=48,
            max_num_seqs=5,
        )
        crowd = requests()
        found = bench.run({0: crowd[:3], 4: crowd[3:5], 11: crowd[5:]})
        assert {name: o.visible() for name, o in found.items()} == {
            name: o.visible() for name, o in alone.items()
        }
        assert not bench.rejected
        assert bench.engine.scheduler.pool.num_free == 18
        num_preemptions[kv_policy] += bench.num_preemptions
    assert num_preemptions["on-demand"] > 8
    assert not num_preemptions["reserve"]
