"""The mechanics of the two phases, as drawings that can be checked by hand.

P prefill   d decode   x preempted   . waiting   - has a slot, computes nothing   (blank) ended
"""

from __future__ import annotations

from scheduler_drawing import drawing, timeline


def test_the_newest_is_evicted_and_nobody_is_admitted_in_that_step():
    """Six blocks of four. In step 2 A and B need a third block each: C pays for both.

    C comes back when A and B have ended, before D, and computes its two known outputs again: two
    outputs are left to make.
    """
    assert timeline(
        pool_blocks=6, block_size=4, max_num_batched_tokens=28, prompts=[7] * 4, max_tokens=4
    ) == drawing("""
        A  P d d d
        B  P d d d
        C  P d x . P d
        D  . . . . P d d d
    """)


def test_reserve_admits_what_it_can_finish_and_preempts_nobody():
    assert timeline(
        pool_blocks=6,
        block_size=4,
        max_num_batched_tokens=28,
        prompts=[7] * 4,
        max_tokens=4,
        kv_policy="reserve",
    ) == drawing("""
        A  P d d d
        B  P d d d
        C  . . . . P d d d
        D  . . . . P d d d
    """)


def test_a_sequence_may_be_its_own_victim():
    """In step 3 B's next chunk finds no block, and B is the newest; A ends there, B starts over."""
    assert timeline(
        pool_blocks=4,
        block_size=4,
        max_num_batched_tokens=4,
        prompts=[8, 12],
        max_tokens=[3, 1],
        reserve_full_isl=False,
    ) == drawing("""
        A  P P d d
        B  . . P x P P P
    """)


def test_full_isl_admission_waits_for_the_whole_prompt_instead():
    assert timeline(
        pool_blocks=4, block_size=4, max_num_batched_tokens=4, prompts=[8, 12], max_tokens=[3, 1]
    ) == drawing("""
        A  P P d d
        B  . . . . P P P
    """)


def test_chunked_prefill_is_a_cap_by_the_budget_and_decodes_go_first():
    """Budget 8: B's 20 tokens are cut to 4, 7, 7, 2; what B leaves in step 3 lets C in."""
    assert timeline(
        pool_blocks=40,
        block_size=4,
        max_num_batched_tokens=8,
        prompts=[4, 20, 3],
        max_tokens=[6, 2, 2],
    ) == drawing("""
        A  P d d d d d
        B  P P P P d
        C  . . . P d
    """)


def test_a_long_prompt_is_cut_to_the_threshold_so_that_others_start():
    assert timeline(
        pool_blocks=40,
        block_size=4,
        max_num_batched_tokens=16,
        long_prefill_token_threshold=4,
        prompts=[12, 3],
        max_tokens=[2, 4],
    ) == drawing("""
        A  P P P d
        B  P d d d
    """)


def test_without_chunks_a_prompt_waits_for_a_step_with_room():
    assert timeline(
        pool_blocks=40,
        block_size=4,
        max_model_len=10,
        max_num_batched_tokens=10,
        enable_chunked_prefill=False,
        prompts=[6, 6, 3],
        max_tokens=[2, 4, 2],
    ) == drawing("""
        A  P d
        B  . P d d d
        C  . P d
    """)


def test_slots_cap_admission_and_a_free_one_is_taken_in_the_next_step():
    assert timeline(
        pool_blocks=40, block_size=4, max_num_seqs=2, prompts=[3] * 4, max_tokens=[4, 2, 2, 2]
    ) == drawing("""
        A  P d d d
        B  P d
        C  . . P d
        D  . . . . P d
    """)


def test_prefill_first_stalls_the_decodes_of_others():
    assert timeline(
        pool_blocks=40,
        block_size=4,
        max_num_batched_tokens=8,
        prompts=[4, 12, 3],
        max_tokens=[6, 2, 2],
        arrivals=[0, 2, 2],
        prefill="first",
    ) == drawing("""
        A  P d - - d d d d
        B      P P d
        C      . P d
    """)


def test_the_watermark_keeps_blocks_free_at_admission_only():
    """Of 8 blocks 4 stay free while others run: C waits, though 4 are free; A and B may grow."""
    assert timeline(
        pool_blocks=8, block_size=4, watermark=0.5, prompts=[8, 8, 8], max_tokens=3
    ) == drawing("""
        A  P d d
        B  P d d
        C  . . . P d d
    """)


def test_a_static_batch_fills_then_runs_then_drains():
    """The fill takes two steps, in which nobody decodes; A's slot stays idle until B has ended."""
    assert timeline(
        pool_blocks=40,
        block_size=4,
        max_num_batched_tokens=6,
        max_num_seqs=2,
        prompts=[6, 6, 3],
        max_tokens=[2, 4, 2],
        unit="request",
    ) == drawing("""
        A  P - d - -
        B  . P d d d
        C  . . . . . P d
    """)
