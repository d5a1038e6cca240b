"""The conservation laws: one list for tests, engine and console."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as SequenceOf

from headway.core.request import RepetitionDetection
from headway.core.scheduler import Scheduler
from headway.core.sequence import Sequence, SequenceStatus
from headway.core.step import Step


class InvariantError(AssertionError):
    """A law is broken; the message has the numbers."""


def check(scheduler: Scheduler) -> None:
    """Raise InvariantError unless every law holds. Costs time proportional to the state."""
    _check_pool(scheduler)
    _check_running(scheduler)
    _check_waiting(scheduler)
    _check_backlog(scheduler)
    _check_names(scheduler)
    for step in scheduler.in_flight:
        check_step(scheduler, step)


def check_idle(scheduler: Scheduler) -> None:
    """Raise InvariantError unless an idle scheduler holds nothing."""
    check(scheduler)
    _require(not scheduler.has_unfinished(), "idle, but requests are unfinished")
    _require(scheduler.num_waiting == 0, f"idle, but {scheduler.num_waiting} wait")
    held = scheduler.pool.num_held
    _require(held == 0, f"idle, but {held} of {scheduler.pool.num_blocks} blocks are held")


def check_step(scheduler: Scheduler, step: Step) -> None:
    """Raise InvariantError unless the decision kept to its caps and names what blocks."""
    budget = scheduler.config.max_num_batched_tokens
    _require(step.num_tokens <= budget, f"{step.num_tokens} tokens in a budget of {budget}")
    _require(all(c.num_tokens > 0 for c in step.chunks), f"step {step.index}: an empty chunk")
    ids = [chunk.sequence.sequence_id for chunk in step.chunks]
    _require(len(set(ids)) == len(ids), f"step {step.index}: a sequence twice in {ids}")
    admits = {one.sequence_id for one in step.admitted}
    admits |= {one.sequence_id for one in step.resumed}
    _require(
        not step.preempted or admits <= {one.beneficiary_id for one in step.preempted},
        f"step {step.index} preempted {len(step.preempted)} and admitted {sorted(admits)}",
    )
    for chunk in step.chunks:
        room = len(chunk.block_ids) * scheduler.config.block_size
        end = chunk.first_position + chunk.num_tokens
        _require(end <= room, f"step {step.index}: tokens up to {end} in blocks for {room}")


def check_progress(scheduler: Scheduler, step: Step) -> None:
    """Raise InvariantError if somebody waits behind `step`, the latest, without a reason, or runs
    and nothing is computed."""
    if len(scheduler.in_flight) == 1:  # with two, all may be in the other
        idle = scheduler.num_running and not (step.chunks or step.preempted)
        _require(not idle, f"{scheduler.num_running} run and step {step.index} is empty")
    if not scheduler.num_waiting:
        return
    _require(step.blocker is not None, f"{scheduler.num_waiting} wait and nothing is named")
    moves = bool(step.chunks or step.preempted or scheduler.num_running)
    reasons = scheduler.stats().waiting_reasons
    barred = all(reason.bars_one for reason in reasons)
    _require(moves or barred, f"nothing runs, {scheduler.num_waiting} wait for {reasons}")


def _check_pool(scheduler: Scheduler) -> None:
    pool = scheduler.pool
    holders = Counter(
        block_id for sequence in _holders(scheduler) for block_id in sequence.block_ids
    )
    free = pool.free_blocks()
    _require(len(set(free)) == len(free), f"a block is free twice: {free}")
    _require(
        len(free) + len(holders) == pool.num_blocks,
        f"{len(free)} free + {len(holders)} held != {pool.num_blocks} blocks",
    )
    _require(pool.num_held == len(holders), f"{pool.num_held} held, {len(holders)} in tables")
    for block_id in range(pool.num_blocks):
        counted, actual = pool.num_holders(block_id), holders[block_id]
        _require(counted == actual, f"block {block_id} counts {counted} holders, has {actual}")
    num_cached = sum(1 for block_id in free if pool.hash_of(block_id) is not None)
    _require(pool.num_cached == num_cached, f"{pool.num_cached} cached, {num_cached} have a hash")


def _check_names(scheduler: Scheduler) -> None:
    pool = scheduler.pool
    index = pool.hashes()
    for block_hash, block_id in index.items():
        _require(pool.hash_of(block_id) == block_hash, f"block {block_id} is found by another name")
    named = sum(1 for b in range(pool.num_blocks) if pool.hash_of(b) is not None)
    _require(named == len(index), f"{named} blocks have a hash, {len(index)} can be found")
    for sequence in scheduler.running_sequences():
        for block_id, name in zip(sequence.block_ids, sequence.block_hashes, strict=False):
            found = pool.hash_of(block_id)
            _require(
                found in (None, name), f"{sequence.sequence_id} holds foreign block {block_id}"
            )


def _check_running(scheduler: Scheduler) -> None:
    config = scheduler.config
    slots = scheduler.num_running + len(scheduler.parked_sequences())
    _require(slots <= config.max_num_seqs, f"{slots} slots taken of {config.max_num_seqs}")
    pending = Counter(
        chunk.sequence.sequence_id
        for step in scheduler.in_flight
        for chunk in step.chunks
        if chunk.samples
    )
    for sequence in scheduler.running_sequences():
        name = f"sequence {sequence.sequence_id}"
        _require(sequence.status is SequenceStatus.RUNNING, f"{name} is {sequence.status}")
        room = len(sequence.block_ids) * config.block_size
        computed, expected = sequence.num_computed_tokens, sequence.num_expected_tokens
        _require(computed <= room, f"{name}: {computed} tokens computed, blocks for {room}")
        _require(computed < expected, f"{name}: {computed} computed of {expected}")
        _require(expected <= sequence.max_num_tokens, f"{name}: {expected} tokens is past its end")
        in_flight, flying = expected - sequence.num_tokens, pending[sequence.sequence_id]
        _require(in_flight == flying, f"{name}: {in_flight} pending, {flying} in flight")
        _check_quiet(scheduler, sequence)


def _check_quiet(scheduler: Scheduler, sequence: Sequence) -> None:
    """Nothing but decodes comes in the steps for which it is said to be quiet."""
    num_steps = sequence.quiet_until - sequence.num_computed_tokens
    if num_steps <= 0:
        return
    name, size = f"sequence {sequence.sequence_id}", scheduler.config.block_size
    first, end = sequence.num_computed_tokens, sequence.num_computed_tokens + num_steps
    room, length = len(sequence.block_ids) * size, sequence.max_num_tokens
    expected = sequence.num_expected_tokens
    _require(expected - first == 1, f"{name} is quiet, {expected - first} tokens are to compute")
    _require(end <= room, f"{name} is quiet up to {end}, its blocks hold {room}")
    _require(end + 1 < length, f"{name} is quiet up to {end}, it ends at {length}")
    if scheduler.config.enable_prefix_caching:
        done = sequence.num_registered_blocks
        _require(end // size == done, f"{name} is quiet up to {end}, {done} blocks have names")


def _check_waiting(scheduler: Scheduler) -> None:
    waiting = scheduler.waiting_sequences()
    _require(
        len(waiting) == scheduler.num_waiting,
        f"{scheduler.num_waiting} are queued, {len(waiting)} live sequences do not run",
    )
    for sequence in waiting:
        name = f"waiting sequence {sequence.sequence_id}"
        _require(not sequence.block_ids, f"{name} holds blocks {sequence.block_ids}")
        computed = sequence.num_computed_tokens
        _require(computed == 0, f"{name} counts {computed} computed tokens")
        _require(not sequence.quiet_until, f"{name} is quiet, but has no slot")
        state = sequence.status
        _require(state in (SequenceStatus.WAITING, SequenceStatus.PREEMPTED), f"{name} is {state}")


def _check_backlog(scheduler: Scheduler) -> None:
    waiting = sum(sequence.num_queued_tokens for sequence in scheduler.waiting_sequences())
    prefills = sum(
        sequence.num_tokens - sequence.num_computed_tokens
        for sequence in scheduler.running_sequences()
        if sequence.num_computed_tokens < max(sequence.num_prompt_tokens, sequence.num_tokens - 1)
    )
    counted = scheduler.stats().num_backlog_tokens
    expected = waiting + prefills
    _require(counted == expected, f"a backlog of {counted} tokens is counted, it is {expected}")


def _holders(scheduler: Scheduler) -> list[Sequence]:
    return scheduler.running_sequences() + scheduler.parked_sequences()


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvariantError(message)


def ends_in_repetition(output: SequenceOf[int], rule: RepetitionDetection) -> bool:
    """The plain twin of `RepetitionWatch`: looks at the whole output."""
    tokens = list(output)
    for size in range(max(1, rule.min_pattern_size), rule.max_pattern_size + 1):
        tail = tokens[-size * rule.min_count :]
        if len(tail) == size * rule.min_count and tail == tail[:size] * rule.min_count:
            return True
    return False
