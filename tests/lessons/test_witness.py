"""Article 1 on its witness workload, pass by pass."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lessons.drain import (
    BUDGET,
    OUTPUTS,
    PROMPTS,
    SETTINGS,
    num_blocks_in,
    run,
)
from tests.lessons.reconstruction import Pass, reconstruct


def reconstructed(name: str) -> list[Pass]:
    setting = {"slots": 256, "gib": 16, "declared": 4, "outputs": OUTPUTS, **SETTINGS[name]}
    return reconstruct(
        PROMPTS,
        setting["outputs"],
        num_blocks=num_blocks_in(setting["gib"]),
        slots=setting["slots"],
        budget=BUDGET,
        multiple=setting["declared"] if setting.get("kv_policy") == "reserve" else None,
        is_static=setting.get("unit") == "request",
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_every_pass_is_that_of_the_reconstruction(name):
    """Who computes what, who is evicted, what is held and how long it takes."""
    drained, passes = run(name), reconstructed(name)
    log, steps = drained.records, drained.result.steps
    assert [[tuple(chunk) for chunk in record.chunks] for record in log] == [
        one.chunks for one in passes
    ]
    assert [[e.sequence_id for e in record.preempted] for record in log] == [
        one.preempted for one in passes
    ]
    assert steps["num_running"].tolist() == [one.num_running for one in passes]
    assert steps["num_held_blocks"].tolist() == [one.num_held for one in passes]
    assert steps["num_live_tokens"].tolist() == [one.num_live for one in passes]
    nanoseconds = [round(one.seconds * 1e9) for one in passes]
    assert (steps["end_ns"] - steps["start_ns"]).tolist() == nanoseconds
    assert np.array_equal(steps["start_ns"][1:], steps["end_ns"][:-1])
    assert drained.seconds == pytest.approx(sum(one.seconds for one in passes), rel=1e-9)
    recomputed = sum(one.num_recomputed for one in passes)
    assert drained.summary.num_recomputed_prompt_tokens == recomputed


def test_a_victim_that_keeps_its_tokens_is_another_machine():
    """Headway's own rule, and vLLM's: what was generated is kept, and prefilled with the prompt.

    A victim is back sooner and makes nothing twice, but brings a longer prefill and at once holds
    as much as before. In a small pool that preempts less often; where preemption is rare both
    evict as often, others. The article's printed 38 and 68 belong to starting over.
    """
    rows = {
        name: (own.summary.num_preemptions, own.summary.num_recomputed_prompt_tokens)
        for name in ("seqs_256", "pool_8", "pool_2")
        for own in [run(name, starts_over=False)]
    }
    assert rows == {"seqs_256": (37, 57_933), "pool_8": (34, 56_207), "pool_2": (41, 50_440)}
    assert run("pool_2").summary.num_preemptions == 68
    own, over = run("pool_2", starts_over=False), run("pool_2")
    assert own.seconds < over.seconds
    generated_again = over.result.steps["num_samples"].sum() - over.num_tokens
    assert generated_again > 0
    assert own.result.steps["num_samples"].sum() == own.num_tokens


def test_without_preemption_the_rules_are_one():
    for name in ("seqs_64", "pool_64", "reserve_4x", "static"):
        assert run(name, starts_over=False).records == run(name).records
