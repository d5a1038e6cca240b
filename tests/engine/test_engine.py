"""The real engine as a whole: ends, refusals, small pools, failures, stop ids."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.core.request import Request, SamplingParams
from headway.drive.ports import Submit, Withdraw
from headway.engine import config
from headway.model import loader
from tests.engine.harness import Bench, ask

MakeBench = Callable[..., Bench]


def test_a_prompt_larger_than_the_pool_is_refused_and_the_next_is_served(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(num_gpu_blocks_override=4)
    outcomes = bench.run({0: [ask("big", [5] * 100), ask("small", [5] * 10)]})
    assert "pool has 4" in bench.rejected["big"]
    assert outcomes["small/0"].reason == "length"


def test_alone_and_out_of_blocks_ends_with_length(make_bench: MakeBench) -> None:
    bench = make_bench(num_gpu_blocks_override=4)
    outcomes = bench.run({0: [ask("long", [5] * 40, max_tokens=200), ask("next", [6] * 10)]})
    assert outcomes["long/0"].reason == "length"
    assert 20 <= len(outcomes["long/0"].token_ids) <= 25
    assert outcomes["next/0"].reason == "length"
    assert bench.engine.scheduler.stats().num_held_blocks == 0


def test_a_stop_id_ends_a_sequence(make_bench: MakeBench) -> None:
    free = make_bench().run({0: [ask("free", [9] * 20, max_tokens=20)]})["free/0"].token_ids
    stop_id = free[4]
    request = Request(
        request_id="stopped",
        prompt_token_ids=(9,) * 20,
        sampling=SamplingParams(temperature=0, max_tokens=20),
        stop_token_ids=frozenset([stop_id]),
    )
    stopped = make_bench().run({0: [request]})["stopped/0"]
    assert stopped.reason == "stop"
    assert stopped.token_ids == free[: free.index(stop_id) + 1]


def test_withdrawn_requests_leave_nothing_behind(make_bench: MakeBench) -> None:
    bench = make_bench(max_num_batched_tokens=32)
    requests = [ask(f"r{i}", [i + 3] * 50, max_tokens=50) for i in range(6)]

    def withdraw(turn: int) -> None:
        if turn in (1, 3, 8, 20):
            bench.commands.append(Withdraw(f"r{turn % 6}"))

    outcomes = bench.run({0: requests}, withdraw)
    assert sorted(o.reason or "" for o in outcomes.values()).count("abort") == 3
    assert bench.engine.scheduler.stats().num_held_blocks == 0


def test_a_failing_pass_ends_its_sequences_and_only_them(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench()
    decoder = bench.engine.executor._decoder
    real = decoder.hidden_states

    def broken(*args: object) -> object:
        raise MemoryError("no memory for this pass")

    bench.commands.append(Submit(ask("victim", [4] * 30, max_tokens=9)))
    bench.engine.loop.turn()
    monkeypatch.setattr(decoder, "hidden_states", broken, raising=False)
    bench.engine.loop.turn()
    monkeypatch.setattr(decoder, "hidden_states", real, raising=False)
    assert bench.outcomes["victim/0"].reason == "error"
    assert "no memory" in bench.outcomes["victim/0"].detail
    after = bench.run({0: [ask("after", [4] * 30, max_tokens=9)]})["after/0"]
    clean = make_bench().run({0: [ask("after", [4] * 30, max_tokens=9)]})["after/0"]
    assert after.visible() == clean.visible()


def test_logprobs_survive_preemption_in_shape_and_bits(make_bench: MakeBench) -> None:
    request = ask("subject", list(range(3, 63)), max_tokens=40, logprobs=5, prompt_logprobs=2)
    undisturbed = make_bench().run({0: [request]})["subject/0"]
    bench = make_bench(num_gpu_blocks_override=10, max_num_batched_tokens=8)
    others = [ask(f"o{i}", [7 + i] * 30, max_tokens=60) for i in range(3)]
    disturbed = bench.run({0: [others[0], request, *others[1:]]})["subject/0"]
    assert bench.num_preemptions > 0
    assert len(disturbed.logprobs) == 40
    assert len(disturbed.prompt_logprobs) == 60
    assert disturbed.visible() == undisturbed.visible()


def test_warming_up_changes_no_token(make_bench: MakeBench) -> None:
    cold, warm = make_bench(), make_bench()
    warm.engine.warm_up()
    work = {0: [ask("one", [5] * 40, max_tokens=20), ask("two", [7, 8, 9], max_tokens=20)]}
    assert {n: o.visible() for n, o in warm.run(work).items()} == {
        n: o.visible() for n, o in cold.run(work).items()
    }


def test_every_quantization_that_may_be_asked_for_can_be_loaded():
    assert (None, *config.QUANTIZATIONS) == loader.QUANTIZATIONS
