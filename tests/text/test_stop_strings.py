"""A stop string is found across every split, and no part of one is given out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.text.stop_strings import StopStrings, first_stop

STOPS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4)


def pushed(stops: list[str], pieces: list[str], *, include: bool = False) -> tuple[str, str | None]:
    watcher = StopStrings(stops, include=include)
    shown = ""
    for piece in pieces:
        text, stop = watcher.push(piece)
        shown += text
        if stop is not None:
            return shown, stop
    return shown + watcher.flush(), None


def expected(text: str, stops: list[str], *, include: bool) -> tuple[str, str | None]:
    found = first_stop(text, stops)
    if found is None:
        return text, None
    start, stop = found
    return text[: start + len(stop) if include else start], stop


def cut(text: str, mask: int) -> list[str]:
    pieces = [""]
    for position, char in enumerate(text):
        if mask >> position & 1:
            pieces.append("")
        pieces[-1] += char
    return pieces


@settings(max_examples=300, deadline=None)
@given(text=st.text("abc", max_size=8), stops=STOPS, include=st.booleans())
def test_every_split_gives_what_the_whole_text_gives(
    text: str, stops: list[str], include: bool
) -> None:
    wanted = expected(text, stops, include=include)
    for mask in range(2 ** len(text)):
        assert pushed(stops, cut(text, mask), include=include) == wanted


@settings(max_examples=300, deadline=None)
@given(text=st.text("abc", max_size=20), stops=STOPS)
def test_only_the_longest_beginning_of_a_stop_is_held(text: str, stops: list[str]) -> None:
    watcher, shown, seen = StopStrings(stops), "", ""
    for char in text:
        piece, stop = watcher.push(char)
        if stop is not None:
            return
        shown, seen = shown + piece, seen + char
        beginnings = {s[:n] for s in stops for n in range(len(s))}
        held = max((b for b in beginnings if seen.endswith(b)), key=len)
        assert shown + held == seen


@settings(max_examples=300, deadline=None)
@given(text=st.text("ab", max_size=12), stops=STOPS, num_free=st.integers(0, 12))
def test_a_stop_counts_only_when_it_completes_late_enough(
    text: str, stops: list[str], num_free: int
) -> None:
    watcher, shown, found = StopStrings(stops), "", None
    for position, char in enumerate(text):
        piece, found = watcher.push(char, may_stop=position >= num_free)
        shown += piece
        if found:
            break
    wanted = first_stop(text, stops, min_end=num_free)
    assert (shown + watcher.flush(), found) == (
        (text, None) if wanted is None else (text[: wanted[0]], wanted[1])
    )


def test_a_stop_that_did_not_count_is_not_held() -> None:
    assert StopStrings(["ab"]).push("xab", may_stop=False) == ("xab", None)
    assert StopStrings(["ab", "ba"]).push("xab", may_stop=False) == ("xa", None)
    assert StopStrings(["ab", "abc"]).push("xab", may_stop=False) == ("x", None)


def test_nothing_of_a_stop_is_shown_before_it_completes() -> None:
    watcher = StopStrings(["DEFGHIJ"])
    pieces = [watcher.push(piece) for piece in ["ABC", "DEF", "G", "HI", "J", "KL"]]
    assert pieces == [("ABC", None), *[("", None)] * 3, ("", "DEFGHIJ"), ("", None)]


def test_what_completes_first_wins_and_the_longer_of_two_that_end_together() -> None:
    assert pushed(["abcd", "c"], ["abcd"]) == ("ab", "c")
    assert pushed(["c", "bc"], ["abcd"]) == ("a", "bc")


def test_text_that_begins_no_stop_is_not_delayed() -> None:
    assert StopStrings(["</end>"]).push("a < b </e then") == ("a < b </e then", None)


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="non-empty"):
        StopStrings(["a", ""])
