"""A whole pass at once: the bits of operation by operation, and refusals before it runs."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from headway.ops.catalog import normal
from headway.ops.cpu import _native
from headway.ops.cpu.backend import CpuOps
from headway.ops.interface import TokenBatch
from headway.ops.program import (
    Embed,
    Heads,
    Linear,
    PagedAttention,
    PickLogitRows,
    Program,
    RmsNorm,
    RopeAndStore,
    Rotation,
    SiluMul,
)
from headway.ops.stepwise import StepwisePass
from tests.ops.comparing import assert_same_bits

WIDTH, INNER, HEADS, POSITIONS = 48, 80, Heads(4, 2, 16), 64
QKV = (HEADS.num_heads + 2 * HEADS.num_kv_heads) * HEADS.head_dim


def two_layers(ops, dtype) -> Program:
    rng = np.random.default_rng(3)

    def weight(n, k):
        return ops.pack_linear(normal(rng, n, k) / np.float32(k**0.5), normal(rng, n), dtype)

    program = Program()
    x, normed, qkv = (program.buffer(size) for size in (WIDTH, WIDTH, QKV))
    attended, gate_up = program.buffer(HEADS.num_heads * HEADS.head_dim), program.buffer(2 * INNER)
    inner, picked, result = program.buffer(INNER), program.buffer(WIDTH), program.buffer(WIDTH)
    program.add(Embed(normal(rng, 32, WIDTH), x))
    for layer in (0, 1):
        program.add(RmsNorm(x, normal(rng, WIDTH), 1e-5, normed))
        program.add(Linear(normed, weight(QKV, WIDTH), qkv))
        program.add(
            RopeAndStore(
                qkv=qkv,
                layer=layer,
                heads=HEADS,
                rotates=layer == 0,
                q_norm=normal(rng, HEADS.head_dim) if layer else None,
            )
        )
        program.add(
            PagedAttention(
                qkv=qkv, layer=layer, heads=HEADS, scale=0.25, window=9 * layer, out=attended
            )
        )
        program.add(Linear(attended, weight(WIDTH, attended.columns), x, accumulate=True))
        program.add(RmsNorm(x, normal(rng, WIDTH), 1e-5, normed))
        program.add(Linear(normed, weight(2 * INNER, WIDTH), gate_up))
        program.add(SiluMul(gate_up, inner))
        program.add(Linear(inner, weight(WIDTH, INNER), x, accumulate=True))
    program.add(PickLogitRows(x, picked))
    program.add(RmsNorm(picked, normal(rng, WIDTH), 1e-5, result))
    return program


def batch_of(lengths, logit_rows) -> TokenBatch:
    """Sequences of these lengths from position 0 on, two blocks of 16 for each."""
    positions = np.concatenate([np.arange(n, dtype=np.int32) for n in lengths])
    tables = np.arange(2 * len(lengths), dtype=np.int32).reshape(len(lengths), 2)
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return TokenBatch(
        token_ids=(positions * 7 + owner).astype(np.int32) % 32,
        positions=positions,
        kv_rows=(tables[owner, positions // 16] * 16 + positions % 16).astype(np.int64),
        chunk_starts=starts,
        block_tables=tables,
        logit_rows=np.array(logit_rows, np.int32),
    )


def rotation() -> Rotation:
    angles = np.outer(np.arange(POSITIONS), 1 / 10 ** np.arange(4)).astype(np.float32)
    ones, zeros = np.ones_like(angles), np.zeros_like(angles)
    return Rotation(np.cos(angles), np.sin(angles), ones, zeros)


def run(forward_pass, ops, batch, dtype):
    kv_dtype = "float32" if dtype == "float32" else "bfloat16"
    cache = ops.new_kv_cache(2, 8, 16, HEADS.num_kv_heads, HEADS.head_dim, kv_dtype)
    out = np.full((len(batch.logit_rows), WIDTH), np.nan, np.float32)
    forward_pass.run(batch, cache, rotation(), out)
    return out, cache


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_the_bits_of_one_operation_after_the_other(ops, dtype):
    program = two_layers(ops, dtype)
    whole, stepwise = ops.compile(program), StepwisePass(program, ops)
    steps = [([1], [0]), ([20, 1, 31], [19, 20, 51]), ([3], []), ([2, 2], [3, 0, 0])]
    steps.append(([2], [1, 0, 1, 1, 0]))  # more rows wanted than there are tokens
    for lengths, rows in steps:
        batch = batch_of(lengths, rows)
        found, cache = run(whole, ops, batch, dtype)
        expected, expected_cache = run(stepwise, ops, batch, dtype)
        assert_same_bits(found, expected)
        assert_same_bits(cache.keys, expected_cache.keys)
        assert_same_bits(cache.values, expected_cache.values)
        assert not np.isnan(found).any()


@pytest.mark.parametrize("num_threads", [1, 2, 3, 16])
def test_any_number_of_threads(num_threads):
    ops, alone = CpuOps(num_threads=num_threads), CpuOps(num_threads=1)
    batch = batch_of([20, 1, 31, 7], [19, 20, 51, 58])
    found, _ = run(ops.compile(two_layers(ops, "bfloat16")), ops, batch, "bfloat16")
    expected, _ = run(alone.compile(two_layers(alone, "bfloat16")), alone, batch, "bfloat16")
    assert_same_bits(found, expected)


def test_passes_of_several_callers_take_turns():
    ops = CpuOps(num_threads=3)
    batch = batch_of([20, 1, 31], [19, 20, 51])
    expected, _ = run(ops.compile(two_layers(ops, "bfloat16")), ops, batch, "bfloat16")
    wrong = []

    def call_often():
        own = ops.compile(two_layers(ops, "bfloat16"))
        found = [run(own, ops, batch, "bfloat16")[0] for _ in range(50)]
        wrong.extend(f for f in found if f.tobytes() != expected.tobytes())

    callers = [threading.Thread(target=call_often) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_one_pass_on_two_threads_is_right_or_refused():
    ops = CpuOps(num_threads=2)
    forward_pass, batch = ops.compile(two_layers(ops, "bfloat16")), batch_of([20, 1], [19, 20])
    expected, _ = run(forward_pass, ops, batch, "bfloat16")
    wrong = []

    def call_often():
        for _ in range(50):
            try:
                found, _ = run(forward_pass, ops, batch, "bfloat16")
            except ValueError as error:
                found = expected if "in use by another thread" in str(error) else None
            if found is None or found.tobytes() != expected.tobytes():
                wrong.append(found)

    callers = [threading.Thread(target=call_often) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_a_forked_child_runs_a_pass_alone():
    ops = CpuOps(num_threads=3)
    forward_pass, batch = ops.compile(two_layers(ops, "int8")), batch_of([20, 1], [19, 20])
    expected, _ = run(forward_pass, ops, batch, "int8")
    child = os.fork()
    if child == 0:
        found, _ = run(forward_pass, ops, batch, "int8")
        os._exit(0 if found.tobytes() == expected.tobytes() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_times_by_kind_of_operation():
    ops = CpuOps(num_threads=2)
    forward_pass = ops.compile(two_layers(ops, "bfloat16"))
    batch = batch_of([20, 1], [19, 20])
    run(forward_pass, ops, batch, "bfloat16")
    assert not any(forward_pass.take_times_ns().values())
    forward_pass.measure_time(True)
    run(forward_pass, ops, batch, "bfloat16")
    times = forward_pass.take_times_ns()
    assert {"embed", "rms_norm", "linear", "rope_and_store", "paged_attention", "silu_mul"} <= {
        name for name, spent in times.items() if spent > 0
    }
    assert not any(forward_pass.take_times_ns().values())


@pytest.mark.parametrize(
    ("field", "values", "sentence"),
    [
        ("token_ids", [0, 32], "token_ids must lie in"),
        ("positions", [0, 64], "rise by one"),
        ("kv_rows", [0, 128], "kv_rows must lie in"),
        ("logit_rows", [2], "logit_rows must lie in"),
        ("block_tables", [[9, 1]], "block ids must lie in"),
        ("chunk_starts", [0, 1], "chunk_starts must run from 0"),
    ],
)
def test_a_bad_batch_is_refused_before_anything_is_stored(field, values, sentence):
    ops = CpuOps(num_threads=2)
    forward_pass = ops.compile(two_layers(ops, "bfloat16"))
    good = batch_of([2], [1])
    fields = {name: getattr(good, name) for name in TokenBatch.__slots__}
    fields[field] = np.array(values, fields[field].dtype)
    cache = ops.new_kv_cache(2, 8, 16, HEADS.num_kv_heads, HEADS.head_dim, "bfloat16")
    out = np.zeros((len(fields["logit_rows"]), WIDTH), np.float32)
    with pytest.raises(ValueError, match=sentence):
        forward_pass.run(TokenBatch(**fields), cache, rotation(), out)
    assert not cache.keys.any()


def test_a_cache_of_another_model_is_refused():
    ops = CpuOps(num_threads=1)
    forward_pass = ops.compile(two_layers(ops, "float32"))
    cache = ops.new_kv_cache(3, 8, 16, HEADS.num_kv_heads, HEADS.head_dim, "float32")
    with pytest.raises(ValueError, match="does not fit"):
        forward_pass.run(batch_of([1], [0]), cache, rotation(), np.empty((1, WIDTH), np.float32))


def test_operations_that_do_not_fit_their_buffers_are_refused():
    ops = CpuOps(num_threads=1)
    program = Program()
    x, out = program.buffer(8), program.buffer(9)
    program.add(RmsNorm(x, np.ones(8, np.float32), 1e-5, out))
    with pytest.raises(ValueError, match="must have 8 columns"):
        ops.compile(program)


def test_a_result_with_a_row_for_each_token_is_refused():
    ops = CpuOps(num_threads=1)
    program = two_layers(ops, "float32")
    del program.operations[-2:]  # what picks rows, and what works on them
    with pytest.raises(ValueError, match="only has the picked rows"):
        run(ops.compile(program), ops, batch_of([3], [2]), "float32")


def test_operations_on_tokens_come_before_rows_are_picked():
    ops = CpuOps(num_threads=1)
    program = two_layers(ops, "float32")
    program.add(next(o for o in program.operations if isinstance(o, RopeAndStore)))
    with pytest.raises(ValueError, match="must come before pick_logit_rows"):
        ops.compile(program)


def test_ids_lie_in_the_smallest_of_several_tables():
    ops = CpuOps(num_threads=1)
    program = two_layers(ops, "float32")
    embed = program.operations[0]
    program.operations.insert(0, Embed(np.zeros((8, WIDTH), np.float32), embed.out))
    with pytest.raises(ValueError, match=r"token_ids must lie in \[0, 8\)"):
        run(ops.compile(program), ops, batch_of([3], [2]), "float32")


def test_sizes_that_would_overflow_are_refused():
    program = _native.Program(_native.Backend("portable", 1))
    with pytest.raises(ValueError, match="a buffer has 1 to"):
        program.add_buffer(1 << 60)
    qkv = program.add_buffer(QKV)
    sizes = (HEADS.num_kv_heads, HEADS.head_dim, True, None, None, 1e-6)
    with pytest.raises(ValueError, match="layer must lie in"):
        program.rope_and_store(qkv, 2**64 - 1, HEADS.num_heads, *sizes)
    with pytest.raises(ValueError, match="too few for these heads"):
        program.rope_and_store(qkv, 0, 2**60 + HEADS.num_heads, *sizes)  # times 16 is the same
