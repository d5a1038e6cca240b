"""Steps in which most are placed at once are those in which everybody is asked: the twin."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import make_request

from headway.core.config import SchedulerConfig
from headway.core.decodes import Decodes
from headway.core.request import RepetitionDetection
from headway.core.scheduler import Scheduler
from headway.core.sequence import Sequence
from headway.core.step import StepResult, apart
from headway.drive.invariants import check

configs = st.builds(
    SchedulerConfig,
    max_num_seqs=st.integers(1, 5),
    max_num_batched_tokens=st.sampled_from([2, 7, 40]),
    block_size=st.sampled_from([1, 2, 4]),
    max_model_len=st.just(50),
    enable_prefix_caching=st.booleans(),
    kv_policy=st.sampled_from(["on-demand", "reserve"]),
    unit=st.sampled_from(["step", "request"]),
    prefill=st.sampled_from(["mixed", "first"]),
    ordering=st.sampled_from(["fcfs", "priority", "fair"]),
    reserve_full_isl=st.booleans(),
)
turns = st.sampled_from([*["schedule"] * 6, *["complete"] * 5, "fail"])
arrivals = st.tuples(
    st.integers(1, 14),  # prompt
    st.integers(1, 24),  # output at most
    st.integers(0, 2),  # priority
    st.booleans(),  # stops at the stop token
    st.sampled_from([False, False, True]),  # watched for repetition
)
aborted = st.integers(0, 40)
moves = st.lists(st.one_of(turns, turns, turns, turns, arrivals, aborted), max_size=150)


class Player:
    """Moves a scheduler; `log` is all that was decided and told."""

    def __init__(self, config, looks=lambda: True):
        self.scheduler = Scheduler(config, num_blocks=64 // config.block_size)
        self.looks = looks  # at the sequences, after a move: then they know all that they got
        self.log = []
        self.rows = {}  # of the steps that were looked at

    def move(self, what):
        match what:
            case "schedule" if len(self.scheduler.in_flight) < 2:
                self.schedule()
            case "complete" if self.scheduler.in_flight:
                self.complete()
            case "fail" if self.scheduler.in_flight:
                self.log.append(self.scheduler.fail(self.scheduler.in_flight[0], "broken"))
            case int():
                self.log.append(self.scheduler.abort(f"{what}"))
            case (prompt, most, priority, stops, watched):
                rule = RepetitionDetection(max_pattern_size=2, min_count=3) if watched else None
                request = make_request(
                    f"{len(self.log) % 9}",
                    [1, 2, 3, 4, 5] * 2 + [1] * prompt,
                    max_tokens=most,
                    priority=priority,
                    stops=stops,
                    repetition=rule,
                )
                self.log.append(self.scheduler.add(request, 0))
        if self.looks():
            check(self.scheduler)

    def schedule(self):
        step = self.scheduler.schedule(0)
        self.log.append((step.admitted, step.resumed, step.preempted, step.retired))
        self.log.append((step.blocker, step.blocked_sequence_id, self.scheduler.stats()))
        if self.looks():
            rows = [(c.sequence.sequence_id, *c[1:4], tuple(c.block_ids)) for c in step.chunks]
            self.rows[step.index] = rows

    def complete(self):
        step = self.scheduler.in_flight[0]
        firsts, others = apart(step.chunks)
        count = len(firsts) + sum(chunk.samples for chunk in others)
        said = [(5 * step.index + 3 * place) % 7 for place in range(count)]
        self.log.append([*self.scheduler.complete(step, StepResult(said))])


def play(config, script, ahead, looks=lambda: True):
    player = Player(config, looks)
    for what in script:
        player.move(what)
    for _ in range(400):
        if not player.scheduler.has_unfinished():
            return player
        player.move("schedule")
        if not ahead or len(player.scheduler.in_flight) == 2:
            player.move("complete")
    raise AssertionError("no end in sight")


@settings(max_examples=150, deadline=None)
@given(config=configs, script=moves, ahead=st.booleans())
def test_the_same_is_decided_and_told(config, script, ahead):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "_decoding", lambda scheduler, running, prompts, step: None)
        patch.setattr(Sequence, "quieten", lambda sequence, *sizes: None)
        asked = play(config, script, ahead)
    placed = play(config, script, ahead)
    assert (placed.log, placed.rows) == (asked.log, asked.rows)


@settings(max_examples=150, deadline=None)
@given(config=configs, script=moves, ahead=st.booleans(), seed=st.integers(0, 9))
def test_the_same_is_decided_and_told_if_nobody_looks(config, script, ahead, seed):
    rng = random.Random(seed)
    seldom = play(config, script, ahead, lambda: rng.random() < 0.02 * seed)
    always = play(config, script, ahead)
    assert seldom.log == always.log
    assert seldom.rows.items() <= always.rows.items()


@settings(max_examples=60, deadline=None)
@given(
    prompts=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    num_steps=st.integers(1, 150),
    block_size=st.sampled_from([1, 4, 16]),
)
def test_who_looks_after_many_steps_sees_what_one_sees_who_always_looks(
    prompts, num_steps, block_size
):
    seen = []
    for often in (True, False):
        scheduler = Scheduler(SchedulerConfig(block_size=block_size), 1000)
        for name, prompt in enumerate(prompts):
            scheduler.add(make_request(f"{name}", [name] * prompt, max_tokens=400), 0)
        for index in range(num_steps):
            step = scheduler.schedule(0)
            if often:
                check(scheduler)
            said = [100 * index + place for place in range(len(prompts))]
            scheduler.complete(step, StepResult(said))
        seen.append(
            [
                (s.num_computed_tokens, s.token_ids, s.block_ids, s.block_hashes)
                for s in scheduler.running_sequences()
            ]
        )
    assert seen[0] == seen[1]
    assert all(len(tokens) == count + 1 for count, tokens, _, _ in seen[0])


def test_most_of_a_long_decode_is_quiet(monkeypatch):
    """Of 16 steps one fills a block and one takes the next."""
    scheduler = Scheduler(SchedulerConfig(block_size=16), 20)
    scheduler.add(make_request("a", [1] * 3, max_tokens=70), 0)
    asked, find = [], Decodes.find_due

    def note(decodes):
        due = find(decodes)
        asked.extend(sequence.num_computed_tokens for sequence in due)
        return due

    monkeypatch.setattr(Decodes, "find_due", note)
    while scheduler.has_unfinished():
        scheduler.complete(scheduler.schedule(0), StepResult([1]))
    assert asked == [3, 15, 16, 31, 32, 47, 48, 63, 64, 71]  # the first, borders, the last
    assert scheduler.num_steps == 70


def test_what_decodes_together_is_looked_up_once():
    """Until somebody comes or leaves."""
    scheduler = Scheduler(SchedulerConfig(block_size=4), 40)
    for name in "ab":
        scheduler.add(make_request(name, [1] * 3, max_tokens=30), 0)
    seen = []
    for turn in range(12):
        if turn == 4:
            scheduler.add(make_request("c", [1] * 3, max_tokens=30), 0)
        if turn == 8:
            scheduler.abort("a")
        step = scheduler.schedule(0)
        scheduler.complete(step, StepResult([1] * len(step.chunks)))
        seen.append(getattr(step.chunks, "sequences", None))
    kept = [before is after is not None for before, after in pairwise(seen)]
    assert kept == [False, True, True, True, False, True, True, False, True, True, True]


def test_a_step_is_decided_anew_only_after_something_has_changed(monkeypatch):
    """A prompt, the first decode; then nothing until somebody comes, goes, or may not fit."""
    scheduler = Scheduler(SchedulerConfig(block_size=4), 9)
    asked, go_on = [], Scheduler._continue_running

    def note(scheduler, step, now_ns, *, holds_decodes):
        asked.append(step.index)
        go_on(scheduler, step, now_ns, holds_decodes=holds_decodes)

    monkeypatch.setattr(Scheduler, "_continue_running", note)
    scheduler.add(make_request("a", [1] * 3, max_tokens=30), 0)
    for index in range(18):
        if index == 8:
            scheduler.add(make_request("b", [1] * 3, max_tokens=4), 0)
        step = scheduler.schedule(0)
        scheduler.complete(step, StepResult([1] * len(step.chunks)))
    assert asked == [0, 1, 8, 9, 12]
    assert len(scheduler.running_sequences()[0].block_ids) == 5
