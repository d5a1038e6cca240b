"""The same prompts alone and under load, on a server that differs where it was told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from headway.bench.target import target_of
from headway.bench.verify.client import Form, Sampling, ServerError, connected
from headway.bench.verify.load import Load
from headway.bench.verify.prompts import Prompt
from headway.insight.verify.report import Report, compare
from tests.bench.fake_server import LESS, SURE, FakeServer, Planted

PROMPTS = ("a", "b", "c", "d")
SAMPLING = Sampling(max_tokens=8)


def verified(
    fake: FakeServer,
    prompts: Sequence[str] = PROMPTS,
    *,
    concurrencies: Sequence[int] = (1, 3),
    num_rounds: int = 2,
    sampling: Sampling = SAMPLING,
    fill: bool = False,
    **settings: Any,
) -> tuple[Report, Form]:
    """`fill`: the server answers nobody until as many are in flight as there should be."""

    async def play() -> tuple[Report, Form]:
        runs = []
        settings.setdefault("endpoint", None)
        async with connected(
            target_of("http://fake"),
            model="fake",
            headers={},
            probe=(Prompt("Hello"), SAMPLING),
            num_likeliest=settings.pop("num_likeliest", 5),
            timeout_s=20,
            transport=httpx.ASGITransport(app=fake),
            **settings,
        ) as server:
            for round_index in range(num_rounds):
                for concurrency in concurrencies:
                    fake.min_in_flight = concurrency if fill else 1
                    load = Load(
                        server.ask,
                        [Prompt(text) for text in prompts],
                        sampling,
                        concurrency=concurrency,
                        round_index=round_index,
                        shuffle_seed=1,
                    )
                    await load.play()
                    runs.append(load.run)
            return compare(runs, len(prompts)), server.form

    return asyncio.run(play())


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_a_planted_difference_is_found_with_its_place_and_its_gap(endpoint: str) -> None:
    fake = FakeServer(planted={"b": Planted(3), "d": Planted(5)})
    report, form = verified(fake, endpoint=endpoint, fill=True)
    assert form.endpoint == endpoint
    assert report.basis == "token ids"
    alone, loaded = report.levels
    assert (len(alone.comparisons), len(alone.different)) == (4, 0)  # the second round
    assert len(loaded.comparisons) == 8
    found = sorted((each.prompt_index, each.round_index) for each in loaded.different)
    assert found == [(1, 0), (1, 1), (3, 0), (3, 1)]
    assert loaded.first_token_index == 3
    first = next(each.difference for each in loaded.different if each.prompt_index == 1)
    assert first is not None
    assert (first.token_index, first.char_index) == (3, len("one two three "))
    assert first.shared == "one two three "
    assert first.alone.startswith("four five")
    assert first.loaded.startswith("RIVAL five")
    assert first.swing is not None
    assert first.swing.nats == 2 * (SURE - LESS)
    assert not first.swing.is_at_least
    assert len(report.beyond_rounding) == 4
    assert report.unsteady == []


def test_a_server_that_keeps_its_word_has_no_difference() -> None:
    report, _ = verified(FakeServer(), concurrencies=(1, 3, 16), fill=True)
    assert [len(level.comparisons) for level in report.levels] == [4, 8, 8]
    assert not report.different
    assert report.num_drifted == 0
    assert not report.failures


def test_there_are_always_as_many_in_flight_as_asked_for() -> None:
    fake = FakeServer()
    verified(fake, concurrencies=(1,), num_rounds=1)
    assert {fake.fewest_in_flight[text] for text in PROMPTS} == {1}
    fake.fewest_in_flight.clear()
    verified(fake, concurrencies=(9,), fill=True)  # more than there are prompts: strangers
    assert {fake.fewest_in_flight[text] for text in PROMPTS} == {9}
    strangers = [b for b in fake.bodies if b["temperature"] > 0]
    assert strangers
    assert len({str(b["messages"]) for b in strangers}) == len(strangers)


def test_strangers_that_fail_are_told() -> None:
    class OnlyGreedy(FakeServer):
        async def _said(self, endpoint: str, body: dict[str, Any]) -> tuple[int, Any]:
            if body["temperature"] > 0:
                return 429, {"error": {"message": "slow down"}}
            for _ in range(50):
                await asyncio.sleep(0)
            return await super()._said(endpoint, body)

    report, _ = verified(OnlyGreedy(), concurrencies=(1, 9), num_rounds=1)
    assert not report.failures
    assert set(report.stranger_failures) == {"HTTP 429: slow down"}


def test_a_server_that_differs_alone_is_told_so() -> None:
    answers = iter([False, True] * 100)
    fake = FakeServer(planted={"c": Planted(2, when=lambda in_flight: next(answers))})
    report, _ = verified(fake, concurrencies=(1,), num_rounds=2)
    assert report.unsteady == [2]
    assert len(report.different) == 1


def test_other_logprobs_of_equal_answers_are_counted_apart() -> None:
    report, _ = verified(FakeServer(drift_per_request=0.001), concurrencies=(1,))
    assert not report.different
    assert report.num_drifted == 4
    largest = report.levels[0].largest_drift
    assert largest is not None
    assert 0.001 <= largest <= 0.008


def test_failures_are_no_differences() -> None:
    full = (503, {"error": {"message": "the queue\nis \x1b[2J full"}})
    garbage = (200, b"[[[[")
    report, _ = verified(
        FakeServer(planted={"b": Planted(0)}, failing={"a": full, "d": garbage}), fill=True
    )
    assert {each.prompt_index for each in report.different} == {1}
    assert report.without_reference == [0, 3]
    reasons = {each.prompt_index: each.reason for each in report.failures}
    assert len(report.failures) == 8
    assert reasons[0] == "HTTP 503: the queue is \\x1b[2J full"
    assert reasons[3].startswith("the answer is not what the API says: ")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"choices": []}',
        b'{"choices": [{"message": 3}]}',
        b'{"choices": [{"message": {"content": "x"}, "logprobs": {"content": [{}]}}]}',
    ],
)
def test_any_answer_is_an_answer_or_one_sentence(answer: bytes) -> None:
    report, _ = verified(FakeServer(failing={"a": (200, answer)}), ["a"], concurrencies=(1,))
    assert len(report.failures) == 2
    assert "\n" not in report.failures[0].reason


def test_as_much_is_compared_as_the_server_tells() -> None:
    planted = {"b": Planted(3)}
    strict = FakeServer(planted=planted, refused_fields=("return_tokens_as_token_ids",))
    report, form = verified(strict)
    assert (report.basis, form.wants_ids) == ("tokens", False)
    assert report.different[0].difference.token_index == 3  # type: ignore[union-attr]

    silent = FakeServer(planted=planted, ignored_fields=("logprobs",))
    report, _ = verified(silent)
    assert report.basis == "text"
    difference = report.different[0].difference
    assert difference is not None
    assert (difference.token_index, difference.char_index) == (None, len("one two three "))
    assert difference.swing is None

    bare = FakeServer(endpoints=("completions",), refused_fields=("logprobs",))
    report, form = verified(bare)
    assert form == Form("completions", 0, wants_ids=False)
    assert not report.different


def test_seeds_are_sent_above_temperature_zero_only() -> None:
    fake = FakeServer()
    verified(fake, concurrencies=(1,), num_rounds=1)
    assert not any("seed" in body for body in fake.bodies)
    fake.bodies.clear()
    drawn = Sampling(max_tokens=8, temperature=0.7, seed=40)
    verified(fake, concurrencies=(1,), num_rounds=2, sampling=drawn)
    seeds = {b["messages"][0]["content"]: b["seed"] for b in fake.bodies if "seed" in b}
    assert seeds == {"a": 40, "b": 41, "c": 42, "d": 43}


def test_what_cannot_be_asked_is_one_sentence_with_advice() -> None:
    for fake, sentence in (
        (FakeServer(endpoints=()), r"HTTP 404: no such endpoint; give its --model and --endpoint"),
        (
            FakeServer(failing={"Hello": (401, {"error": "no"})}),
            "HTTP 401: no; it asks for a key: give --api-key",
        ),
        (FakeServer(failing={"Hello": (500, b"")}), "does not answer a question: HTTP 500$"),
    ):
        with pytest.raises(ServerError, match=sentence):
            verified(fake)


def test_the_order_is_drawn_from_the_seed() -> None:
    orders = []
    for _ in range(2):
        fake = FakeServer()
        verified(fake, [str(i) for i in range(20)], concurrencies=(1,), num_rounds=2)
        asked = [body["messages"][0]["content"] for body in fake.bodies[1:]]
        orders.append((asked[:20], asked[20:]))
    assert orders[0] == orders[1]
    first, second = orders[0]
    assert first != second
    assert sorted(first) == sorted(second)
