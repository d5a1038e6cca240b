"""Limits at the door: what they count, and what Retry-After is computed from."""

from __future__ import annotations

import pytest

from headway.core.events import AbortCause, Aborted, Admitted, Advanced, Queued, Rejected, Retired
from headway.core.request import FinishReason, Request, SamplingParams
from headway.server.brakes import Brakes, NeverFitsError, QueueFullError
from headway.server.ledger import Ledger
from headway.wire import EngineStats

SECOND = 1_000_000_000


class World:
    """The two folds, told what an engine would tell them."""

    def __init__(self, max_num_reqs: int | None = None, max_num_tokens: int | None = None) -> None:
        self.ledger = Ledger()
        self.brakes = Brakes(self.ledger, max_num_reqs, max_num_tokens)
        self.now_ns = 0
        self.next_id = 0

    def submit(self, request_id: str, num_tokens: int = 10, n: int = 1) -> list[int]:
        request = Request(
            request_id=request_id,
            prompt_token_ids=tuple(range(num_tokens)),
            sampling=SamplingParams(n=n),
        )
        for fold in (self.ledger, self.brakes):
            fold.on_submitted(request, self.now_ns)
        ids = [self.next_id + i for i in range(n)]
        self.next_id += n
        return ids

    def tell(self, *events: object) -> None:
        for fold in (self.ledger, self.brakes):
            fold.on_events(events, self.now_ns)  # type: ignore[arg-type]

    def queue(self, request_id: str, ids: list[int]) -> None:
        self.tell(*(Queued(i, request_id, index) for index, i in enumerate(ids)))

    def stats(self, num_backlog_tokens: int) -> None:
        stats = EngineStats(1, 0, 0, 8, 0, 0, 0, num_backlog_tokens=num_backlog_tokens)
        self.brakes.on_stats(stats)


def retired(sequence_id: int, request_id: str) -> Retired:
    return Retired(sequence_id, request_id, FinishReason.LENGTH)


def test_choices_count_and_are_taken_whole_or_not_at_all() -> None:
    world = World(max_num_reqs=4)
    world.brakes.check(4)
    ids = world.submit("a", n=3)
    world.brakes.check(1)
    with pytest.raises(QueueFullError, match="3 of 4 sequences are in flight and this asks for 2"):
        world.brakes.check(2)
    world.queue("a", ids)
    world.tell(retired(ids[0], "a"))
    world.brakes.check(2)


def test_more_than_the_limit_can_never_come_in() -> None:
    world = World(max_num_reqs=4)
    world.submit("a", n=4)
    with pytest.raises(NeverFitsError, match=r"asks for 5 sequences .* the server takes 4 at once"):
        world.brakes.check(5)


def test_every_way_to_end_makes_room() -> None:
    world = World(max_num_reqs=1)
    ends = [
        lambda i: retired(i, "a"),
        lambda i: Aborted(i, "a"),
        lambda i: Rejected("a", "never fits"),
    ]
    for end in ends:
        (sequence_id,) = world.submit("a")
        with pytest.raises(QueueFullError):
            world.brakes.check(1)
        event = end(sequence_id)
        if not isinstance(event, Rejected):
            world.queue("a", [sequence_id])
        world.tell(event)
        world.brakes.check(1)
    assert "a" not in world.ledger


def test_backlog_is_the_engines_word_and_what_it_has_not_spoken_of() -> None:
    world = World(max_num_tokens=100)
    ids = world.submit("a", num_tokens=60)
    world.brakes.check(1)
    more = world.submit("b", num_tokens=60)
    assert world.brakes.num_backlog_tokens == 120
    with pytest.raises(QueueFullError, match="120 prompt tokens wait to be computed"):
        world.brakes.check(1)
    # The engine takes both; 40 tokens of one were in the prefix cache.
    world.queue("a", ids)
    world.queue("b", more)
    world.stats(80)
    assert world.brakes.num_backlog_tokens == 80
    world.brakes.check(1)


