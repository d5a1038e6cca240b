"""The product's promise: tokens and logprobs are bit-equal whatever else the engine is doing.

Every comparison is of floats with ==, on every instruction set that this machine can run.
Faults this guards against: P27 to P33, P66, P67.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from headway.core.request import Request
from tests.engine.harness import Bench, Outcome, ask

VOCAB = 96  # of the tiny model
MakeBench = Callable[..., Bench]


def prompt_of(length: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(3, VOCAB) for _ in range(length)]


def strangers(count: int, seed: int) -> list[Request]:
    draw = random.Random(seed)
    return [
        ask(
            f"stranger-{i}",
            prompt_of(draw.randint(1, 90), seed * 1000 + i),
            max_tokens=draw.randint(1, 30),
            temperature=draw.choice([0.0, 0.7, 1.3]),
            seed=i,
        )
        for i in range(count)
    ]


def subject(max_tokens: int = 12) -> Request:
    return ask("subject", prompt_of(75, 1), max_tokens=max_tokens, prompt_logprobs=2)


def alone(make_bench: MakeBench, request: Request) -> Outcome:
    return make_bench().run({0: [request]})[f"{request.request_id}/0"]


def test_among_strangers_equals_alone(make_bench: MakeBench) -> None:
    expected = alone(make_bench, subject())
    assert len(expected.token_ids) == 12
    for seed in range(4):
        crowd = strangers(31, seed)
        arrivals = {0: crowd[:10], 2: [*crowd[10:15], subject()], 5: crowd[15:]}
        found = make_bench(max_num_batched_tokens=200).run(arrivals)["subject/0"]
        assert found.visible() == expected.visible()


def test_every_stranger_too_equals_itself_alone(make_bench: MakeBench) -> None:
    crowd = strangers(12, 9)
    together = make_bench(max_num_batched_tokens=64).run({0: crowd[:5], 3: crowd[5:]})
    for request in crowd:
        expected = alone(make_bench, request)
        assert together[f"{request.request_id}/0"].visible() == expected.visible()


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
def test_any_chunking_equals_whole(make_bench: MakeBench, chunk: int) -> None:
    expected = alone(make_bench, subject())
    bench = make_bench(max_num_batched_tokens=chunk, max_num_seqs=1)
    assert bench.run({0: [subject()]})["subject/0"].visible() == expected.visible()


def test_a_cache_hit_of_any_number_of_blocks_equals_cold(make_bench: MakeBench) -> None:
    prompt = prompt_of(75, 1)
    request = ask("subject", prompt, max_tokens=12)  # prompt logprobs would bypass the cache
    expected = alone(make_bench, request)
    for num_blocks in range(5):
        bench = make_bench()
        bench.run({0: [ask("warm", [*prompt[: 16 * num_blocks], 3], max_tokens=1)]})
        found = bench.run({0: [request]})["subject/0"]
        assert bench.num_cached_tokens["subject/0"] == 16 * num_blocks
        assert found.visible() == expected.visible()


def test_preempted_at_any_step_equals_undisturbed(make_bench: MakeBench) -> None:
    expected = alone(make_bench, subject())
    preempted_at = []
    for turn in range(2, 18):
        bench = make_bench(max_num_batched_tokens=40, long_prefill_token_threshold=16)
        found = bench.run({0: [growing()], 1: [subject()]}, squeeze(bench, turn))["subject/0"]
        assert found.visible() == expected.visible()
        preempted_at += [turn] * bench.num_preemptions
    assert preempted_at == list(range(2, 18))


def growing() -> Request:
    """An older request that needs one more block at every one of its first 25 steps."""
    return ask("growing", prompt_of(16 * 25, 77), max_tokens=1)


def squeeze(bench: Bench, turn: int) -> Callable[[int], None]:
    """Take every free block away for one turn, so that who grows must evict the newest."""
    pool = bench.engine.scheduler.pool
    taken: list[int] = []

    def before(now: int) -> None:
        if now == turn:
            taken.extend(pool.allocate(pool.num_free))
        elif now == turn + 1:
            pool.free(taken)

    return before


def test_preempted_by_others_in_a_small_pool_equals_alone(make_bench: MakeBench) -> None:
    requests = [
        ask(f"r{i}", prompt_of(20 + 7 * i, i), max_tokens=60, prompt_logprobs=i % 2 or None)
        for i in range(6)
    ]
    bench = make_bench(num_gpu_blocks_override=14, max_num_batched_tokens=48)
    together = bench.run({0: requests[:3], 4: requests[3:]})
    assert bench.num_preemptions > 3
    for request in requests:
        expected = alone(make_bench, request)
        assert together[f"{request.request_id}/0"].visible() == expected.visible()


def test_identical_requests_at_once_are_identical(make_bench: MakeBench) -> None:
    twins = [ask(f"twin-{i}", prompt_of(40, 5), max_tokens=20) for i in range(24)]
    outcomes = make_bench(max_num_batched_tokens=64).run({0: twins})
    assert len({str(o.visible()) for o in outcomes.values()}) == 1


def test_seeds_make_draws_repeat_and_differ(make_bench: MakeBench) -> None:
    prompt = prompt_of(10, 2)
    hot = [ask(f"hot-{i}", prompt, temperature=1.5, seed=i, max_tokens=12) for i in range(8)]
    same = [ask(f"same-{i}", prompt, temperature=1.5, seed=7, max_tokens=12) for i in range(8)]
    outcomes = make_bench().run({0: [*hot, *same]})
    texts = [tuple(outcomes[f"hot-{i}/0"].token_ids) for i in range(8)]
    repeats = [tuple(outcomes[f"same-{i}/0"].token_ids) for i in range(8)]
    assert len(set(texts)) == 8
    assert set(repeats) == {texts[7]}


def test_choices_of_one_request_differ_and_repeat(make_bench: MakeBench) -> None:
    request = ask("many", prompt_of(20, 3), temperature=1.5, n=4, seed=11, max_tokens=12)
    first = make_bench().run({0: [request]})
    again = make_bench(max_num_batched_tokens=16).run({0: [*strangers(5, 1), request]})
    texts = [tuple(first[f"many/{i}"].token_ids) for i in range(4)]
    assert len(set(texts)) == 4
    assert [tuple(again[f"many/{i}"].token_ids) for i in range(4)] == texts


@pytest.mark.parametrize("concurrency", [1, 2, 4, 8, 16, 32, 64])
def test_the_number_in_flight_changes_nothing(make_bench: MakeBench, concurrency: int) -> None:
    """P28: one distinct completion at every concurrency."""
    expected = alone(make_bench, ask("r", prompt_of(30, 4), max_tokens=16))
    requests = [ask(f"r{i}", prompt_of(30, 4), max_tokens=16) for i in range(concurrency)]
    outcomes = make_bench(max_num_batched_tokens=96).run({0: requests})
    assert {str(o.visible()) for o in outcomes.values()} == {str(expected.visible())}


def test_two_runs_of_a_trace_with_other_arrivals_are_equal(make_bench: MakeBench) -> None:
    """P30: the outputs of a trace do not depend on when its requests came."""
    trace = strangers(40, 3)

    def run(seed: int) -> list[object]:
        arrivals: dict[int, list[Request]] = {}
        for request in trace:
            turn = random.Random(f"{seed}{request.request_id}").randrange(30)
            arrivals.setdefault(turn, []).append(request)
        outcomes = make_bench(max_num_batched_tokens=100, num_gpu_blocks_override=40).run(arrivals)
        return [outcomes[f"{request.request_id}/0"].visible() for request in trace]

    assert run(1) == run(2)


def test_forced_tokens_are_scored_as_if_they_had_been_sampled(make_bench: MakeBench) -> None:
    free = alone(make_bench, subject())
    forced = replace(subject(max_tokens=2), forced_token_ids=tuple(free.token_ids))
    assert alone(make_bench, forced).visible() == free.visible()


def masked(name: str, seed: int) -> Request:
    request = ask(
        name,
        prompt_of(40, seed),
        max_tokens=20,
        temperature=1.1,
        seed=seed,
        allowed_token_ids=range(20, 40),
        repetition_penalty=1.3,
    )
    return replace(request, bad_word_ids=((21,), (22, 23), (24, 25, 26)))


def test_masks_are_bit_equal_under_preemption_and_among_strangers(make_bench: MakeBench) -> None:
    subjects = [masked(f"m{i}", i) for i in range(4)]
    expected = {request.request_id: alone(make_bench, request) for request in subjects}
    bench = make_bench(num_gpu_blocks_override=14, max_num_batched_tokens=16)
    found = bench.run({0: subjects[:2], 3: [*strangers(3, 5), *subjects[2:]]})
    assert bench.num_preemptions > 0
    for name, outcome in expected.items():
        assert found[f"{name}/0"].visible() == outcome.visible()
        assert set(outcome.token_ids) <= set(range(20, 40)) - {21}
