"""Descriptions: the figures of a workload are those of its requests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headway.simulator.workload import lengths
from headway.simulator.workload.arrivals import AtOnce, Renewal
from headway.simulator.workload.clients import Choice, Prefixes, Turns
from headway.simulator.workload.describe import describe
from headway.simulator.workload.sessions import Conversations
from headway.simulator.workload.synthetic import Synthetic
from headway.simulator.workload.traces.open import open_trace

PLAIN = Synthetic(
    arrivals=Renewal(4, 2.0),
    prompt_tokens=lengths.lognormal(1000, 0.8, 32, 8192),
    output_tokens=lengths.lognormal(250, 0.8, 8, 2048),
    num_requests=20_000,
)


def test_figures_of_a_synthetic_workload() -> None:
    found = describe(PLAIN)
    assert (found.num_requests, found.num_sessions, found.is_whole) == (20_000, 20_000, True)
    assert found.rate == pytest.approx(4, rel=0.05)
    assert found.burstiness == pytest.approx(2, rel=0.05)
    assert found.shared_share == 0
    assert found.prompt_law is not None
    assert found.prompt_law.mean == PLAIN.prompt_tokens.mean()
    assert found.prompt_tokens.mean == pytest.approx(found.prompt_law.mean, rel=0.02)
    assert found.prompt_tokens.p90 == pytest.approx(found.prompt_law.p90, rel=0.03)
    assert found.output_tokens.maximum == 2048
    assert json.loads(json.dumps(found.to_dict()))["num_requests"] == 20_000


def test_a_part_of_it_is_said_to_be_one() -> None:
    found = describe(PLAIN, max_requests=100)
    assert (found.num_requests, found.is_whole) == (100, False)


def test_without_gaps_there_is_no_rate() -> None:
    found = describe(replace(PLAIN, arrivals=AtOnce(), num_requests=9))
    assert (found.rate, found.burstiness, found.span_s) == (None, None, 0)


def test_what_a_perfect_cache_would_find() -> None:
    plain = replace(
        PLAIN,
        prompt_tokens=lengths.fixed(100),
        output_tokens=lengths.fixed(10),
        num_requests=50,
        prefixes=Prefixes(1, lengths.fixed(300)),
    )
    assert describe(plain).shared_share == pytest.approx(49 * 300 / (50 * 400))
    turns = replace(plain, prefixes=None, turns=Turns(lengths.fixed(2)))
    found = describe(turns)
    assert found.num_sessions == 25
    assert found.shared_share == pytest.approx(110 / (100 + 210))


def test_what_follows_a_difference_is_not_shared(tmp_path: Path) -> None:
    rows = [
        {"texts": [["a", 10], ["b", 5]], "prompt_tokens": 15},
        {"texts": [["a", 8], ["b", 5]], "prompt_tokens": 13},  # 8 of a
        {"texts": [["c", 10], ["b", 5]], "prompt_tokens": 15},  # nothing
        {"texts": [["a", 10], ["b", 9]], "prompt_tokens": 19},  # 10 of a, 5 of b
    ]
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(json.dumps({**r, "arrival_s": 0, "output_tokens": 1}) + "\n" for r in rows)
    )
    assert describe(open_trace(path)).shared_share == pytest.approx((8 + 15) / (15 + 13 + 15 + 19))


def test_tenants_and_notes(tmp_path: Path) -> None:
    found = describe(replace(PLAIN, num_requests=100, tenants=Choice.of({"b": 1, "a": 1})))
    assert list(found.tenants) == ["a", "b"]
    assert sum(found.tenants.values()) == 100
    path = tmp_path / "a.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2023-11-16 18:15:46,3,0\n" * 2)
    path.write_text(path.read_text() + "2023-11-16 18:15:46,3,1\n")
    assert describe(open_trace(path)).notes[0].startswith("2 of 3 rows")
    given = Conversations("counted by hand", *(np.array([n]) for n in (1, 5, 2)))
    assert describe(Synthetic(arrivals=AtOnce(), conversations=given)).notes == ("counted by hand",)


def test_nothing_cannot_be_described() -> None:
    with pytest.raises(ValueError, match="makes no requests"):
        describe(replace(PLAIN, num_requests=None, duration_s=1e-9))
