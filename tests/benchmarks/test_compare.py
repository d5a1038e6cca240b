"""The arithmetic of the comparison: what is counted as a step, what the machine allows."""

from __future__ import annotations

import contextlib
import json
from argparse import Namespace
from pathlib import Path

import pytest
from benchmarks.compare_http import Load, Waits, arrivals, percentile_99, waits
from benchmarks.load.receiving import Stream
from benchmarks.peers.engine import check, steps_between
from benchmarks.peers.limits import Roofline, Shape, ceilings
from benchmarks.peers.results import Place, Results, is_noisy
from benchmarks.peers.workloads import STEPS, Cell, cells, decode_items, mixed_requests

from benchmarks import compare_http

MEASURED = [
    ("read_small_pages", 1, 5.0),
    ("read_small_pages", 2, 8.0),
    ("read_huge_pages", 2, 10.0),
    ("float32_fma", 2, 100.0),
    ("bfloat16_dot", 2, 50.0),
    ("int8_dot", 2, 400.0),
]
# Two layers of 1,000 weights, an output of 500; attention 4 wide, keys and values 2 wide.
SHAPE = Shape(2, 1000, 500, query_width=4, kv_width=2)


def test_only_steps_in_which_all_ran_are_counted() -> None:
    seen = [
        (0.0, [1, 0]),
        (1.0, [2, 1]),
        (1.5, [3, 2]),
        (2.1, [4, 3]),
        (9.0, [4, 4]),
    ]
    assert steps_between(seen, [4, 4]) == pytest.approx([0.5, 0.6])


def test_an_event_of_two_tokens_is_two_steps() -> None:
    assert steps_between([(0.0, [1]), (1.0, [3])], [9]) == [0.5]


def test_sequences_that_never_ran_together_give_no_figure() -> None:
    with pytest.raises(RuntimeError, match="never ran all at once"):
        steps_between([(0.0, [1, 0]), (1.0, [2, 0]), (2.0, [2, 1])], [2, 2])


def test_a_wrong_number_of_tokens_is_refused() -> None:
    check([3], [([1], 3)])
    with pytest.raises(RuntimeError, match=r"asked for \[3\] tokens, got \[2\]"):
        check([2], [([1], 3)])


def test_a_small_batch_waits_for_memory_and_a_large_one_for_arithmetic() -> None:
    limits = ceilings(MEASURED)
    roofline = Roofline(SHAPE, limits, "bf16")
    # 2,500 weights of two bytes, and ten positions of 16 bytes, at 10 GB/s.
    assert roofline.step([10]) == pytest.approx((5000 + 10 * 16) / 10e9)
    many = 1000
    products, attention = 2 * many * 2500 / 100e9, 4 * many * 10 * 2 * 4 / 100e9
    assert roofline.step([10] * many) == pytest.approx(products + attention)


def test_a_class_has_the_bytes_and_the_products_of_its_own() -> None:
    limits = ceilings(MEASURED)
    by_class = {w: Roofline(SHAPE, limits, w).step([0]) for w in ("bf16", "int8", "int4")}
    assert by_class["int8"] == pytest.approx(by_class["bf16"] / 2)
    assert by_class["int4"] == pytest.approx(by_class["bf16"] * 4.5 / 16)
    assert limits.products == {"bf16": 100e9, "int8": 400e9, "int4": 400e9}


def test_without_integer_instructions_floats_are_the_limit() -> None:
    assert ceilings(MEASURED[:4]).products["int8"] == 100e9


def test_mixed_requests_take_their_prompts_and_as_many_steps_as_the_longest() -> None:
    roofline = Roofline(SHAPE, ceilings(MEASURED), "bf16")
    prompts = [roofline._prompt_products(3), roofline._prompt_products(5)]
    steps = [roofline.step([4, 6]), roofline.step([7])]
    assert roofline.mixed([([0] * 3, 2), ([0] * 5, 3)]) == pytest.approx(sum(prompts + steps))


@pytest.mark.parametrize(("batch", "context"), [(1, 256), (64, 256), (16, 2048)])
def test_decode_requests_meet_for_long_enough_at_the_context(batch: int, context: int) -> None:
    items = decode_items(batch, context)
    assert len(items) == batch
    length, count = len(items[0][0]), items[0][1]
    head_start = count - STEPS
    assert head_start * 512 >= batch * length
    # The middle one is half of the head start ahead when the last one begins.
    assert abs(length + head_start / 2 + STEPS / 2 - context) <= 1
    assert len({tuple(prompt) for prompt, _ in items}) == batch


def test_the_small_model_runs_all_mixed_requests_and_the_large_one_some() -> None:
    assert len(mixed_requests("smollm2")) == 64
    assert sum(count for _, count in mixed_requests("smollm2")) == 6157
    assert mixed_requests("qwen3-0.6b") == mixed_requests("smollm2")[:24]


