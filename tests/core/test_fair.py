"""`--scheduling-policy fair`: tenants by what they were served, and whom it preempts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fair_twin import Twin
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig, weights_of
from headway.core.events import Admitted, Preempted, Resumed
from headway.core.policies import build_policies
from headway.core.policies import fair as fair_module
from headway.core.policies.fair import Fair, MostServed


def config_of(**knobs) -> SchedulerConfig:
    return SchedulerConfig(**{"block_size": 4, "ordering": "fair", "max_model_len": 64, **knobs})


def fair_world(config: SchedulerConfig, num_blocks: int) -> tuple[World, Fair]:
    policies = build_policies(config)
    assert isinstance(policies.ordering, Fair)
    return World(config, num_blocks, policies=policies), policies.ordering


def submit(world: World, *names: str, prompt: int = 4, max_tokens: int = 3) -> None:
    """`a1` is of tenant a; every prompt is its own."""
    for name in names:
        ids = [ord(name[0]) + int(name[1:] or 0)] * prompt
        world.submit(make_request(name, ids, max_tokens=max_tokens, tenant=name[0]))


def admissions(world: World) -> list[str]:
    found = []
    for step in world.steps:
        entered = {event.sequence_id for event in (*step.admitted, *step.resumed)}
        in_order = (chunk.sequence for chunk in step.chunks)
        found += [s.request.request_id for s in in_order if s.sequence_id in entered]
    return found


@pytest.mark.parametrize(
    ("weights", "order"),
    [
        # A prompt of 4 and an output of 3 cost 4 + 2 * 3 = 10; where all are equal, a came first.
        ("", "a1 b1 a2 b2 a3 b3 a4"),
        ("a=2", "a1 b1 a2 a3 b2 a4 b3"),  # a: 10 20 30 .., b: 20 40 60, of a weight's half each
        ("a=2,b=4", "a1 b1 b2 a2 b3 a3 a4"),  # a: 20 40 .., b: 10 20 30
    ],
)
def test_the_least_served_comes_first(weights, order):
    world = World(config_of(max_num_seqs=1, tenant_weights=weights), 20)
    submit(world, "a1", "a2", "a3", "a4", "b1", "b2", "b3")
    world.drain()
    assert admissions(world) == order.split()


def test_who_is_let_in_counts_before_the_next_in_the_same_step():
    world = World(config_of(max_num_seqs=8), 40)
    submit(world, "a1", "a2", "a3")
    submit(world, "b1", "b2", prompt=6)
    world.turn()
    assert admissions(world) == ["a1", "b1", "a2", "b2", "a3"], "a 4, b 6, a 8, b 12, a 12"


def earns(monkeypatch: pytest.MonkeyPatch, credit: int) -> None:
    monkeypatch.setattr(fair_module, "CREDIT", credit)


@pytest.mark.parametrize(
    ("credit", "joins_at", "order"),
    [
        (0, 46, "a4 b2 a5 b3 a6"),
        (5, 41, "a4 b2 a5 b3 a6"),
        (16, 30, "a4 b2 b3 a5 a6"),  # at 30, and at 40 before a5, which is at 50
        (99, 10, "a4 b2 b3 a5 a6"),
    ],
)
def test_idle_time_earns_no_more_than_the_credit(monkeypatch, credit, joins_at, order):
    earns(monkeypatch, credit)
    world, fair = fair_world(config_of(max_num_seqs=1), 20)
    submit(world, "b1")
    world.drain()
    submit(world, *(f"a{n}" for n in range(1, 7)))
    for _ in range(3 * 3 + 1):  # a1 to a3 are served, a4 has begun
        world.turn()
    # b has had 10, and a began there or a credit below: three of 10 and a prompt and a token since.
    at = fair.counter_of("a")
    assert (at, fair.counter_of("b")) == (max(0, 10 - credit) + 3 * 10 + 6, 10)
    submit(world, "b2", "b3")
    assert fair.counter_of("b") == max(10, at - credit)
    world.drain()
    assert " ".join(admissions(world)[4:]) == order


def test_where_nobody_waits_one_joins_at_the_counter_of_who_left_last(monkeypatch):
    earns(monkeypatch, 0)
    world, fair = fair_world(config_of(max_num_seqs=4), 20)
    submit(world, "a1", max_tokens=9)
    world.turn()
    submit(world, "b1")
    assert fair.counter_of("b") == fair.counter_of("a") == 4 + 2


def test_what_the_prefix_cache_had_is_not_charged(monkeypatch):
    earns(monkeypatch, 0)
    world, fair = fair_world(config_of(), 20)
    for name in ("a", "b"):
        world.submit(make_request(name, [1] * 11, max_tokens=1, tenant=name))
        world.drain()
    assert fair.counter_of("a") == 11 + 2
    assert fair.counter_of("b") == 13 + 3 + 2, "two blocks of four were there; it joined at 13"


def test_what_a_preemption_has_computed_again_is_not_charged():
    world, fair = fair_world(config_of(enable_prefix_caching=False), 4)
    submit(world, "a1", "a2", prompt=7, max_tokens=6)
    world.drain()
    assert any(isinstance(event, Preempted) for event in world.events)
    assert fair.counter_of("a") == 2 * (7 + 2 * 6)


def test_the_newest_of_the_most_served_pays(monkeypatch):
    earns(monkeypatch, 0)
    world, fair = fair_world(config_of(enable_prefix_caching=False, reserve_full_isl=False), 9)
    submit(world, "a1", "a2", prompt=6, max_tokens=30)
    world.turn()
    submit(world, "b1", prompt=3, max_tokens=30)
    world.turn()
    # a was charged 2 * (6 + 2 * 2), b joined at 2 * (6 + 2) and was charged 3 + 2.
    assert (fair.counter_of("a"), fair.counter_of("b")) == (20, 21)
    while not world.steps[-1].preempted:
        world.turn()
    assert [event.request_id for event in world.steps[-1].preempted] == ["a2"], "b1 is newer"
    assert fair.counter_of("a") > fair.counter_of("b")
    world.drain()


def test_a_tenant_that_was_served_less_is_not_evicted_for_another():
    """The flood's counter is ahead of the quiet one's, so all that is evicted is the flood's."""
    world, fair = fair_world(config_of(enable_prefix_caching=False, max_num_seqs=4), 16)
    submit(world, *(f"f{n}" for n in range(20)), prompt=8, max_tokens=24)
    for number in range(60):
        if number % 20 == 5:
            submit(world, f"q{number}", prompt=4, max_tokens=8)
        before = {name: fair.counter_of(name) for name in "fq"}
        step = world.turn()
        for event in step.preempted:
            assert event.request_id[0] == "f" or before["q"] >= before["f"]
    assert any(step.preempted for step in world.steps)
    world.drain()