def test_retry_after_is_measured() -> None:
    world = World(max_num_reqs=20)
    ids = {f"r{i}": world.submit(f"r{i}") for i in range(20)}
    for request_id, mine in ids.items():
        world.queue(request_id, mine)
    for i in range(10):  # one sequence every two seconds
        world.now_ns += 2 * SECOND
        world.tell(retired(ids[f"r{i}"][0], f"r{i}"))
        world.submit(f"s{i}")
    with pytest.raises(QueueFullError, match=r"10 sequences done in the last 20 s") as error:
        world.brakes.check(3)
    assert error.value.retry_after_s == 6
    assert world.brakes.retry_after_s() == 20


def test_idle_time_does_not_slow_the_measured_rate() -> None:
    world = World(max_num_reqs=1)
    (sequence_id,) = world.submit("a")
    world.queue("a", [sequence_id])
    world.now_ns += 2 * SECOND
    world.tell(retired(sequence_id, "a"))
    world.now_ns += 20 * SECOND
    world.submit("b")
    with pytest.raises(QueueFullError) as error:
        world.brakes.check(1)
    assert error.value.retry_after_s == 2


def test_nothing_done_yet_says_so_and_stays_in_bounds() -> None:
    world = World(max_num_reqs=1)
    world.submit("a")
    with pytest.raises(QueueFullError, match="no sequences done") as error:
        world.brakes.check(1)
    assert error.value.retry_after_s == 1
    for _ in range(200):
        world.now_ns += SECOND
        world.tell()
    with pytest.raises(QueueFullError) as error:
        world.brakes.check(1)
    assert 28 <= error.value.retry_after_s <= 60


def test_prompt_tokens_are_counted_when_they_are_computed() -> None:
    world = World(max_num_tokens=1)
    (sequence_id,) = world.submit("a", num_tokens=100)
    world.queue("a", [sequence_id])
    world.tell(Admitted(sequence_id, "a", 20))
    world.now_ns += 4 * SECOND
    world.tell(Advanced(sequence_id, "a", (1,)))
    world.now_ns += SECOND // 10
    world.tell(Advanced(sequence_id, "a", (1,)))
    assert world.brakes.rate.throughput.num_prompt_tokens() == 80
    world.stats(201)
    with pytest.raises(QueueFullError, match="80 prompt tokens done in the last 4 s") as error:
        world.brakes.check(1)
    assert error.value.retry_after_s == 11
    assert error.value.cause == "queue_tokens"


def test_last_words_end_everything_once() -> None:
    world = World()
    a, b = world.submit("a", n=2), world.submit("b", n=2)
    world.queue("a", a)
    world.tell(retired(a[0], "a"))
    assert b
    words = world.ledger.last_words("the engine died")
    ends = [event for event in words if isinstance(event, Aborted)]
    assert {(e.request_id, e.cause) for e in ends} == {
        ("a", AbortCause.ENGINE),
        ("b", AbortCause.ENGINE),
    }
    assert len({e.sequence_id for e in ends}) == len(ends) == 3
    assert all(e.sequence_id < 0 for e in ends if e.request_id == "b")
    world.tell(*words)
    assert world.ledger.num_sequences == 0
    assert world.ledger.num_unqueued_tokens == 0
    assert not world.ledger.last_words("again")


def test_memory_is_flat() -> None:
    world = World()
    for i in range(2000):
        (sequence_id,) = world.submit(f"r{i}")
        world.queue(f"r{i}", [sequence_id])
        world.tell(Admitted(sequence_id, f"r{i}", 0))
        world.now_ns += SECOND // 10
        world.tell(Aborted(sequence_id, f"r{i}"))
    assert not world.brakes.rate._prompts
    assert not world.brakes.rate._to_compute
    assert world.brakes.rate.throughput.num_seconds <= 32
