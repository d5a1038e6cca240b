"""What bytes each token stands for: the decoder of a tokenizer, taken apart into a per-token rule.

A decoder in `tokenizer.json` is a pipeline over the whole list of tokens. For every pipeline that
generating models use, the result is the tokens' bytes joined, read as UTF-8, less some characters
at the very start. That form can be streamed: a token costs its own bytes and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# A step maps a piece to a piece; once it is bytes, only the joining is left.
Piece = str | bytes
Step = Callable[[Piece], Piece]


class UnknownDecoderError(ValueError):
    """The decoder pipeline has a step that has no per-token form."""


@dataclass(frozen=True, slots=True)
class DecodeRule:
    """`steps` apply to every token, `first_steps` to the first token of a text.

    `strip_char` is removed up to `strip_count` times from the start of the whole text.
    """

    steps: tuple[Step, ...]
    first_steps: tuple[Step, ...]
    strip_char: str = " "
    strip_count: int = 0

    def token_bytes(self, piece: str) -> bytes:
        return _run(self.steps, piece)

    def first_token_bytes(self, piece: str) -> bytes:
        return _run(self.first_steps, piece)


@dataclass(slots=True)
class _RuleDraft:
    steps: list[Step] = field(default_factory=list)
    first_steps: list[Step] = field(default_factory=list)
    strip_char: str = " "
    strip_count: int = 0
    is_fused: bool = False

    def add(self, step: Step, first: Step | None = None) -> None:
        self.steps.append(step)
        self.first_steps.append(first or step)


def decode_rule(spec: Mapping[str, object] | None) -> DecodeRule:
    """The rule for a decoder as `tokenizer.json` writes it; None is no decoder.

    Raises UnknownDecoderError with a sentence when the decoder has no per-token form.
    """
    draft = _RuleDraft()
    if spec is None:
        # Without a decoder the tokens are joined by spaces.
        draft.add(lambda piece: _on_text(piece, lambda text: " " + text), first=lambda piece: piece)
    else:
        _add_decoder(draft, spec)
    return DecodeRule(
        tuple(draft.steps), tuple(draft.first_steps), draft.strip_char, draft.strip_count
    )


def _add_decoder(draft: _RuleDraft, spec: Mapping[str, object]) -> None:
    kind = spec.get("type")
    if kind not in _ADDERS:
        raise UnknownDecoderError(
            f"the tokenizer's decoder is of type {kind!r}, which cannot be streamed exactly: "
            f"supported are {', '.join(_ADDERS)}"
        )
    _ADDERS[str(kind)](draft, spec)


def _add_sequence(draft: _RuleDraft, spec: Mapping[str, object]) -> None:
    decoders = spec.get("decoders")
    if not isinstance(decoders, list) or not all(isinstance(d, Mapping) for d in decoders):
        raise UnknownDecoderError("the tokenizer's decoder sequence is not a list of decoders")
    for decoder in decoders:
        _add_decoder(draft, decoder)


def _add_byte_level(draft: _RuleDraft, spec: Mapping[str, object]) -> None:
    draft.add(_byte_level)


def _add_byte_fallback(draft: _RuleDraft, spec: Mapping[str, object]) -> None:
    draft.add(_byte_fallback)


def _add_fuse(draft: _RuleDraft, spec: Mapping[str, object]) -> None:
    draft.is_fused = True


def _add_replace(draft: _RuleDraft, spec: Mapping[str, object]) -> None:
    pattern, content = spec.get("pattern"), spec.get("content")
    old = pattern.get("String") if isinstance(pattern, Mapping) else None
    if not isinstance(old, str) or not old or not isinstance(content, str):
        raise UnknownDecoderError("the tokenizer's decoder replaces by a regular expression")
    if draft.is_fused and len(old) > 1:
        raise UnknownDecoderError(
            f"the tokenizer's decoder replaces {old!r} across token borders, "
            "which cannot be streamed exactly"
        )
    draft.add(lambda piece: _on_text(piece, lambda text: text.replace(old, content)))


def _add_strip(draft: _RuleDraft, spec: Mapping[str, object]) -> None:
    char, start, stop = spec.get("content"), spec.get("start"), spec.get("stop")
    if not isinstance(char, str) or not isinstance(start, int) or not isinstance(stop, int):
        raise UnknownDecoderError("the tokenizer's Strip decoder lacks content, start or stop")
    if not draft.is_fused:
        draft.add(lambda piece: _on_text(piece, lambda text: _strip(text, char, start, stop)))
    elif stop == 0:
        draft.strip_char, draft.strip_count = char, start
    else:
        raise UnknownDecoderError(
            "the tokenizer's decoder strips the end of the text, which cannot be streamed exactly"
        )


def _add_metaspace(draft: _RuleDraft, spec: Mapping[str, object]) -> None:
    mark = str(spec.get("replacement") or "▁")
    has_prefix = spec.get("prepend_scheme", "always") != "never"
    draft.add(
        lambda piece: _on_text(piece, lambda text: text.replace(mark, " ")),
        first=lambda piece: _on_text(piece, lambda t: t.replace(mark, "" if has_prefix else " ")),
    )


_ADDERS: dict[str, Callable[[_RuleDraft, Mapping[str, object]], None]] = {
    "ByteLevel": _add_byte_level,
    "ByteFallback": _add_byte_fallback,
    "Fuse": _add_fuse,
    "Metaspace": _add_metaspace,
    "Replace": _add_replace,
    "Sequence": _add_sequence,
    "Strip": _add_strip,
}


def byte_level_alphabet() -> dict[str, int]:
    """Character → byte of byte-level BPE: printable Latin-1 stands for itself.

    The 68 other bytes, in ascending order, are written as U+0100 and up.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


_BYTE_OF_CHAR = byte_level_alphabet()


def _byte_level(piece: Piece) -> Piece:
    if isinstance(piece, bytes):
        return piece
    # An added token may hold characters outside the alphabet; it then stands for itself.
    values = [_BYTE_OF_CHAR.get(char) for char in piece]
    known = [value for value in values if value is not None]
    return bytes(known) if len(known) == len(values) else piece.encode()


def _byte_fallback(piece: Piece) -> Piece:
    if isinstance(piece, str) and len(piece) == 6 and piece.startswith("<0x") and piece[5] == ">":
        digits = piece[3:5]
        if all(char in "0123456789abcdefABCDEF" for char in digits):
            return bytes([int(digits, 16)])
    return piece


def _strip(text: str, char: str, start: int, stop: int) -> str:
    first = 0
    while first < min(start, len(text)) and text[first] == char:
        first += 1
    last = len(text)
    while last > max(first, len(text) - stop) and text[last - 1] == char:
        last -= 1
    return text[first:last]


def _on_text(piece: Piece, change: Callable[[str], str]) -> Piece:
    return change(piece) if isinstance(piece, str) else piece


def _run(steps: tuple[Step, ...], piece: Piece) -> bytes:
    for step in steps:
        piece = step(piece)
    return piece.encode() if isinstance(piece, str) else piece