# ---- Against the paper's own words ----


@st.composite
def moves(draw):
    found = []
    for number in range(draw(st.integers(4, 30))):
        kind = draw(st.sampled_from(["submit", "submit", "submit", "turns", "abort"]))
        asked = (
            draw(st.sampled_from("abc")),
            draw(st.integers(1, 12)),
            draw(st.integers(1, 9)),
            draw(st.integers(1, 2)),
        )
        found.append((kind, number, asked, draw(st.integers(0, 12))))
    return found


def in_order_of_admission(events, world):
    """Those of one step: it tells all of the admitted before all of the resumed."""
    entered = [event for event in events if isinstance(event, Admitted | Resumed)]
    chunks = world.steps[-1].chunks if world.steps else ()
    place = {chunk.sequence.sequence_id: n for n, chunk in enumerate(chunks)}
    in_order = iter(sorted(entered, key=lambda event: place[event.sequence_id]))
    return [next(in_order) if isinstance(e, Admitted | Resumed) else e for e in events]


@pytest.mark.parametrize("credit", [0, 20])
@settings(max_examples=40, deadline=None)
@given(
    moves=moves(),
    weights=st.sampled_from(["", "a=2", "a=3,b=2", "a=7,b=1,c=5"]),
    knobs=st.fixed_dictionaries(
        {
            "max_num_seqs": st.integers(1, 4),
            "max_num_batched_tokens": st.integers(2, 24),
            "enable_prefix_caching": st.booleans(),
            "kv_policy": st.sampled_from(["on-demand", "reserve"]),
            "prefill": st.sampled_from(["mixed", "first"]),
        }
    ),
    num_blocks=st.integers(6, 14),
)
def test_every_choice_and_counter_is_the_papers(credit, moves, weights, knobs, num_blocks):
    with pytest.MonkeyPatch.context() as patch:
        earns(patch, credit)
        pair = Pair(config_of(tenant_weights=weights, **knobs), num_blocks)
    for move in moves:
        pair.play(*move)
    while pair.world.scheduler.has_unfinished():
        pair.turn()


class Pair:
    """A scheduler and its twin, compared after every turn."""

    def __init__(self, config: SchedulerConfig, num_blocks: int) -> None:
        self.world, self.fair = fair_world(config, num_blocks)
        self.twin = Twin(weights_of(config.tenant_weights), fair_module.CREDIT)
        self.heard = 0

    def play(self, kind, number, asked, other) -> None:
        tenant, prompt, max_tokens, n = asked
        if kind == "submit":
            ids = [number % 3 + 1] * prompt
            request = make_request(f"{number}", ids, max_tokens=max_tokens, n=n, tenant=tenant)
            self.world.submit(request)
        elif kind == "abort":
            for sequence in list(self.twin.queue):
                if sequence.request.request_id == f"{other}":
                    self.twin.goes(sequence)
            self.world.abort(f"{other}")
        else:
            for _ in range(other):
                self.turn()
        self.compare()

    def turn(self) -> None:
        self.world.turn()
        self.compare()

    def compare(self) -> None:
        self.twin.sequences |= {s.sequence_id: s for s in self.world.scheduler._live}
        for event in in_order_of_admission(self.world.events[self.heard :], self.world):
            self.twin.hear(event)
        self.heard = len(self.world.events)
        for name, counter in self.twin.scaled().items():
            assert self.fair.counter_of(name) == counter


