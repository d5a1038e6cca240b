"""The choices of one HTTP request, without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import tokenizers

from headway.core.events import Admitted, Advanced, Event, Queued, Retired
from headway.core.request import FinishReason, Request, SamplingParams
from headway.server.generation import ChoiceDelta, Delivery, Generation
from headway.server.subscription import UpdateRouter
from headway.text.tokenizer import Tokenizer
from tests.server.bench import byte_tokenizer

ENDED = Retired(0, "r", FinishReason.LENGTH)


def words_with_spaces() -> Tokenizer:
    """As SentencePiece writes them: a word begins with its space."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({"▁so": 0, "▁it": 1}, []))
    backend.decoder = tokenizers.decoders.Metaspace()
    return Tokenizer(backend)


def deltas(
    turns: Sequence[Sequence[Event]],
    *,
    n: int = 1,
    tokenizer: Tokenizer | None = None,
    delivery: Delivery | None = None,
    together: bool = False,
) -> list[list[ChoiceDelta]]:
    """What comes out of each batch. `together`: the reader is late, all turns came before."""

    async def run() -> list[list[ChoiceDelta]]:
        router = UpdateRouter()
        request = Request(
            request_id="r", prompt_token_ids=(1,), sampling=SamplingParams(n=n, max_tokens=99)
        )
        subscription = router.open([request], lambda *_: None)
        generation = Generation(
            subscription,
            [request],
            tokenizer or byte_tokenizer(),
            delivery or Delivery(),
            lambda: 1,
        )
        queued = [e for i in range(n) for e in (Queued(i, "r", i), Admitted(i, "r", 0))]
        router.deliver(queued, [])

        async def feed() -> None:
            for turn in turns:
                router.deliver(turn, [])
                if not together:
                    await asyncio.sleep(0.01)

        if together:
            await feed()
        feeder = asyncio.create_task(asyncio.sleep(0) if together else feed())
        found = [list(batch) async for batch in generation.batches()]
        await feeder
        return [batch for batch in found if batch]

    return asyncio.run(run())


@pytest.mark.parametrize(("follows", "text"), [(True, " so it"), (False, "so it")])
def test_a_completion_keeps_the_space_of_its_first_word(follows: bool, text: str) -> None:
    turns = [[Advanced(0, "r", (0,))], [Advanced(0, "r", (1,)), ENDED]]
    delivery = Delivery(follows_text=follows)
    batches = deltas(turns, tokenizer=words_with_spaces(), delivery=delivery)
    assert "".join(delta.text for batch in batches for delta in batch) == text


def test_one_turn_is_one_batch() -> None:
    turns = [
        [Advanced(0, "r", (97,)), Advanced(1, "r", (98,))],
        [Advanced(0, "r", (99,)), ENDED, Retired(1, "r", FinishReason.LENGTH)],
    ]
    batches = deltas(turns, n=2)
    assert [[(d.index, d.text) for d in batch] for batch in batches] == [
        [(0, "a"), (1, "b")],
        [(0, "c"), (1, "")],
    ]


def test_a_late_reader_gets_everything_at_once_and_in_order() -> None:
    turns = [[Advanced(0, "r", (97 + i,))] for i in range(5)]
    [batch] = deltas([*turns, [ENDED]], together=True)
    assert "".join(delta.text for delta in batch) == "abcde"
    assert batch[-1].finish_reason is FinishReason.LENGTH
    assert [delta.is_first for delta in batch] == [True, False, False, False, False, False]


def test_without_an_interval_there_is_one_delta() -> None:
    turns = [[Advanced(0, "r", (97 + i,))] for i in range(5)]
    [[delta]] = deltas([*turns, [ENDED]], delivery=Delivery(interval=None))
    assert (delta.text, list(delta.token_ids)) == ("abcde", [97, 98, 99, 100, 101])


def test_a_scored_prompt_shows_no_output() -> None:
    delivery = Delivery(interval=None, shows_output=False)
    [[delta]] = deltas([[Advanced(0, "r", (97,)), ENDED]], delivery=delivery)
    assert (delta.text, list(delta.token_ids)) == ("", [])
    assert delta.finish_reason is FinishReason.LENGTH
