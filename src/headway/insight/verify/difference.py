"""Where two outputs of one request part, and how near the two ways lay to each other there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_NUM_SHOWN = 40  # characters before and after the place


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an output: its text, or `token_id:N`, and what else was likely there."""

    name: str
    logprob: float | None = None
    likeliest: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """What a server answered. `tokens` is None where it tells none."""

    text: str
    tokens: tuple[Token, ...] | None = None
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """By how much a run preferred its own token to the other run's, in nats.

    `is_at_least`: the other's was not among the likeliest that the server told.
    """

    nats: float
    is_at_least: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`token_index`: None where no token differs, or none are known; `char_index`: None where no
    character does; neither where the two only ended for different reasons. A gap is None where
    logprobs were not told, or one of the two has ended."""

    token_index: int | None
    char_index: int | None
    shared: str  # the end of what both say
    alone: str  # how each goes on
    loaded: str
    alone_finish: str | None
    loaded_finish: str | None
    alone_gap: Gap | None = None
    loaded_gap: Gap | None = None

    @property
    def swing(self) -> Gap | None:
        """How far the two tokens moved against each other from one run to the other."""
        if self.alone_gap is None or self.loaded_gap is None:
            return None
        is_at_least = self.alone_gap.is_at_least or self.loaded_gap.is_at_least
        return Gap(self.alone_gap.nats + self.loaded_gap.nats, is_at_least)


def first_difference(alone: Output, loaded: Output) -> Difference | None:
    """None for equal outputs: the same tokens, text and reason to end. Logprobs may differ."""
    token_index = None
    if alone.tokens is not None and loaded.tokens is not None:
        token_index = _first_unequal(_names(alone.tokens), _names(loaded.tokens))
    char_index = _first_unequal(alone.text, loaded.text)
    is_same = token_index is None and char_index is None
    if is_same and alone.finish_reason == loaded.finish_reason:
        return None
    place = len(alone.text) if char_index is None else char_index
    return Difference(
        token_index=token_index,
        char_index=char_index,
        shared=alone.text[max(0, place - _NUM_SHOWN) : place],
        alone=alone.text[place : place + _NUM_SHOWN],
        loaded=loaded.text[place : place + _NUM_SHOWN],
        alone_finish=alone.finish_reason,
        loaded_finish=loaded.finish_reason,
        alone_gap=_gap(alone, loaded, token_index),
        loaded_gap=_gap(loaded, alone, token_index),
    )


def drift(alone: Output, loaded: Output) -> float | None:
    """The largest change of a logprob over the tokens that both have, up to where they part.

    None where there is nothing to compare. The token at which they part counts where it is the
    same one; what was else likely does not count.
    """
    changes = [
        abs(one.logprob - other.logprob)
        for one, other in _shared(alone.tokens or (), loaded.tokens or ())
        if one.logprob is not None and other.logprob is not None
    ]
    return max(changes, default=None)


def _shared(alone: Sequence[Token], loaded: Sequence[Token]) -> list[tuple[Token, Token]]:
    end = _first_unequal(_names(alone), _names(loaded))
    return list(zip(alone[:end], loaded[:end], strict=True))


def _gap(own: Output, other: Output, index: int | None) -> Gap | None:
    if index is None or own.tokens is None or other.tokens is None:
        return None
    if index >= len(own.tokens) or index >= len(other.tokens):
        return None  # one of them has ended
    mine, wanted = own.tokens[index], other.tokens[index].name
    if mine.logprob is None or not mine.likeliest:
        return None
    if wanted in mine.likeliest:
        return Gap(mine.logprob - mine.likeliest[wanted])
    return Gap(mine.logprob - min(mine.likeliest.values()), is_at_least=True)


def _names(tokens: Sequence[Token]) -> list[str]:
    return [token.name for token in tokens]


def _first_unequal(one: Sequence[str], other: Sequence[str]) -> int | None:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return None if len(one) == len(other) else min(len(one), len(other))