@settings(max_examples=40, deadline=None)
@given(
    moves=moves(),
    knobs=st.fixed_dictionaries(
        {
            "max_num_seqs": st.integers(1, 4),
            "max_num_batched_tokens": st.integers(2, 24),
            "enable_prefix_caching": st.booleans(),
            "unit": st.sampled_from(["step", "request"]),
        }
    ),
    num_blocks=st.integers(6, 14),
)
def test_with_one_tenant_it_is_first_come_first_served(moves, knobs, num_blocks):
    worlds = [
        World(config_of(**knobs), num_blocks),
        World(config_of(**knobs, ordering="fcfs"), num_blocks),
    ]
    for world in worlds:
        for kind, number, (_, prompt, max_tokens, n), num_turns in moves:
            if kind == "submit":
                ids = [number % 3 + 1] * prompt
                world.submit(make_request(f"{number}", ids, max_tokens=max_tokens, n=n))
            elif kind == "abort":
                world.abort(f"{num_turns}")
            else:
                for _ in range(num_turns):
                    world.turn()
        world.drain()
    assert worlds[0].events == worlds[1].events


# ---- Tenants are many, and their names are what clients make up ----


def test_who_is_gone_and_owes_nothing_is_forgotten(monkeypatch):
    earns(monkeypatch, 0)
    world, fair = fair_world(config_of(max_num_seqs=2), 20)
    for number in range(4000):
        world.submit(make_request(f"{number}", [1], max_tokens=1, tenant=f"t{number}"))
        world.turn()
    world.drain()
    assert len(fair._tenants) < 2100


def test_names_made_up_without_end_are_forgotten_though_they_owe(monkeypatch):
    """One of a large weight waits, so that the line's floor stays, and all who are served owe."""
    monkeypatch.setattr("headway.core.policies.fair._FEW", 8)
    monkeypatch.setattr("headway.core.policies.fair._MOST_IDLE", 16)
    knobs = {"max_num_seqs": 4, "max_tenant_seqs": 1, "max_model_len": 600}
    world, fair = fair_world(config_of(**knobs, tenant_weights="old=1000000"), 200)
    fair._most_remembered = 8
    for number in range(2):
        world.submit(make_request(f"old{number}", [1], max_tokens=250, tenant="old"))
    most = 0
    for number in range(200):
        world.submit(make_request(f"{number}", [1], max_tokens=1, tenant=f"t{number}"))
        world.turn()
        most = max(most, len(fair._tenants))
    world.drain()
    assert most < 60


def test_forgetting_changes_no_decision():
    def decisions(most_remembered):
        world, fair = fair_world(config_of(max_num_seqs=2), 20)
        for number in range(300):
            fair._most_remembered = min(fair._most_remembered, most_remembered)
            for name in (f"t{number % 41}", "flood"):
                ids = [number % 5 + 1] * (1 + number % 7)
                world.submit(make_request(f"{name}.{number}", ids, max_tokens=3, tenant=name))
            world.turn()
            world.turn()
        world.drain()
        return world.events

    assert decisions(5) == decisions(10_000)


# ---- Settings ----


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"tenant_weights": "a=1"}, "^tenant_weights are of ordering fair, and it is fcfs"),
        ({"victim": "most-served"}, "^victim most-served is of ordering fair"),
        ({"ordering": "fair", "tenant_weights": "a"}, "^tenant_weights must be TENANT=WEIGHT"),
        ({"ordering": "fair", "tenant_weights": "a=0"}, "^tenant_weights must have weights from 1"),
        ({"ordering": "fair", "tenant_weights": "a=1,a=2"}, "^tenant_weights must name each"),
        ({"max_tenant_seqs": -1}, "^max_tenant_seqs must be an integer of at least 0"),
    ],
)
def test_what_cannot_be_is_refused(knobs, sentence):
    with pytest.raises(ValueError, match=sentence):
        SchedulerConfig(**knobs)


def test_weights_as_a_flag_has_them():
    assert weights_of("a=2, team one=30,x=y=4") == {"a": 2, "team one": 30, "x=y": 4}
    assert weights_of("") == weights_of(" ") == {}
    with pytest.raises(ValueError, match="weights from 1 to 1000000"):
        weights_of("a=99999999999999")


def test_the_victim_goes_with_it_unless_named():
    assert isinstance(build_policies(config_of()).victim, MostServed)
    assert isinstance(build_policies(config_of(victim="most-served")).victim, MostServed)
    newest = build_policies(replace(config_of(), victim="newest")).victim
    assert not isinstance(newest, MostServed)
