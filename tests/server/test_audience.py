"""Who watches the engine hears everything once and in order, and cannot stop it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from headway.core.events import Event, Queued
from headway.core.request import Request, SamplingParams
from headway.server.audience import Audience
from headway.wire import EngineStats

REQUEST = Request(request_id="r", prompt_token_ids=(1, 2), sampling=SamplingParams())
STATS = EngineStats(0, 0, 0, 1, 0, 0, 0)


class Diary:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_submitted(self, request: Request, now_ns: int) -> None:
        self.heard.append(f"submitted {request.request_id}")

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self.heard.append(f"events at {now_ns}")

    def on_stats(self, stats: EngineStats) -> None:
        self.heard.append("stats")


class Deaf:
    """Fails on everything that it is told."""

    def on_submitted(self, request: Request, now_ns: int) -> None:
        raise RuntimeError("submitted")

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        raise RuntimeError("events")

    def on_stats(self, stats: EngineStats) -> None:
        raise RuntimeError("stats")


def test_turns_are_told_later_once_and_in_order() -> None:
    async def run() -> list[str]:
        audience, diary = Audience(), Diary()
        audience.add(diary)
        for now_ns in (1, 2):
            audience.tell([Queued(7, "r", 0)], now_ns, STATS)
        assert diary.heard == []
        await asyncio.sleep(0)
        audience.catch_up()
        return diary.heard

    assert asyncio.run(run()) == ["events at 1", "stats", "events at 2", "stats"]


def test_a_request_is_told_after_all_before_it() -> None:
    async def run() -> list[str]:
        audience, diary = Audience(), Diary()
        audience.add(diary)
        audience.tell([Queued(7, "r", 0)], 1, None)
        audience.submitted(REQUEST, 2)
        return diary.heard

    assert asyncio.run(run()) == ["events at 1", "submitted r"]


def test_one_that_fails_disturbs_neither_the_others_nor_the_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> list[str]:
        audience, diary = Audience(), Diary()
        audience.add(Deaf())
        audience.add(diary)
        audience.submitted(REQUEST, 1)
        audience.tell([Queued(7, "r", 0)], 2, STATS)
        audience.catch_up()
        return diary.heard

    with caplog.at_level(logging.ERROR, logger="headway"):
        assert asyncio.run(run()) == ["submitted r", "events at 2", "stats"]
    complaints = [record.getMessage().split(" ")[0] for record in caplog.records]
    assert complaints == ["Deaf.on_submitted", "Deaf.on_events", "Deaf.on_stats"]
