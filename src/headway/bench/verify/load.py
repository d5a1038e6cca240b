"""So many requests in flight, from the first of those that count to the end of the last."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence

from headway.bench.verify.client import Sampling
from headway.bench.verify.prompts import Prompt, strangers
from headway.insight.verify.report import Failure, Outcome, Run

Ask = Callable[[Prompt, Sampling], Awaitable[Outcome]]
_PAUSE_AFTER_FAILURE_S = 0.2
_STRANGERS_TEMPERATURE = 0.8


class Load:
    """One `Run` in the making: `concurrency` workers, who ask for strangers when the prompts
    that count are all under way, so that the last of them has as many beside it as the first.

    `run` fills as answers come. The order of the prompts is drawn from `shuffle_seed`, the
    concurrency and the round.
    """

    def __init__(
        self,
        ask: Ask,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        concurrency: int,
        round_index: int,
        shuffle_seed: int,
        on_outcome: Callable[[], None] = lambda: None,
    ) -> None:
        draws = random.Random(f"{shuffle_seed} {concurrency} {round_index}")
        order = list(enumerate(prompts))
        draws.shuffle(order)
        self._ask = ask
        self._sampling = sampling
        self._waiting = deque(order)
        self._num_prompts = len(order)
        self._strangers = _stranger_questions(draws, sampling.max_tokens)
        self._on_outcome = on_outcome
        self.run = Run(concurrency, round_index)

    async def play(self) -> None:
        """Until every prompt has an outcome; strangers still under way are cancelled."""
        workers = [asyncio.create_task(self._work()) for _ in range(self.run.concurrency)]
        try:
            await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for worker in workers:
                worker.cancel()
            ends = await asyncio.gather(*workers, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _work(self) -> None:
        """Ends when every prompt has its outcome: then nobody needs strangers."""
        while self._waiting:
            index, prompt = self._waiting.popleft()
            self.run.outcomes[index] = await self._ask(prompt, self._sampling_of(index))
            self._on_outcome()
        while len(self.run.outcomes) < self._num_prompts:
            outcome = await self._ask(*next(self._strangers))
            if isinstance(outcome, Failure):
                self.run.stranger_failures.append(outcome.reason)
                await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)

    def _sampling_of(self, index: int) -> Sampling:
        return dataclasses.replace(self._sampling, seed=(self._sampling.seed or 0) + index)


def _stranger_questions(draws: random.Random, most: int) -> Iterator[tuple[Prompt, Sampling]]:
    for prompt in strangers(draws):
        yield (
            prompt,
            Sampling(max_tokens=draws.randint(1, most), temperature=_STRANGERS_TEMPERATURE),
        )
