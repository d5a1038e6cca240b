"""Where two outputs part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.insight.verify.difference import Gap, Output, Token, drift, first_difference

WORDS = st.lists(st.sampled_from([" a", " b", " cc", "d", "é", " "]), max_size=12)


def output(*words: str, finish: str = "stop", logprob: float | None = None) -> Output:
    tokens = tuple(Token(word, logprob) for word in words)
    return Output("".join(words), tokens, finish)


@given(WORDS)
def test_equal_outputs_do_not_differ(words: list[str]) -> None:
    assert first_difference(output(*words), output(*words)) is None


@given(WORDS, WORDS, WORDS)
def test_outputs_part_behind_what_they_share(
    shared: list[str], one: list[str], other: list[str]
) -> None:
    ways = [*shared, " ONE", *one], [*shared, "#two", *other]
    found = first_difference(output(*ways[0]), output(*ways[1]))
    assert found is not None
    assert found.token_index == len(shared)
    assert found.char_index == len("".join(shared))
    assert "".join(shared).endswith(found.shared)
    assert "".join(ways[0])[found.char_index :].startswith(found.alone)
    assert "".join(ways[1])[found.char_index :].startswith(found.loaded)


def test_one_that_ends_earlier_parts_at_its_end() -> None:
    found = first_difference(output(" a", " b"), output(" a", " b", " c", finish="length"))
    assert found is not None
    assert (found.token_index, found.char_index) == (2, 4)
    assert (found.alone, found.loaded) == ("", " c")
    assert found.swing is None


def test_another_reason_to_end_is_a_difference() -> None:
    found = first_difference(output(" a"), output(" a", finish="length"))
    assert found is not None
    assert (found.token_index, found.char_index) == (None, None)
    assert (found.alone_finish, found.loaded_finish) == ("stop", "length")


def test_the_same_text_of_other_tokens_and_other_text_of_the_same_tokens() -> None:
    found = first_difference(output(" a", "b"), output(" ab"))
    assert found is not None
    assert (found.token_index, found.char_index) == (0, None)
    tokens = (Token("token_id:1"), Token("token_id:2"))
    found = first_difference(Output("한국", tokens), Output("한\ufffd", tokens))
    assert found is not None
    assert (found.token_index, found.char_index) == (None, 1)


def test_without_tokens_texts_are_compared() -> None:
    found = first_difference(Output("abc", None), Output("abd", (Token("abd"),)))
    assert found is not None
    assert (found.token_index, found.char_index) == (None, 2)
    assert drift(Output("abc", None), Output("abc", None)) is None


def test_gaps_are_told_of_both_runs_and_bounded_where_the_other_was_unlikely() -> None:
    alone = Output(" x", (Token(" x", -1.0, {" x": -1.0, " y": -1.25}),))
    loaded = Output(" y", (Token(" y", -0.5, {" y": -0.5, " z": -4.5}),))
    found = first_difference(alone, loaded)
    assert found is not None
    assert found.alone_gap == Gap(0.25)
    assert found.loaded_gap == Gap(4.0, is_at_least=True)
    assert found.swing == Gap(4.25, is_at_least=True)
    bare = Output(" y", (Token(" y"),))
    assert first_difference(alone, bare).loaded_gap is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("alone", "loaded", "largest"),
    [
        (output(" a", " b", logprob=-1.0), output(" a", " b", logprob=-1.0), 0.0),
        (output(" a", " b", logprob=-1.0), output(" a", " c", logprob=-1.5), 0.5),
        (output(" a", logprob=-1.0), output(" b", logprob=-1.5), None),
        (output(" a"), output(" a", logprob=-1.5), None),
    ],
)
def test_drift_is_of_the_tokens_they_share(
    alone: Output, loaded: Output, largest: float | None
) -> None:
    assert drift(alone, loaded) == largest
