"""Workloads as the simulator serves them: nothing is lost, and what is shared is found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import PerToken

from headway.core.config import SchedulerConfig
from headway.simulator.result import Result
from headway.simulator.simulate import simulate
from headway.simulator.workload import lengths
from headway.simulator.workload.arrivals import ClosedLoop, Renewal
from headway.simulator.workload.clients import Choice, Declared, Leaving, Prefixes, Turns
from headway.simulator.workload.describe import describe
from headway.simulator.workload.files import open_requests, write_requests
from headway.simulator.workload.synthetic import Streams, Synthetic
from headway.simulator.workload.waits import FixedWait

PLAIN = Synthetic(
    arrivals=Renewal(20),
    prompt_tokens=lengths.uniform(10, 100),
    output_tokens=lengths.uniform(5, 30),
    num_requests=120,
)
SESSIONS = replace(
    PLAIN,
    turns=Turns(lengths.uniform(1, 4), FixedWait(0.5)),
    prefixes=Prefixes(3, lengths.fixed(48), skew=1),
)


def serve(workload, num_blocks: int = 2000, **knobs) -> Result:
    model = PerToken(step=1_000_000, token=20_000, attended=10)
    return simulate(SchedulerConfig(**knobs), workload, model, num_blocks=num_blocks)


@pytest.mark.parametrize("workload", [PLAIN, SESSIONS, Streams((PLAIN, SESSIONS))])
def test_every_request_gets_its_output(workload) -> None:
    served = serve(workload).sequences
    described = describe(workload)
    assert len(served["arrival_ns"]) == described.num_requests
    mean = served["num_output_tokens"].mean()
    assert mean == pytest.approx(described.output_tokens.mean)


def test_a_cache_that_forgets_nothing_finds_what_is_shared() -> None:
    """All but what is short of a block, or computed at the same time."""
    found = serve(SESSIONS).summary().cache_hit_share
    shared = describe(SESSIONS).shared_share
    assert 0.8 * shared < found < shared
    assert serve(SESSIONS, 32_000, block_size=1).summary().cache_hit_share == pytest.approx(
        shared, rel=0.05
    )


def test_declared_max_tokens_cut_outputs() -> None:
    served = serve(replace(PLAIN, max_tokens=Declared(constant=7))).sequences
    assert served["num_output_tokens"].max() == 7


def test_a_closed_loop_keeps_its_clients_busy() -> None:
    result = serve(replace(PLAIN, arrivals=ClosedLoop(4)))
    assert len(result.sequences["arrival_ns"]) == 120
    assert result.summary().peak_batch == 4
    assert result.summary().mean_batch > 3.8


def test_clients_leave() -> None:
    leaving = replace(PLAIN, arrivals=ClosedLoop(60), leaving=Leaving(0.5, FixedWait(0.01)))
    summary = serve(leaving).summary()
    assert 0 < summary.num_aborted <= 80
    assert summary.num_requests == 120


def test_tenants_arrive_as_drawn() -> None:
    served = serve(replace(PLAIN, tenants=Choice.of({"a": 1, "b": 1}))).sequences
    assert set(served["tenant"]) == {"a", "b"}


@pytest.mark.parametrize("workload", [PLAIN, SESSIONS])
def test_a_file_is_served_as_what_it_was_written_from(tmp_path, workload) -> None:
    write_requests(workload, tmp_path / "a.jsonl.gz")
    from_file = serve(open_requests(tmp_path / "a.jsonl.gz"), num_blocks=60)
    assert from_file.summary() == serve(workload, num_blocks=60).summary()
