"""Causes that were planted are named, and so are those who are to blame."""

from __future__ import annotations

from headway.core.config import SchedulerConfig
from headway.insight.explain.report import Explanation
from headway.simulator.workload.base import ClientRequest
from tests.insight.explain.worlds import Explained, explained, share
from tests.simulator.worlds import asks

MS = 1_000_000
ENOUGH = 4000  # blocks


def config(**fields: object) -> SchedulerConfig:
    usual = {"max_num_seqs": 64, "max_num_batched_tokens": 4096, "block_size": 8}
    return SchedulerConfig(**{**usual, **fields})  # type: ignore[arg-type]


def holders(explanation: Explanation, reason: str) -> list[str]:
    [wait] = [w for w in explanation.sequences[0].waits if w.reason == reason]
    return [holder.request_id for holder in wait.held_by]


def waiters(found: Explained, reason: str) -> list[Explanation]:
    """Those that waited for this longer than for a step or two."""
    return [
        explanation
        for explanation in found.explanations.values()
        if sum(w.ns for w in explanation.sequences[0].waits if w.reason == reason) > 5 * MS
    ]


def test_a_long_prompt_stalls_those_who_decode() -> None:
    crowd = [asks(name, 20, 60) for name in range(12)]
    found = explained(config(), [*crowd, asks(99, 3000, 5, at_ns=30 * MS)], ENOUGH)
    affected = [found[name] for name in range(12)]
    assert share([e.cause == "stall" for e in affected]) >= 0.95
    for explanation in affected:
        stall = explanation.sequences[0].stall
        assert stall.by[0].request_id == "99"
        assert stall.by[0].tokens == 3000
        assert "by prompts of 99" in explanation.verdict


def test_p17_an_endless_generation_behind_a_cap_is_named_by_all_who_wait() -> None:
    endless = asks(0, 20, 2000)
    short = [asks(name, 20, 5, at_ns=10 * MS) for name in range(1, 15)]
    found = explained(config(max_num_seqs=1), [endless, *short], ENOUGH)
    affected = [found[name] for name in range(1, 15)]
    assert share([e.cause == "queue: slots" for e in affected]) >= 0.95
    assert share([holders(e, "slots")[0] == "0" for e in affected]) >= 0.95
    assert all("for a slot, mostly held by 0" in e.verdict for e in affected)


def test_a_slot_cap() -> None:
    crowd = [asks(name, 20, 30, at_ns=name * MS) for name in range(60)]
    found = explained(config(max_num_seqs=4), crowd, ENOUGH)
    affected = waiters(found, "slots")
    assert len(affected) > 40
    assert share([e.cause == "queue: slots" for e in affected]) >= 0.95
    assert all(len(holders(e, "slots")) >= 4 for e in affected)


def test_a_small_pool_is_named_with_its_largest_holders() -> None:
    large = [asks(name, 400, 300) for name in range(2)]
    small = [asks(name, 40, 40, at_ns=(name + 10) * MS) for name in range(10, 50)]
    found = explained(config(kv_policy="reserve", max_model_len=1024), [*large, *small], 280)
    affected = waiters(found, "blocks")
    assert len(affected) > 20
    assert share([e.cause == "queue: blocks" for e in affected]) >= 0.95
    early = [e for e in affected if int(e.request_id) < 15]
    assert all({"0", "1"} >= set(holders(e, "blocks")[:2]) for e in early)


def test_preemptions_of_a_small_pool() -> None:
    crowd = [asks(name, 40, 150, at_ns=name * MS) for name in range(20)]
    found = explained(config(enable_prefix_caching=False), crowd, 120)
    affected = [
        e
        for e in found.explanations.values()
        if 5 * (e.parts_ns["preempted"] + e.parts_ns["recompute"]) > e.e2e_ns > 0
    ]
    assert len(affected) > 5
    blamed = {"preempted", "queue: blocks"}
    assert share([e.cause in blamed for e in affected]) >= 0.95
    assert all(e.sequences[0].evictions[0].beneficiary for e in affected)
    assert any("preemption" in e.verdict for e in affected)


