"""`--scheduling-policy fair`: a flood makes way for a prompt in the step itself."""

from __future__ import annotations

from flooded import flood, sizes, submit, world_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import World, make_request, steps_to_first_token

from headway.core.sequence import Sequence


def test_a_flood_that_has_little_yet_waits_with_its_prompts_for_who_asks_for_less():
    """It is over nothing so far: two prompts in an empty pool."""
    world = world_of(300, max_num_batched_tokens=16, max_num_seqs=99)
    flood(world, 40, 1, prompt=40)
    submit(world, "q", prompt=24, max_tokens=2)
    assert steps_to_first_token(world, "q") == 2
    world.drain()


def test_whoever_has_more_waits_with_its_prompts_though_both_are_within_their_shares():
    world = world_of(300, max_num_batched_tokens=64, max_num_seqs=99)
    flood(world, 4, 1)
    submit(world, "f5", prompt=300)
    world.turn()
    submit(world, "q", prompt=60, max_tokens=2)
    assert sizes(world.turn()) == {"f0": 1, "f1": 1, "f2": 1, "f3": 1, "q": 60}
    world.drain()


def test_prompts_of_who_has_two_sequences_and_the_most_are_cut_to_a_quarter():
    world = world_of(300, max_num_batched_tokens=64, max_num_seqs=99)
    submit(world, "q0", max_tokens=1)
    world.drain()
    submit(world, "f0", prompt=60)
    assert sizes(world.turn()) == {"f0": 60}, "a single one is whole"
    submit(world, "f1", prompt=60)
    assert sizes(world.turn()) == {"f0": 1, "f1": 16}
    world.drain()


def test_nobody_waits_with_a_prompt_for_more_than_fifteen_steps_in_a_row():
    world = world_of(600, max_num_batched_tokens=16, max_num_seqs=99)
    flood(world, 40, 3, prompt=40)
    submit(world, "q", prompt=16 * 50, max_tokens=2)
    got_on = []
    while world.scheduler.num_waiting and len(got_on) < 48:
        others = [n for name, n in sizes(world.turn()).items() if name != "q"]
        got_on.append(max(others, default=0) > 1)
    assert [number for number, did in enumerate(got_on) if did] == [15, 31, 47]
    world.drain()


def test_prompts_of_a_flood_wait_for_those_of_a_quiet_tenant_and_are_cut_when_there_are_none():
    world = world_of(60, max_num_batched_tokens=64, max_num_seqs=99)
    submit(world, "q0", max_tokens=1)
    flood(world, 14, 12, prompt=30, max_tokens=12)
    decodes = sum(1 for c in world.steps[-1].chunks if c.is_decode)
    assert world.steps[-1].num_tokens - decodes == 8, "an eighth of 64"
    submit(world, "q1", prompt=100)
    steps = [step for step in (world.turn() for _ in range(5)) if sizes(step).get("q1", 0) > 1]
    assert sizes(steps[0]) == {"q1": 64}, "and nobody decodes"
    others = [n for name, n in sizes(steps[1]).items() if name != "q1"]
    assert len(others) > 2
    assert max(others) == 1
    assert len(steps) == 2
    world.drain()


def test_a_flood_decodes_beside_a_modest_tenant_s_prompt_in_every_second_step_only():
    world = world_of(600, max_num_batched_tokens=64, max_num_seqs=20)
    submit(world, "q0", max_tokens=1)
    flood(world, 14, 24, prompt=30, max_tokens=60)
    submit(world, "q1", max_tokens=40)
    assert sizes(world.turn()) == {"q1": 4}
    submit(world, "q2", prompt=300, max_tokens=2)
    num_decodes = []
    while (step := sizes(world.turn())).get("q2", 0) != 1:
        assert step["q1"] == 1, "its own decode is not left out"
        num_decodes.append(sum(name[0] == "f" for name in step))
    assert num_decodes == [9, 0, 9, 0, 9, 0]
    world.drain()


def test_a_tenant_within_its_share_decodes_beside_another_s_prompt():
    world = world_of(600, max_num_batched_tokens=64, max_num_seqs=99)
    submit(world, "a0", max_tokens=40)
    submit(world, "b0", max_tokens=40)
    world.turn()
    submit(world, "q1", prompt=64)
    assert sizes(world.turn()) == {"a0": 1, "b0": 1, "q1": 62}
    world.drain()


def prompts_of(world: World, tenant: str) -> dict[str, int]:
    """Those in the next step."""
    return {n: num for n, num in sizes(world.turn()).items() if n[0] == tenant and num > 1}


def test_prompts_of_a_modest_tenant_share_a_step_if_they_are_short_together():
    world = world_of(600, max_num_batched_tokens=64, max_num_seqs=99)
    flood(world, 14, 24, prompt=30, max_tokens=60)
    for number, prompt in enumerate((8, 8, 2, 40, 9, 9)):
        submit(world, f"q{number}", prompt=prompt)
    assert [prompts_of(world, "q") for _ in range(5)] == [
        {"q0": 8, "q1": 8},  # a quarter of 64
        {"q2": 2},
        {"q3": 40},
        {"q4": 9},
        {"q5": 9},
    ]
    world.drain()


def test_a_prompt_that_is_cut_is_no_reason_to_wait():
    knobs = {"max_num_batched_tokens": 64, "long_prefill_token_threshold": 20}
    world = world_of(600, max_num_seqs=99, **knobs)
    flood(world, 14, 24, prompt=30, max_tokens=60)
    submit(world, "q1", prompt=200)
    submit(world, "q2", prompt=20)
    assert prompts_of(world, "q") == {"q1": 20, "q2": 20}
    world.drain()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    crowd=st.lists(
        st.tuples(
            st.integers(0, 15), st.integers(1, 14), st.integers(1, 14), st.sampled_from("aaab")
        ),
        min_size=2,
        max_size=14,
    ),
    num_blocks=st.integers(8, 60),
    max_num_seqs=st.integers(1, 12),
    kv_policy=st.sampled_from(["on-demand", "predict", "reserve"]),
)
def test_nobody_who_decodes_is_left_out_twice_in_a_row(crowd, num_blocks, max_num_seqs, kv_policy):
    """With a budget for all: who lacks a token of two steps was put out between."""
    world = world_of(
        num_blocks,
        max_num_seqs=max_num_seqs,
        max_model_len=28,
        max_num_batched_tokens=200,
        kv_policy=kv_policy,
    )
    left_out: set[int] = set()
    for number in range(60):
        for name, (at, prompt, max_tokens, tenant) in enumerate(crowd):
            if at == number:
                ids = [1 + name % 3] * prompt
                world.submit(make_request(f"{name}", ids, max_tokens=max_tokens, tenant=tenant))
        before = decoding(world)
        served = {chunk.sequence.sequence_id for chunk in world.turn().chunks}
        running = {s.sequence_id for s in world.scheduler.running_sequences()}
        assert not (left_out & before & running) - served
        left_out = before & running - served
    world.drain()


def decoding(world: World) -> set[int]:
    def decodes(sequence: Sequence) -> bool:
        return sequence.is_prefilled and sequence.num_wanted_tokens() == 1

    return {s.sequence_id for s in world.scheduler.running_sequences() if decodes(s)}
