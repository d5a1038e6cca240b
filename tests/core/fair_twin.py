"""The Virtual Token Counter as the paper writes it down, folded from what a scheduler said."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from headway.core.events import Admitted, Advanced, Event, Preempted, Queued, Resumed
from headway.core.policies.fair import OUTPUT_COST, PROMPT_COST
from headway.core.sequence import Sequence


class Twin:
    """Counters as fractions; a queue is a list, and every question looks at all of it."""

    def __init__(self, weights: Mapping[str, int], credit: int) -> None:
        self.weights = weights
        self.credit = credit
        self.counters: dict[str, Fraction] = {}
        self.queue: list[Sequence] = []
        self.joined: list[str] = []  # tenants that have somebody waiting, the first to join first
        self.last_left: str | None = None
        self.reached = Fraction(0)  # the most that a newcomer found at the head of the line
        self.sequences: dict[int, Sequence] = {}

    def names(self) -> set[str]:
        return {sequence.request.tenant for sequence in self.queue}

    def first(self) -> Sequence:
        """Of the tenant with the least counter, whoever is at the front."""
        name = min(self.joined, key=lambda name: (self.counters[name], self.joined.index(name)))
        return next(s for s in self.queue if s.request.tenant == name)

    def charge(self, name: str, cost: int) -> None:
        self.counters[name] += Fraction(cost, self.weights.get(name, 1))

    def comes(self, sequence: Sequence, *, to_the_front: bool) -> None:
        name = sequence.request.tenant
        if name not in self.names():
            self.counters.setdefault(name, Fraction(0))
            least = [self.counters[other] for other in self.names()]
            if not least and self.last_left is not None:
                least = [self.counters[self.last_left]]
            if least:
                self.reached = max(self.reached, min(least))
                start = min(min(least), self.reached - self.credit)
                self.counters[name] = max(self.counters[name], start)
            self.joined.append(name)
        self.queue.insert(0 if to_the_front else len(self.queue), sequence)

    def goes(self, sequence: Sequence) -> None:
        name = sequence.request.tenant
        self.queue.remove(sequence)
        if name not in self.names():
            self.joined.remove(name)
            self.last_left = name

    def hear(self, event: Event) -> None:
        match event:
            case Queued(sequence_id):
                self.comes(self.sequences[sequence_id], to_the_front=False)
            case Preempted(sequence_id):
                self.comes(self.sequences[sequence_id], to_the_front=True)
            case Admitted(sequence_id, _, num_cached_tokens):
                sequence = self.sequences[sequence_id]
                num_tokens = sequence.num_prompt_tokens - num_cached_tokens
                assert sequence is self.first()
                self.goes(sequence)
                self.charge(sequence.request.tenant, PROMPT_COST * num_tokens)
            case Resumed(sequence_id):
                assert self.sequences[sequence_id] is self.first()
                self.goes(self.sequences[sequence_id])
            case Advanced(sequence_id, _, token_ids):
                name = self.sequences[sequence_id].request.tenant
                self.charge(name, OUTPUT_COST * len(token_ids))

    def scaled(self) -> dict[str, int]:
        """As integers, in the unit of the scheduler's."""
        multiple = math.lcm(*self.weights.values())
        return {name: int(counter * multiple) for name, counter in self.counters.items()}
