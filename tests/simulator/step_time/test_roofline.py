"""The roofline: what it counts, and how that makes a step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.simulator.step_time.base import PlacedChunk, StepShape, shape_of
from headway.simulator.step_time.hardware import hardware_named
from headway.simulator.step_time.models import shape_named
from headway.simulator.step_time.roofline import RooflineModel, roofline

LLAMA, H100 = shape_named("Llama-3-8B"), hardware_named("h100")
DECODES = shape_of(PlacedChunk(1000 + i, 1, 100, True) for i in range(8))
PROMPT = shape_of([PlacedChunk(0, 2048, 2048, True)])


def test_terms_are_bytes_and_operations_over_what_is_got():
    terms = roofline(LLAMA, H100).terms_ns(DECODES)
    read = H100.memory_bytes_per_second * 0.8 / 1e9
    assert terms["weights"] == pytest.approx((8_030_261_248 - 128256 * 4096) * 2 / read)
    assert terms["kv"] == pytest.approx(131_072 * DECODES.decode_attended / read)
    done = 989e12 * 0.7 / 1e9
    pairs = 4 * 32 * 4096 * DECODES.decode_attended
    assert terms["attention"] == pytest.approx(pairs / done)
    assert terms["products"] == pytest.approx(
        8 * (LLAMA.flops_per_token + LLAMA.flops_per_sample) / done
    )
    assert terms["overhead"] == H100.overhead_ns


@pytest.mark.parametrize("shape", [DECODES, PROMPT], ids=["decodes", "prompt"])
def test_ways_to_combine_are_ordered(shape):
    """Whatever overlaps can only help."""
    times = {
        how: roofline(LLAMA, H100, combine=how).step_ns(shape) for how in ("max", "parts", "sum")
    }
    assert times["max"] <= times["parts"] <= times["sum"]
    terms = roofline(LLAMA, H100).terms_ns(shape)
    assert times["sum"] == pytest.approx(sum(terms.values()), abs=1)
    memory, compute = terms["weights"] + terms["kv"], terms["products"] + terms["attention"]
    assert times["max"] == pytest.approx(max(memory, compute) + terms["overhead"], abs=1)


def test_decodes_are_bound_by_memory_and_prompts_by_arithmetic():
    model = roofline(LLAMA, H100)
    for shape, bound in ((DECODES, "weights"), (PROMPT, "products")):
        terms = dict(model.terms_ns(shape))
        terms.pop("overhead")
        assert max(terms, key=terms.__getitem__) == bound


def test_attention_of_a_prompt_is_quadratic_and_chunks_of_it_cost_the_same():
    model = roofline(LLAMA, H100)
    whole = model.terms_ns(PROMPT)["attention"]
    halves = [PlacedChunk(0, 1024, 2048, False), PlacedChunk(1024, 1024, 2048, True)]
    assert sum(model.terms_ns(shape_of([h]))["attention"] for h in halves) == pytest.approx(whole)
    twice = model.terms_ns(shape_of([PlacedChunk(0, 4096, 4096, True)]))["attention"]
    assert twice / whole == pytest.approx(4, rel=1e-3)


def test_experts_are_read_as_tokens_reach_them():
    model = roofline(shape_named("Mixtral-8x7B"), H100)
    sizes = [1, 2, 8, 64, 4096]
    read = [model.terms_ns(StepShape(num_decode_tokens=size))["weights"] for size in sizes]
    assert read == sorted(read)
    dense = model.weight_bytes / model.bytes_per_second * 1e9
    experts = model.expert_bytes / model.bytes_per_second * 1e9
    assert read[0] == pytest.approx(dense + experts / 4)
    assert read[-1] == pytest.approx(dense + experts)


def test_tensor_parallelism_is_a_divisor_of_all_but_overhead():
    one, four = roofline(LLAMA, H100), roofline(LLAMA, H100, tensor_parallel=4)
    for name, whole in one.terms_ns(DECODES).items():
        share = four.terms_ns(DECODES)[name]
        assert share == pytest.approx(whole if name == "overhead" else whole / 4)
    with pytest.raises(ValueError, match="cannot be divided among 5"):
        roofline(LLAMA, H100, tensor_parallel=5)


def test_smaller_weights_are_read_faster_and_multiplied_in_what_the_hardware_has():
    bf16, int4 = roofline(LLAMA, H100), roofline(LLAMA, H100, weight_dtype="int4")
    assert int4.weight_bytes == pytest.approx(bf16.weight_bytes * 4.5 / 16)
    assert int4.flops_per_second == bf16.flops_per_second
    fp8 = roofline(LLAMA, H100, weight_dtype="fp8")
    assert fp8.flops_per_second == pytest.approx(bf16.flops_per_second * 1979 / 989)


def test_efficiencies_and_overhead_can_be_changed():
    ideal = replace(H100, compute_efficiency=1.0, memory_efficiency=1.0, overhead_ns=0.0)
    model = roofline(LLAMA, ideal)
    assert (model.bytes_per_second, model.flops_per_second) == (3.35e12, 989e12)
    assert model.step_ns(StepShape()) == round(model.weight_bytes / 3.35e12 * 1e9)


@given(
    st.builds(
        StepShape,
        *(st.integers(0, 10**6) for _ in range(7)),
    )
)
def test_more_work_never_takes_less_time(shape):
    model = roofline(LLAMA, H100)
    more = StepShape(*(count + 1 for count in shape))
    assert 1 <= model.step_ns(shape) <= model.step_ns(more)


def test_nothing_takes_at_least_a_nanosecond():
    free = RooflineModel(
        weight_bytes=0, flops_per_token=0, bytes_per_second=1.0, flops_per_second=1.0
    )
    assert free.step_ns(StepShape()) == 1


@pytest.mark.parametrize(
    "change", [{"combine": "min"}, {"bytes_per_second": 0.0}, {"expert_share": 2.0}]
)
def test_impossible_numbers_are_refused(change):
    with pytest.raises(ValueError, match="must be"):
        replace(roofline(LLAMA, H100), **change)