def test_cells_know_what_they_are() -> None:
    found = cells(["w1", "w2", "w3"], [4], [256])
    single = ["w2", "ttft/128", "ttft/512", "ttft/2048"]
    assert [cell.name for cell in found] == ["w1", *single, "w3/4x256"]
    assert [cell.workload for cell in found] == ["w1"] + ["w2"] * 4 + ["w3"]
    assert Cell("w3/4x256").batch_and_context == (4, 256)


def test_a_shape_is_read_from_the_models_configuration(tmp_path: Path) -> None:
    config = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 4}
    config |= {"num_key_value_heads": 2, "num_hidden_layers": 3, "vocab_size": 10}
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config))
    shape = Shape.read(tmp_path)
    assert shape == Shape(3, 8 * (8 + 4 + 4 + 8) + 3 * 8 * 16, 80, 8, 4)
    assert shape.kv_bytes_per_token == 2 * 2 * 3 * 4


def test_results_are_found_again_and_what_failed_or_was_disturbed_is_known(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    place = Place("headway", "smollm2", "bf16", "w1")
    where = {"kind": "figure", "engine": "headway", "model": "smollm2", "weights": "bf16"}
    results = Results(path)
    assert not results.has(place, 1, quiet=False)
    results.add({**where, "cell": "w1", "round": 1, "figures": {}, "others": 0.1, "steal": 0.1})
    results.add({**where, "cell": "w2", "round": 1, "failed": "took more than 1 s"})
    again = Results(path)
    assert again.has(place, 1, quiet=False)
    assert not again.has(place, 1, quiet=True)
    assert not again.has(place, 2, quiet=False)
    assert again.has(Place("headway", "smollm2", "bf16", "w2"), 2, quiet=True)


def test_figures_on_less_than_two_whole_cores_are_disturbed() -> None:
    assert not is_noisy({"others": 0.1, "steal": 0.01})
    assert not is_noisy({"whole": 0.97})
    assert is_noisy({"whole": 0.5, "others": 0.0, "steal": 0.0})
    assert is_noisy({"whole": 1.0, "others": 0.2})


def test_arrivals_are_the_same_for_all_and_as_many_as_the_rate_says() -> None:
    times = arrivals(5.0, 200.0, seed=1)
    assert times == arrivals(5.0, 200.0, seed=1) == sorted(times)
    assert len(times) == pytest.approx(1000, rel=0.1)
    assert times != arrivals(5.0, 200.0, seed=2)


def test_waits_count_tokens_and_neither_the_end_nor_the_usage() -> None:
    def event(text: str, at_ms: int, reason: str | None = None) -> tuple[bytes, int]:
        choice = {"text": text, "finish_reason": reason}
        return json.dumps({"choices": [choice]}).encode(), at_ms * 1_000_000

    usage = json.dumps({"choices": [], "usage": {"completion_tokens": 3}}).encode()
    events = [event("a", 150), event("", 170), event("b", 200), event("", 201, "length")]
    stream = Stream([*events, (usage, 202_000_000), (b"[DONE]", 203_000_000)], 100_000_000)
    found = waits([stream])
    assert found.first == [50.0]
    assert found.between == [20.0, 30.0]
    assert found.tokens_per_second == pytest.approx(3 / 0.103)


def test_the_99th_percentile_of_few_is_the_worst() -> None:
    assert percentile_99([3.0, 1.0, 2.0]) == 3.0
    assert percentile_99(list(range(200))) == 197


def test_served_figures_say_the_model_and_not_that_of_the_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compare_http, "wait_for_quiet", lambda: None)
    monkeypatch.setattr(compare_http, "make_setup", lambda *_: None)
    monkeypatch.setattr(compare_http, "serving", lambda *_: contextlib.nullcontext((1, 2)))
    monkeypatch.setattr(Load, "run", lambda *_, **__: Waits([5.0], [2.0], 9.0))
    chosen = {"model": "smollm2", "weights": "bf16", "rounds": 1, "shares": [0.5]}
    chosen |= {"results": tmp_path / "served.jsonl", "seconds": 1.0, "capacity": 10.0}
    compare_http.compare(Namespace(**chosen, highest=False, log=None), {"vllm": "python"})
    results = Results(tmp_path / "served.jsonl")
    (figure,) = results.of_kind("served")
    (run,) = results.of_kind("run")
    assert (figure["model"], figure["engine"]) == ("smollm2", "vllm")
    assert run["model"] != "smollm2"
    assert run["commit"] == figure["commit"]
    assert "| smollm2 | bf16 | 0.5 | vllm | 1 | 9.0 |" in list(compare_http.table(results))[-1]
