"""paged_attention: the same bits decoded, in any chunk, in any blocks, beside anyone."""

from __future__ import annotations

import numpy as np
import pytest

from headway.ops.cpu.backend import CpuOps
from tests.ops.comparing import assert_same_bits
from tests.ops.paged import make_world

DTYPES = ("float32", "bfloat16", "int8")
LONG = 550  # three spans
LENGTH = 75
SHAPES = ((1, 1, 8), (3, 1, 64), (8, 1, 80), (9, 3, 64), (2, 2, 128), (20, 1, 24))


def chunked(sequence, length, size):
    return [(sequence, i, min(i + size, length)) for i in range(0, length, size)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), SHAPES)
@pytest.mark.parametrize("window", [0, 21])
def test_any_chunking_gives_the_bits_of_decoding(ops, heads, kv_heads, head_dim, dtype, window):
    world = make_world(
        ops, 3, (LENGTH,), dtype=dtype, heads=heads, kv_heads=kv_heads, head_dim=head_dim
    )
    decoded = [world.attend([chunk], window=window)[0] for chunk in chunked(0, LENGTH, 1)]
    expected = np.concatenate(decoded)
    for size in (7, 16, 64, LENGTH):
        pieces = [world.attend([chunk], window=window)[0] for chunk in chunked(0, LENGTH, size)]
        assert_same_bits(np.concatenate(pieces), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_chunking_of_the_twin(twin, dtype):
    world = make_world(twin, 3, (20,), dtype=dtype)
    whole = world.attend([(0, 0, 20)])[0]
    assert_same_bits(np.concatenate(world.attend(chunked(0, 20, 7))), whole)


@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbours_and_order_do_not_matter(ops, dtype):
    lengths = (40, 1, 75, 16, 33)
    world = make_world(ops, 4, lengths, dtype=dtype)
    chunks = [(i, n // 2, n) for i, n in enumerate(lengths)]
    alone = [world.attend([chunk])[0] for chunk in chunks]
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 1, 3], [2, 2]):
        together = world.attend([chunks[i] for i in order])
        for i, rows in zip(order, together, strict=True):
            assert_same_bits(rows, alone[i])


@pytest.mark.parametrize("dtype", DTYPES)
def test_other_blocks_and_block_sizes_do_not_matter(ops, dtype):
    expected = make_world(ops, 6, (LENGTH,), dtype=dtype).attend([(0, 0, LENGTH)])[0]
    for block_size, order in ((16, np.arange), (32, np.arange), (64, lambda n: np.arange(n)[::-1])):
        world = make_world(ops, 6, (LENGTH,), dtype=dtype, block_size=block_size, block_order=order)
        assert_same_bits(world.attend([(0, 0, LENGTH)])[0], expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [0, 290])
def test_many_rows_and_few_give_the_same_bits_over_several_spans(ops, dtype, window):
    world = make_world(ops, 12, (LONG,), dtype=dtype, heads=3, kv_heads=1, head_dim=80)
    whole = world.attend([(0, 0, LONG)], window=window)[0]
    for first in (0, 254, 255, 256, 511, 512, LONG - 1):
        row = world.attend([(0, first, first + 1)], window=window)[0]
        assert_same_bits(row, whole[first : first + 1])
    pieces = [world.attend([chunk], window=window)[0] for chunk in chunked(0, LONG, 37)]
    assert_same_bits(np.concatenate(pieces), whole)


@pytest.mark.parametrize("dtype", DTYPES)
def test_spans_shared_by_several_threads_give_the_same_bits(ops, dtype):
    """Alone, a long sequence is split; beside many short ones it is not."""
    world = make_world(ops, 13, (LONG, *[5] * 40), dtype=dtype, heads=4, kv_heads=2)
    chunks = [(0, LONG - 2, LONG), *[(i, 4, 5) for i in range(1, 41)]]
    one = CpuOps(ops.isa, num_threads=1)
    expected = world.attend(chunks[:1], num_threads_ops=one)[0]
    for threads in (1, 2, 5):
        several = CpuOps(ops.isa, num_threads=threads)
        assert_same_bits(world.attend(chunks[:1], num_threads_ops=several)[0], expected)
        assert_same_bits(world.attend(chunks, num_threads_ops=several)[0], expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_do_not_matter(ops, dtype):
    world = make_world(ops, 8, (40, 70), dtype=dtype, heads=4, kv_heads=2)
    chunks = [(0, 39, 40), (1, 0, 70)]
    expected = world.attend(chunks, num_threads_ops=CpuOps(ops.isa, num_threads=1))
    for threads in (2, 7):
        result = world.attend(chunks, num_threads_ops=CpuOps(ops.isa, num_threads=threads))
        for a, b in zip(result, expected, strict=True):
            assert_same_bits(a, b)
