"""The first difference of two decision logs, in words."""

from __future__ import annotations

from dataclasses import replace

from headway.drive.record import ChunkRecord, EntryRecord, PreemptionRecord, StepRecord
from headway.replay.compare import difference, first_difference

STEP = StepRecord(
    index=7,
    start_ns=1,
    end_ns=2,
    chunks=(ChunkRecord(1, 0, 16), ChunkRecord(2, 5, 1)),
    admitted=(EntryRecord(1, 32),),
)


def test_times_are_no_difference():
    assert difference(STEP, replace(STEP, start_ns=5, end_ns=9)) is None
    assert first_difference([STEP, STEP], [STEP, replace(STEP, start_ns=0)]) is None
    assert first_difference([], []) is None


def test_what_is_in_one_only_is_named_with_its_step():
    other = replace(STEP, admitted=(EntryRecord(1, 16),), preempted=(PreemptionRecord(3, 1, 40),))
    assert difference(STEP, other) == (
        "step 7 differs: admitted (1, 32) in the first and (1, 16) in the second; "
        "preempted nothing in the first and (3, 1, 40) in the second"
    )
    assert difference(STEP, replace(STEP, blocker="slots")) == (
        "step 7 differs: blocker None in the first and 'slots' in the second"
    )


def test_an_order_is_a_difference():
    other = replace(STEP, chunks=STEP.chunks[::-1])
    assert difference(STEP, other) == (
        "step 7 differs: chunks in another order: (1, 0, 16), (2, 5, 1) and (2, 5, 1), (1, 0, 16)"
    )


def test_the_first_is_told_and_a_log_that_ends_early():
    other = replace(STEP, index=8)
    assert first_difference([STEP, STEP], [STEP, other]).startswith("step 7 differs: index 7 in")
    assert first_difference([STEP], [STEP, other]) == (
        "step 8 is in the second log only: index 8; chunks (1, 0, 16), (2, 5, 1); admitted (1, 32)"
    )
    assert first_difference([STEP], []).startswith("step 7 is in the first log only: ")


def test_a_large_batch_stays_readable():
    many = tuple(ChunkRecord(i, 0, 1) for i in range(300))
    sentence = difference(STEP, replace(STEP, chunks=many))
    assert sentence.endswith("(7, 0, 1), 292 more in the second")
