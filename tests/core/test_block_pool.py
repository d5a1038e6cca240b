"""Blocks: blank, cached or held; the tail of a sequence is reused before its head."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.blocks import BlockHash, BlockPool


def name(number: int) -> BlockHash:
    return BlockHash(bytes([number]))


def test_blank_blocks_are_handed_out_before_cached_ones():
    pool = BlockPool(3)
    [first] = pool.allocate(1)
    pool.register(first, name(1))
    pool.free([first])
    assert (pool.num_free, pool.num_cached, pool.num_held) == (3, 1, 0)
    assert first not in pool.allocate(2)
    assert pool.find(name(1)) == first
    assert pool.allocate(1) == [first]
    assert pool.find(name(1)) is None


def test_the_tail_of_a_sequence_is_reused_first_and_the_oldest_sequence_before_others():
    pool = BlockPool(4)
    old, young = pool.allocate(2), pool.allocate(2)
    for block_id in (*old, *young):
        pool.register(block_id, name(block_id))
    pool.free(old)
    pool.free(young)
    assert pool.allocate(4) == [old[1], old[0], young[1], young[0]]


def test_a_shared_block_is_free_when_its_last_holder_leaves():
    pool = BlockPool(1)
    blocks = pool.allocate(1)
    pool.register(blocks[0], name(1))
    pool.share(blocks)
    pool.free(blocks)
    assert (pool.num_held, pool.num_holders(0)) == (1, 1)
    pool.free(blocks)
    assert (pool.num_held, pool.num_cached) == (0, 1)
    assert pool.num_unheld(blocks) == 1
    pool.share(blocks)
    assert (pool.num_held, pool.num_cached) == (1, 0)


def test_the_first_of_two_equal_blocks_stays_findable():
    pool = BlockPool(2)
    pool.allocate(2)
    pool.register(0, name(1))
    pool.register(1, name(1))
    assert pool.find(name(1)) == 0
    assert pool.hash_of(1) is None


def test_a_forgotten_block_is_blank_again_and_only_under_its_own_name():
    pool = BlockPool(1)
    pool.allocate(1)
    pool.register(0, name(1))
    assert not pool.forget(0, name(2))
    pool.free([0])
    assert pool.forget(0, name(1))
    assert (pool.num_free, pool.num_cached) == (1, 0)
    assert pool.find(name(1)) is None


def test_forgetting_all_leaves_holders_their_blocks_and_nothing_to_find():
    pool = BlockPool(3)
    blocks = pool.allocate(2)
    for block_id in blocks:
        pool.register(block_id, name(block_id))
    pool.free(blocks[1:])
    pool.forget_all()
    assert (pool.num_held, pool.num_cached, pool.num_free) == (1, 0, 2)
    assert pool.hashes() == {}
    pool.register(blocks[0], name(7))
    assert pool.find(name(7)) == blocks[0]
    pool.free(blocks[:1])
    assert sorted(pool.allocate(3)) == [0, 1, 2]


def test_what_the_pool_has_not_it_does_not_give():
    pool = BlockPool(2)
    with pytest.raises(ValueError, match="3 blocks wanted, 2 are free"):
        pool.allocate(3)
    with pytest.raises(ValueError, match="nobody holds it"):
        pool.free([0])
    with pytest.raises(ValueError, match="nothing to share"):
        pool.share([0])
    with pytest.raises(ValueError, match="nobody holds it"):
        pool.register(0, name(1))
    with pytest.raises(ValueError, match="at least 1 block"):
        BlockPool(0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=60))
def test_against_a_model_of_two_dicts(moves):
    """Model: how many hold a block, and which block has a name. Free is what nobody holds."""
    pool = BlockPool(5)
    holders: dict[int, int] = {}
    tables: list[list[int]] = []
    names: dict[int, int] = {}
    for number, (move, size) in enumerate(moves):
        if move == 0 and size <= pool.num_free:
            table = pool.allocate(size)
            assert all(holders.get(block_id, 0) == 0 for block_id in table)
            for block_id in table:
                names.pop(block_id, None)
            tables.append(table)
        elif move == 1 and tables:
            table = tables[size % len(tables)]
            pool.share(table)
            tables.append(list(table))
        elif move == 2 and tables:
            table = tables[size % len(tables)]
            pool.register(table[0], name(number))
            names.setdefault(table[0], number)
        elif move == 3 and tables:
            pool.free(tables.pop(size % len(tables)))
        holders = {b: sum(table.count(b) for table in tables) for b in range(5)}
        assert [pool.num_holders(b) for b in range(5)] == [holders[b] for b in range(5)]
        assert pool.hashes() == {name(number): b for b, number in names.items()}
        assert sorted(pool.free_blocks()) == [b for b in range(5) if not holders[b]]
        assert pool.num_cached == sum(1 for b in names if not holders[b])
