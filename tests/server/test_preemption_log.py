"""A line for each preemption: who, for whom, what it cost; and few of them."""

from __future__ import annotations

import logging

import pytest

from headway.core.events import Aborted, Preempted, Queued, Retired
from headway.core.request import FinishReason
from headway.insight.logs.preempted import victim_of
from headway.server.preemption_log import PreemptionLog

SECOND = 1_000_000_000


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> PreemptionLog:
    caplog.set_level(logging.INFO, "headway")
    log = PreemptionLog()
    log.on_events([Queued(7, "cmpl-a-0", 0), Queued(8, "cmpl-b-0", 0)], SECOND)
    return log


def preempted(victim: int = 7, beneficiary: int = 8, number: int = 1) -> Preempted:
    return Preempted(victim, "cmpl-a-0", beneficiary, 1412, 0, 89, number)


def test_who_for_whom_and_what_it_cost(
    log: PreemptionLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.on_events([preempted(number=2)], SECOND)
    log.on_events([preempted(beneficiary=7, number=3)], SECOND)
    assert caplog.messages == [
        "Preempted cmpl-a-0 for cmpl-b-0: 1,412 tokens lost, free blocks 0 -> 89, "
        "its preemption no. 2",
        "Preempted cmpl-a-0 for itself: 1,412 tokens lost, free blocks 0 -> 89, "
        "its preemption no. 3",
    ]
    assert [victim_of(line) for line in caplog.messages] == ["cmpl-a-0", "cmpl-a-0"]


def test_many_are_told_as_a_sum_by_the_next_line(
    log: PreemptionLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.on_events([preempted(number=n) for n in range(1, 8)], 20 * SECOND)
    assert len(caplog.messages) == 5
    log.on_events([preempted(number=8)], 30 * SECOND - 1)
    assert len(caplog.messages) == 5
    log.on_events([preempted(number=9), preempted(number=10)], 30 * SECOND)
    assert caplog.messages[5].endswith(
        "no. 9; not told since the last such line: 3 preemptions, 4,236 tokens lost"
    )
    assert caplog.messages[6].endswith("its preemption no. 10")
    assert victim_of(caplog.messages[5]) == "cmpl-a-0"


def test_who_has_ended_is_forgotten(log: PreemptionLog) -> None:
    log.on_events([Retired(7, "cmpl-a-0", FinishReason.STOP), Aborted(8, "cmpl-b-0")], SECOND)
    assert not log._names
