"""Bad arguments get a sentence, from every backend; nothing crashes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from headway.ops.cpu.backend import CpuOps
from headway.ops.select import choose
from tests.ops.paged import make_world


def f32(*shape):
    return np.zeros(shape, np.float32)


def i32(*values):
    return np.array(values, np.int32)


def read_only(array):
    array.flags.writeable = False
    return array


BAD_CALLS = {
    "x has another width": (lambda o, w: o.linear(f32(2, 5), w, f32(2, 3)), "x must have shape"),
    "out has another width": (lambda o, w: o.linear(f32(2, 4), w, f32(2, 4)), "out must have"),
    "out has other rows": (lambda o, w: o.linear(f32(2, 4), w, f32(1, 3)), "out must have"),
    "x is float64": (
        lambda o, w: o.linear(np.zeros((2, 4)), w, f32(2, 3)),
        "x must be a float32 array, got float64",
    ),
    "x is big-endian": (
        lambda o, w: o.linear(np.zeros((2, 4), ">f4"), w, f32(2, 3)),
        "x must be a float32 array, got >f4",
    ),
    "x is a list": (lambda o, w: o.linear([[1.0]], w, f32(1, 3)), "x must be a"),
    "x is strided": (lambda o, w: o.linear(f32(4, 4)[::2], w, f32(2, 3)), "C-contiguous"),
    "x is transposed": (lambda o, w: o.linear(f32(4, 2).T, w, f32(2, 3)), "C-contiguous"),
    "another layout": (
        lambda o, w: o.linear(f32(2, 4), dataclasses.replace(w, layout="odd"), f32(2, 3)),
        "the weight is packed as 'odd'",
    ),
    "weight has one axis": (lambda o, w: o.pack_linear(f32(4), None, "float32"), "out_features"),
    "weight is empty": (lambda o, w: o.pack_linear(f32(0, 4), None, "float32"), "out_features"),
    "weight is int": (lambda o, w: o.pack_linear(i32(1), None, "float32"), "must be a float32"),
    "weight as float16": (lambda o, w: o.pack_linear(f32(3, 4), None, "float16"), "'float16'"),
    "bias is short": (lambda o, w: o.pack_linear(f32(3, 4), f32(2), "float32"), "bias must have"),
    "id too large": (lambda o, w: o.embed(f32(5, 4), i32(5), f32(1, 4)), r"\[0, 5\), got 5"),
    "id negative": (lambda o, w: o.embed(f32(5, 4), i32(-1), f32(1, 4)), r"\[0, 5\), got -1"),
    "ids are int64": (
        lambda o, w: o.embed(f32(5, 4), np.zeros(1, np.int64), f32(1, 4)),
        "token_ids must be a int32 array, got int64",
    ),
    "norm weight": (lambda o, w: o.rms_norm(f32(2, 4), f32(3), 1e-5, f32(2, 4)), "weight must"),
    "gate width": (lambda o, w: o.silu_mul(f32(2, 6), f32(2, 4)), "gate_up must have shape"),
    "argmax out": (lambda o, w: o.argmax(f32(2, 4), i32(0)), "out must have shape"),
    "argmax of nothing": (lambda o, w: o.argmax(f32(2, 0), i32(0, 0)), "at least one column"),
    "log_softmax out": (lambda o, w: o.log_softmax(f32(2, 4), f32(2, 5)), "out must have shape"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_calls_get_a_sentence(any_ops, case):
    call, sentence = BAD_CALLS[case]
    weight = any_ops.pack_linear(f32(3, 4), None, "float32")
    with pytest.raises((ValueError, TypeError), match=sentence):
        call(any_ops, weight)


def test_overlapping_input_and_output_are_refused(any_ops):
    weight = any_ops.pack_linear(f32(4, 4), None, "float32")
    both = f32(2, 4)
    with pytest.raises(ValueError, match="must not overlap"):
        any_ops.linear(both, weight, both)


def test_read_only_results_are_refused_and_inputs_are_not(ops):
    weight = ops.pack_linear(read_only(f32(3, 4)), None, "bfloat16")
    ops.linear(read_only(f32(2, 4)), weight, f32(2, 3))
    with pytest.raises(ValueError, match="out must be writable"):
        ops.linear(f32(2, 4), weight, read_only(f32(2, 3)))


def test_a_short_packed_weight_is_refused(ops):
    weight = ops.pack_linear(f32(3, 4), None, "bfloat16")
    short = dataclasses.replace(weight, data=weight.data[:-1])
    with pytest.raises(ValueError, match="data must have shape"):
        ops.linear(f32(2, 4), short, f32(2, 3))
    with pytest.raises(ValueError, match="data must have shape"):
        ops.linear(f32(2, 4), dataclasses.replace(weight, out_features=300), f32(2, 300))


@pytest.mark.parametrize("out_features", [0, 1 << 60])
def test_a_weight_of_no_rows_or_too_many_is_refused(ops, out_features):
    weight = ops.pack_linear(f32(3, 4), None, "float32")
    empty = dataclasses.replace(weight, data=weight.data[:0], out_features=out_features)
    with pytest.raises(ValueError, match="a weight has 1 to"):
        ops.linear(f32(2, 4), empty, f32(2, 0))


def test_zero_rows_do_nothing(any_ops):
    weight = any_ops.pack_linear(f32(3, 4), None, "bfloat16")
    any_ops.linear(f32(0, 4), weight, f32(0, 3))
    any_ops.embed(f32(5, 4), i32(), f32(0, 4))
    any_ops.rms_norm(f32(0, 4), f32(4), 1e-5, f32(0, 4))
    any_ops.silu_mul(f32(0, 8), f32(0, 4))
    any_ops.argmax(f32(0, 4), i32())
    any_ops.log_softmax(f32(0, 4), f32(0, 4))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
def test_nan_comes_out_as_nan(any_ops, dtype):
    x = np.full((3, 40), np.nan, np.float32)
    weight = any_ops.pack_linear(f32(5, 40) + 1, None, dtype)
    out = f32(3, 5)
    any_ops.linear(x, weight, out)
    assert np.isnan(out).all()
    any_ops.rms_norm(x, f32(40) + 1, 1e-5, x)
    assert np.isnan(x).all()
    halves = f32(3, 20)
    any_ops.silu_mul(x, halves)
    assert np.isnan(halves).all()


def attend(world, **changes):
    batch, qkv = world.batch([(0, 0, 20)])
    arguments = {"num_heads": 3, "scale": 0.25, "window": 0, "out": f32(20, 48), "layer": 1}
    arguments |= {key: value for key, value in changes.items() if key in arguments}
    fields = {key: value for key, value in changes.items() if key not in arguments}
    layer = arguments.pop("layer")
    batch = dataclasses.replace(batch, **fields)
    world.ops.paged_attention(qkv, world.cache, layer, batch, **arguments)


BAD_BATCHES = {
    "layer too large": ({"layer": 2}, "layer must lie in"),
    "layer negative": ({"layer": -1}, "layer must lie in"),
    "window negative": ({"window": -1}, "window must be at least 0"),
    "heads not a multiple": ({"num_heads": 0}, "num_heads must be a positive multiple"),
    "too many heads": ({"num_heads": 4}, "qkv must have shape"),
    "block outside": ({"block_tables": i32(0, 99)[None]}, "block ids must lie in"),
    "block missing": ({"block_tables": i32(0, -1)[None]}, "block ids must lie in"),
    "table too short": ({"block_tables": i32(0)[None]}, "needs 2 blocks"),
    "chunks do not cover": ({"chunk_starts": i32(0, 19)}, "must run from 0"),
    "chunks start late": ({"chunk_starts": i32(1, 20)}, "must run from 0"),
    "chunks fall": (
        {"chunk_starts": i32(0, 30, 20), "block_tables": np.zeros((2, 9), np.int32)},
        "must not fall|must rise",
    ),
    "position negative": (
        {"positions": np.arange(-1, 19, dtype=np.int32)},
        "positions (in a chunk must rise|must be at least 0)",
    ),
    "positions jump": ({"positions": i32(*range(19), 30)}, "must rise by one"),
    "positions are int64": ({"positions": np.arange(20)}, "positions must be a int32 array"),
    "out is short": ({"out": f32(20, 47)}, "out must have shape"),
}


@pytest.mark.parametrize("case", BAD_BATCHES)
def test_bad_batches_get_a_sentence(any_ops, case):
    changes, sentence = BAD_BATCHES[case]
    with pytest.raises((ValueError, TypeError), match=sentence):
        attend(make_world(any_ops, 2, (20,), dtype="bfloat16"), **changes)


@pytest.mark.parametrize(
    ("position", "kv_row", "sentence"),
    [
        (-1, 0, "positions must lie in"),
        (8, 0, "positions must lie in"),
        (0, -1, "kv_rows must lie in"),
        (0, 64, "kv_rows must lie in"),
    ],
)
def test_rope_stays_inside_its_tables_and_cache(any_ops, position, kv_row, sentence):
    cache = any_ops.new_kv_cache(1, 4, 16, 1, 8, "bfloat16")
    table = f32(8, 4)
    with pytest.raises(ValueError, match=sentence):
        any_ops.rope_and_store(
            f32(1, 24), i32(position), np.array([kv_row]), table, table, cache, 0, num_heads=1
        )
    assert not cache.keys.any()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"block_size": 24}, "block_size must be a multiple of 16, got 24"),
        ({"block_size": 0}, "block_size must be a multiple of 16"),
        ({"head_dim": 7}, "head_dim must be even"),
        ({"dtype": "float16"}, "not 'float16'"),
        ({"num_blocks": 0}, "at least one"),
    ],
)
def test_impossible_caches_are_refused(any_ops, changes, sentence):
    sizes = {"num_layers": 1, "num_blocks": 2, "block_size": 16, "num_kv_heads": 1, "head_dim": 8}
    with pytest.raises(ValueError, match=sentence):
        any_ops.new_kv_cache(**(sizes | {"dtype": "bfloat16"} | changes))


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        (1, -0.5, "temperature must"),
        (1, np.nan, "temperature must"),
        (2, -1, "top_k must"),
        (3, 0.0, "top_p must"),
        (3, 1.5, "top_p must"),
        (4, -0.1, "min_p must"),
        (4, np.nan, "min_p must"),
    ],
)
def test_bad_sampling_parameters_are_refused(any_ops, column, value, sentence):
    arguments = [f32(1, 9), f32(1) + 1, i32(0), f32(1) + 1, f32(1), np.zeros(1, np.uint64)]
    arguments[column][0] = value
    with pytest.raises(ValueError, match=sentence):
        any_ops.sample(*arguments, np.zeros(1, np.int64), i32(0))


def test_unknown_instruction_sets_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match="there is no instruction set 'sse9'"):
        CpuOps("sse9")
    with pytest.raises(ValueError, match="num_threads must be at least 1"):
        CpuOps(num_threads=0)
    with pytest.raises(ValueError, match="num_threads must be at most"):
        CpuOps("portable", num_threads=10**6)


def test_choice_follows_the_wish_and_the_environment(monkeypatch):
    monkeypatch.delenv("HEADWAY_ISA", raising=False)
    assert choose("reference")[0].name == "reference"
    assert choose("cpu/portable")[0].name == "cpu/portable"
    assert "best" in choose()[1]
    monkeypatch.setenv("HEADWAY_ISA", "portable")
    ops, reason = choose(num_threads=1)
    assert ops.name == "cpu/portable"
    assert "HEADWAY_ISA" in reason
