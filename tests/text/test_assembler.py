"""Detokenizing and stop strings together, as the server uses them."""

from __future__ import annotations

import vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.request import SamplingParams
from headway.text.assembler import Delta, TextAssembler
from headway.text.stop_strings import first_stop


def assembler(**sampling: object) -> TextAssembler:
    return TextAssembler(vocabularies.byte_level(), SamplingParams(**sampling))


def ids_of(text: str) -> list[int]:
    return vocabularies.byte_ids(vocabularies.byte_level(), text.encode())


def test_tokens_after_a_stop_string_are_ignored() -> None:
    one = assembler(stop=["END"])
    assert one.push(ids_of("héENDing")) == Delta("hé", "END", 6)
    assert one.is_stopped
    assert one.push(ids_of("more")) == Delta("")
    assert one.finish() == Delta("")


def test_the_stop_string_is_shown_when_asked_for() -> None:
    one = assembler(stop="END", include_stop_str_in_output=True)
    assert one.push(ids_of("xEN")) == Delta("x", None, 3)
    assert one.push(ids_of("D!")) == Delta("END", "END", 1)


def test_held_text_comes_out_at_the_end() -> None:
    one = assembler(stop=["END"])
    assert one.push(ids_of("xEN")).text == "x"
    assert one.finish() == Delta("EN")


def test_stop_strings_that_complete_within_min_tokens_do_not_count() -> None:
    one = assembler(stop=["ab"], min_tokens=2)
    assert one.push(ids_of("abxab!")) == Delta("abx", "ab", 5)
    across = assembler(stop=["ab"], min_tokens=1)
    assert across.push(ids_of("ab")) == Delta("", "ab", 2)


def test_special_tokens_show_only_when_asked_for() -> None:
    eos = vocabularies.byte_level().eos_token_id
    assert assembler().push([*ids_of("a"), eos]).text == "a"
    assert assembler(skip_special_tokens=False).push([*ids_of("a"), eos]).text == "a<|im_end|>"


@settings(max_examples=200, deadline=None)
@given(
    text=st.text("aé👍b", max_size=12),
    stops=st.lists(st.text("aé👍b", min_size=1, max_size=3), max_size=3),
    step=st.integers(1, 7),
)
def test_any_chunking_of_byte_tokens_gives_the_same_text(
    text: str, stops: list[str], step: int
) -> None:
    one, ids, shown, stopped_by = assembler(stop=stops), ids_of(text), "", None
    for start in range(0, len(ids), step):
        delta = one.push(ids[start : start + step])
        shown, stopped_by = shown + delta.text, stopped_by or delta.stopped_by
    shown += one.finish().text
    found = first_stop(text, stops)
    assert (shown, stopped_by) == ((text, None) if found is None else (text[: found[0]], found[1]))
