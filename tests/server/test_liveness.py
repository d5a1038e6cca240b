"""Busy is healthy, however long a step takes that has much to do; hung is not."""

from __future__ import annotations

from headway.server.liveness import Liveness
from headway.wire import AliveMessage, EngineStats

SECOND = 1_000_000_000


def stats(step_index: int, num_running: int = 1) -> EngineStats:
    return EngineStats(step_index, num_running, 0, 4, 0, 0, 0)


def run_step(life: Liveness, index: int, began: int, took: int, num_tokens: int) -> list[bool]:
    """The health at each second of a step that says each second that it lives."""
    healthy = []
    for second in range(1, took):
        now = (began + second) * SECOND
        life.on_alive(AliveMessage(now, index, began * SECOND, num_tokens), now)
        healthy.append(life.health(now, has_work=True).is_ok)
    life.on_turn(stats(index), (began + took) * SECOND)
    return healthy


def test_busy_is_healthy_and_hung_is_not() -> None:
    life = Liveness(0)
    for step in range(60):
        life.on_turn(stats(step), step * SECOND)
        assert life.health(step * SECOND + SECOND, has_work=True).is_ok
    last = 59 * SECOND
    assert life.health(last + 10 * SECOND, has_work=True).is_ok
    hung = life.health(last + 12 * SECOND, has_work=True)
    assert not hung.is_ok
    assert hung.last_turn_age_s == 12
    assert "nothing heard of it for 12 s" in hung.reason


def test_a_silent_engine_is_hung_even_with_nothing_to_do() -> None:
    life = Liveness(0)
    assert life.health(10 * SECOND, has_work=False).is_ok
    assert not life.health(11 * SECOND, has_work=False).is_ok


def test_signs_of_life_without_steps_are_no_progress() -> None:
    life = Liveness(0)
    for second in range(13):
        life.on_turn(stats(5), second * SECOND)
        life.on_alive(AliveMessage(0, 6), second * SECOND)
    assert life.health(12 * SECOND, has_work=False).is_ok
    hung = life.health(12 * SECOND, has_work=True)
    assert "work is pending and no step has ended for 12 s" in hung.reason


def test_work_after_a_long_idle_time_gets_its_ten_seconds() -> None:
    life = Liveness(0)
    life.on_alive(AliveMessage(0, 0), 1000 * SECOND)
    life.on_progress(1000 * SECOND)
    assert life.health(1009 * SECOND, has_work=True).is_ok
    life.on_alive(AliveMessage(0, 0), 1011 * SECOND)
    assert not life.health(1011 * SECOND, has_work=True).is_ok


def test_a_long_step_is_healthy_within_what_its_tokens_may_take() -> None:
    life = Liveness(0)
    # 512 tokens: 10 s + 4 * 512 * 20 ms = 50.96 s.
    healthy = run_step(life, 1, 0, 70, 512)
    assert healthy == [second <= 50 for second in range(1, 70)]


def test_an_engine_that_is_slow_earns_longer_steps() -> None:
    life = Liveness(0)
    run_step(life, 1, 0, 50, 512)  # 98 ms per token
    assert all(run_step(life, 2, 50, 100, 512))
    assert not all(run_step(Liveness(150 * SECOND), 2, 150, 100, 512))


def test_a_small_step_says_little_about_a_token() -> None:
    life = Liveness(0)
    run_step(life, 1, 0, 9, 1)
    assert life.allowance_ns(512) < 600 * SECOND


def test_a_process_that_was_stopped_earns_nothing() -> None:
    life = Liveness(0)
    before = life.allowance_ns(100)
    life.on_alive(AliveMessage(0, 1, 0, 100), SECOND)
    assert not life.health(60 * SECOND, has_work=True).is_ok
    life.on_turn(stats(1), 60 * SECOND)
    assert life.health(60 * SECOND, has_work=True).is_ok
    assert life.allowance_ns(100) == before