def test_a_tenant_at_its_cap_waits_for_its_own_and_others_do_not() -> None:
    greedy = [asks(name, 20, 40, at_ns=name, tenant="a") for name in range(20)]
    modest = [asks(name, 20, 10, at_ns=name * 20 * MS, tenant="b") for name in range(20, 30)]
    found = explained(config(max_tenant_seqs=2), [*greedy, *modest], ENOUGH)
    affected = waiters(found, "tenant")
    assert {e.tenant for e in affected} == {"a"}
    assert len(affected) >= 17
    assert share([e.cause == "queue: tenant" for e in affected]) >= 0.95
    tenants = {e.request_id: e.tenant for e in found.explanations.values()}
    for explanation in affected:
        assert {tenants[name] for name in holders(explanation, "tenant")} == {"a"}
        assert "a slot of its tenant" in explanation.verdict


def test_both_walls_at_once_are_told_apart() -> None:
    """The slots are full, and of tenant a nobody could come in even so."""
    greedy = [asks(name, 20, 200, at_ns=name, tenant="a") for name in range(8)]
    others = [asks(name, 20, 200, at_ns=name, tenant=f"t{name}") for name in range(8, 16)]
    found = explained(config(max_num_seqs=4, max_tenant_seqs=2), [*greedy, *others], ENOUGH)
    for explanation in found.explanations.values():
        first = explanation.sequences[0].waits
        if explanation.tenant != "a":
            assert "tenant" not in {wait.reason for wait in first}
    assert found[2].cause == "queue: tenant"
    assert found[15].cause == "queue: slots"


def test_a_token_budget_is_named_with_the_prompts_that_took_it() -> None:
    crowd = [asks(name, 1000, 2) for name in range(12)]
    found = explained(config(max_num_batched_tokens=256), crowd, ENOUGH)
    affected = waiters(found, "budget")
    assert len(affected) >= 10
    assert share([e.cause == "queue: budget" for e in affected]) >= 0.95
    assert all(int(name) < int(e.request_id) for e in affected for name in holders(e, "budget"))


def test_a_static_batch() -> None:
    crowd = [asks(name, 20, 30, at_ns=name * 3 * MS) for name in range(8)]
    found = explained(config(unit="request"), crowd, ENOUGH)
    affected = waiters(found, "static_batch")
    assert len(affected) >= 4
    assert share([e.cause == "queue: static_batch" for e in affected]) >= 0.95
    assert all("0" in holders(e, "static_batch") for e in affected)


def test_decodes_held_back_for_prompts_are_stalled() -> None:
    """Prompts first: a step without decodes is all stall for those who could have decoded."""
    early = [asks(name, 20, 20) for name in range(4)]
    late = [asks(name, 800, 2, at_ns=(10 + name) * MS) for name in range(4, 10)]
    found = explained(config(prefill="first", max_num_batched_tokens=1024), [*early, *late], ENOUGH)
    assert all(found[name].cause == "stall" for name in range(4))


def test_decodes_of_a_flood_that_are_left_out_are_stalled_by_the_prompt_they_made_way_for() -> None:
    crowd = [asks(name, 20, 40, tenant="flood") for name in range(20)]
    quiet = asks(99, 600, 5, at_ns=60 * MS, tenant="quiet")
    found = explained(config(ordering="fair", max_num_seqs=20), [*crowd, quiet], ENOUGH)
    [beside] = [s for s in found.log.records if any(c[2] == 600 for c in s.chunks)]
    assert len(beside.chunks) == 1
    ran = [found[name] for name in range(20) if not found[name].sequences[0].preemptions]
    assert len(ran) >= 10
    for explanation in ran:
        [by] = [by for by in explanation.sequences[0].stall.by if by.request_id == "99"]
        assert by.ns == beside.end_ns - beside.start_ns


def test_nobody_is_blamed_for_ones_own_work() -> None:
    found = explained(config(), [asks(0, 20, 50), asks(1, 3000, 1, at_ns=1000 * MS)], ENOUGH)
    assert (found[0].cause, found[1].cause) == ("decode", "prefill")
    assert found[0].sequences[0].stall.by == ()


def test_who_leaves_while_waiting_is_explained_to_the_end() -> None:
    requests: list[ClientRequest] = [asks(0, 20, 200)]
    requests.append(asks(1, 20, 5, at_ns=10 * MS, leaves_after_ns=50 * MS))
    found = explained(config(max_num_seqs=1), requests, ENOUGH)
    assert found[1].status == "abort"
    assert found[1].cause == "queue: slots"
    assert found[1].parts_ns["queue"] == found[1].e2e_ns
