"""Pages as they really are: renamed, of several engines, started again, garbled, hostile."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.insight.doctor.diagnose import diagnose
from headway.insight.doctor.findings import Confidence, Wall
from headway.insight.doctor.page import MAX_SAMPLES, Page, read_page
from headway.insight.doctor.pages import observe_pages
from headway.insight.doctor.readings import Distribution, Reading
from tests.insight.doctor.foreign import Seen, vllm, vllm_old
from tests.insight.doctor.foreign_situations import BUSY, steady


def readings(*texts: str, seconds: float = 10.0) -> tuple[Reading, ...]:
    pages = [(read_page(text), 100 + seconds * n) for n, text in enumerate(texts)]
    return observe_pages(pages, "pages").readings


def test_former_and_present_names_are_read_alike() -> None:  # P61
    seen = Seen([9, 9, 9], [3, 4, 5], [0.5, 0.6, 0.7], **BUSY)
    old, new = (observe_pages(seen.looks(write), "pages").readings for write in (vllm_old, vllm))
    assert old == new
    assert new[-1].kv_usage == 0.7
    assert new[-1].num_output_tokens == pytest.approx(1200 * 5)


def test_what_is_absent_is_not_zero() -> None:
    [reading] = readings("vllm:num_requests_running 3\n")
    assert reading.num_running == 3
    assert reading.num_waiting is None
    assert reading.num_preemptions is None
    assert reading.kv_usage is None
    assert reading.ended is None


def test_a_name_that_begins_alike_is_another_one() -> None:
    [reading] = readings(
        'vllm:num_requests_waiting_by_reason{reason="capacity"} 7\n'
        "vllm:num_requests_waiting_total_ever 9\n"
        "vllm:num_requests_running 1\n"
    )
    assert reading.num_waiting is None


def test_engines_are_summed_and_their_caches_weighed_by_size() -> None:
    text = "".join(
        f'vllm:num_requests_running{{engine="{engine}",model_name="m"}} {running}\n'
        f'vllm:kv_cache_usage_perc{{engine="{engine}",model_name="m"}} {usage}\n'
        f'vllm:cache_config_info{{engine="{engine}",block_size="16",num_gpu_blocks="{blocks}"}} 1\n'
        for engine, running, usage, blocks in ((0, 10, 0.9, 1000), (1, 2, 0.1, 3000))
    )
    [reading] = readings(text)
    assert reading.num_engines == 2
    assert reading.num_running == 12
    assert reading.kv_usage == pytest.approx((0.9 * 1000 + 0.1 * 3000) / 4000)
    assert reading.num_kv_tokens == 64_000


def test_parts_of_a_model_are_not_engines() -> None:
    text = "".join(
        f'sglang:num_running_reqs{{model_name="m",tp_rank="{rank}"}} 5\n' for rank in range(4)
    )
    [reading] = readings(text)
    assert (reading.num_engines, reading.num_running) == (1, 5)


def test_counts_that_fell_are_left_out_and_told() -> None:
    before = "vllm:generation_tokens_total 900\nvllm:num_requests_running 1\n"
    after = "vllm:generation_tokens_total 40\nvllm:num_requests_running 1\n"
    observation = observe_pages([(read_page(before), 0.0), (read_page(after), 10.0)], "pages")
    assert observation.readings[1].restarted
    assert observation.readings[1].num_output_tokens is None
    assert any("started again" in note for note in observation.notes)


def test_one_engine_that_restarts_behind_others_is_seen() -> None:
    def page(first: int, second: int) -> str:
        return "".join(
            f'vllm:{name}{{engine="{engine}"}} {value}\n'
            for engine, value in ((0, first), (1, second))
            for name in ("generation_tokens_total", "num_requests_running")
        )

    [_, reading] = readings(page(1000, 500), page(3000, 10))  # the sum rises
    assert reading.restarted
    assert reading.num_output_tokens is None


def test_the_latest_set_of_adapters_counts() -> None:
    text = "".join(
        f'vllm:lora_requests_info{{max_lora="2",running_lora_adapters="{running}",'
        f'waiting_lora_adapters="{waiting}"}} {at}\n'
        for running, waiting, at in (("a,b", "c", 1.79e9), ("c", "", 1.8e9))
    )
    [reading] = readings("vllm:num_requests_running 1\n" + text)
    assert reading.adapters_running == ("c",)
    assert reading.adapters_waiting == ()


def test_colons_may_have_become_underscores() -> None:
    [reading] = readings("vllm_num_requests_waiting 4\nvllm_num_requests_running 2\n")
    assert reading.num_waiting == 4


def test_labels_with_braces_quotes_and_timestamps() -> None:
    [reading] = readings(
        'vllm:num_requests_running{model_name="a}\\"b,{c=\\"d"} 3 1720000000000\n'
        'vllm:num_requests_waiting{model_name="a}\\"b,{c=\\"d"} 2 # {trace_id="x"} 1 2\n'
    )
    assert (reading.num_running, reading.num_waiting) == (3, 2)


def test_no_numbers_are_no_samples() -> None:
    [reading] = readings(
        "vllm:num_requests_running 1\nvllm:num_requests_waiting NaN\n"
        "vllm:num_preemptions_total -3\n"
    )
    assert reading.num_waiting is None
    assert reading.num_preemptions is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no metrics of"),
        ("<html>hello</html>", "web page"),
        ("http_requests_total 5\n", "no metrics of"),
        ("vllm:num_requests_running oops\n", "none can be read"),
    ],
)
def test_pages_that_are_none_are_refused_with_a_sentence(text: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        read_page(text)


def test_pages_of_two_servers_are_refused() -> None:
    pages = [(read_page(f"{name} 1\n"), at) for at, name in enumerate(("tgi_queue_size", "vllm:x"))]
    with pytest.raises(ValueError, match="different servers"):
        observe_pages(pages, "pages")


def test_a_page_without_end_and_one_of_too_many_engines_are_refused() -> None:
    with pytest.raises(ValueError, match="not the page of one server"):
        read_page("vllm:x 1\n" * (MAX_SAMPLES + 1))
    many = "".join(f'vllm:num_requests_running{{engine="{n}"}} 1\n' for n in range(300))
    with pytest.raises(ValueError, match="one server at a time"):
        readings(many)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(["vllm:num_requests_running", "{", '"', "\\", " ", "}", "1", "\n"]))
)
def test_garbage_is_refused_or_read_and_nothing_else(parts: list[str]) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(read_page("".join(parts)), Page)


def test_a_quantile_lies_on_the_line_within_its_bucket() -> None:
    part = Distribution(10, 12.0, (1.0, 2.0, float("inf")), (4.0, 8.0, 10.0))
    assert part.quantile(0.5) == pytest.approx(1.25)
    assert part.quantile(0.99) == 2.0
    assert part.mean == 1.2


# ---- Faults of other engines (docs/faults.md) ----


def test_cached_blocks_that_nobody_holds_are_no_memory_wall() -> None:  # P59
    text = (
        "vllm:num_requests_running 2\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.02\n"
        'headway:blocks{state="cached"} 980\nheadway:resident_tokens 300\n'
    )
    diagnosis = diagnose(observe_pages([(read_page(text), 0.0)], "page"))
    assert diagnosis.wall is not Wall.KV_MEMORY
    assert "KV cache: 2.0% held by running requests, 300 tokens resident" in diagnosis.evidence


def test_resident_tokens_are_read_not_added_up_from_counters() -> None:  # P72
    text = (
        "vllm:num_requests_running 1\nheadway:resident_tokens 120\n"
        "vllm:prompt_tokens_total 1e6\nvllm:generation_tokens_total 1e6\n"
    )
    [reading] = readings(text)
    assert reading.num_resident_tokens == 120


def test_a_single_page_of_a_full_server_is_enough_for_a_guess_and_no_more() -> None:
    seen = Seen([256], [40], [0.4], **BUSY)
    diagnosis = diagnose(observe_pages(seen.looks(vllm), "page"))
    assert (diagnosis.wall, diagnosis.confidence) == (Wall.SLOTS, "low")


def test_a_server_told_of_its_slots_is_believed() -> None:
    import dataclasses

    seen = Seen([60, 61, 59, 60], steady(9, 4), steady(0.5, 4), **BUSY)
    observation = observe_pages(seen.looks(vllm), "pages")
    told = tuple(dataclasses.replace(r, max_num_seqs=60) for r in observation.readings)
    diagnosis = diagnose(dataclasses.replace(observation, readings=told))
    assert (diagnosis.wall, diagnosis.confidence) == (Wall.SLOTS, "high")
    [change] = diagnosis.changes
    assert (change.before, change.after) == ("60", "70")


def llama(running: int, steps: str, prompt: str, output: str, cached: str = "0") -> str:
    return (
        f"llamacpp:requests_processing {running}\nllamacpp:requests_deferred 0\n"
        f"llamacpp:n_decode_total {steps}\nllamacpp:prompt_tokens_total {prompt}\n"
        f"llamacpp:prompt_tokens_cached_total {cached}\nllamacpp:tokens_predicted_total {output}\n"
    )


def test_tokens_that_count_when_a_request_ends_are_not_0_before_that() -> None:
    looks = [llama(2, str(10 * n), "64", "0") for n in range(4)]
    diagnosis = diagnose(observe_pages([(read_page(t), 10.0 * n) for n, t in enumerate(looks)], ""))
    assert diagnosis.wall is Wall.DECODE
    assert not any("output tokens" in line or "a step" in line for line in diagnosis.evidence)
    *_, ended = readings(looks[0], llama(2, "30", "64", "80"))
    assert ended.num_output_tokens == 80


def test_of_counts_printed_with_six_digits_a_small_change_is_not_seen() -> None:
    """After weeks the last digit stands for a thousand steps; nothing is stuck for that."""
    looks = [llama(4, "1.23457e+08", "8.1e+08", "5.5e+07")] * 4
    pages = [(read_page(text), 40.0 * n) for n, text in enumerate(looks)]
    assert diagnose(observe_pages(pages, "")).wall is not Wall.STUCK
    small = [(read_page(llama(4, "1234", "810", "550")), 40.0 * n) for n in range(4)]
    assert diagnose(observe_pages(small, "")).wall is Wall.STUCK
    *_, seen = readings(looks[0], llama(4, "1.23557e+08", "8.1e+08", "5.5e+07"))
    assert seen.num_steps == 100_000
    assert seen.num_prompt_tokens is None


def test_prompt_tokens_are_those_of_the_cache_as_well_whoever_counts_them_apart() -> None:
    *_, reading = readings(llama(0, "5", "64", "8", "10"), llama(0, "9", "74", "16", "150"))
    assert (reading.num_prompt_tokens, reading.num_cached_tokens) == (150, 140)


@pytest.mark.parametrize(
    ("running", "is_at_cap"), [([4, 4, 3, 4, 4, 4, 0, 0], True), ([4, 4, 3, 4, 1, 4, 4, 4], False)]
)
def test_the_slot_cap_counts_while_somebody_waits(running: list[float], is_at_cap: bool) -> None:
    """Between one that ends and the next that is admitted a slot of few is free for a moment."""
    seen = Seen(running, [9] * 6 + [0, 0], steady(0.1, 8), **BUSY)
    observation = observe_pages(seen.looks(vllm), "pages")
    told = tuple(dataclasses.replace(r, max_num_seqs=4) for r in observation.readings)
    diagnosis = diagnose(dataclasses.replace(observation, readings=told))
    assert (diagnosis.wall is Wall.SLOTS) == is_at_cap


def test_what_the_cache_was_sized_by_is_what_is_to_be_changed() -> None:
    page = (
        "vllm:num_requests_running 9\nvllm:num_requests_waiting 9\nvllm:kv_cache_usage_perc 0.99\n"
        'vllm:cache_config_info{num_gpu_blocks_override="40",kv_cache_memory_bytes="None"} 1\n'
    )
    diagnosis = diagnose(observe_pages([(read_page(page), 2.0 * n) for n in range(4)], ""))
    assert diagnosis.changes[0].what == "--num-gpu-blocks-override"


def test_a_first_step_that_takes_long_is_not_a_stuck_engine() -> None:
    """A server that has just started compiles, or computes a long prompt, and has no usual gap."""
    for seconds, wall in ((20.0, Wall.PREFILL), (70.0, Wall.STUCK)):
        seen = Seen(steady(1), steady(0), steady(0.1), seconds=seconds)
        diagnosis = diagnose(observe_pages(seen.looks(vllm), "pages"))
        assert diagnosis.wall is wall
        assert (diagnosis.confidence is Confidence.LOW) == (wall is Wall.PREFILL)
