"""Small tokenizers, trained here, in the form of a GGUF file's metadata."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import tokenizers
from text_corpus import TRAINING_TEXTS
from tokenizers import models, normalizers, pre_tokenizers, trainers

from headway.text.tokenizer import Tokenizer
from headway.text.tokenizer_gguf import tokenizer_from_gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]


@cache
def trained_byte_level() -> tokenizers.Tokenizer:
    """Byte-level BPE without special tokens, whose merges cross words of every kind."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Lines of one word each give merges inside words, whole texts those across them.
    words = [word for text in TRAINING_TEXTS for word in text.replace(" ", "\n ").split("\n")]
    backend.train_from_iterator(words + TRAINING_TEXTS, trainer)
    return backend


def merges_of(backend: tokenizers.Tokenizer) -> list[str]:
    return [" ".join(pair) for pair in json.loads(backend.to_str())["model"]["merges"]]


@cache
def _byte_level_lists() -> tuple[tuple[str, ...], tuple[str, ...]]:
    backend = trained_byte_level()
    vocabulary = backend.get_vocab()
    return tuple(sorted(vocabulary, key=vocabulary.__getitem__)), tuple(merges_of(backend))


def byte_level_metadata(kind: str = "smollm", **more: Any) -> dict[str, Any]:
    tokens, merges = _byte_level_lists()
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": kind,
        "tokenizer.ggml.tokens": [*tokens, *SPECIAL, "<think>"],
        "tokenizer.ggml.token_type": [NORMAL] * len(tokens) + [CONTROL] * 3 + [USER_DEFINED],
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.bos_token_id": len(tokens) + 1,
        "tokenizer.ggml.eos_token_id": len(tokens) + 2,
        "tokenizer.ggml.add_bos_token": False,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def sentencepiece_metadata(**more: Any) -> dict[str, Any]:
    pieces = ["<unk>", "<s>", "</s>", *BYTE_PIECES]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    words = _trained_pieces()
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces + words,
        "tokenizer.ggml.token_type": types + [NORMAL] * len(words),
        "tokenizer.ggml.scores": [0.0] * len(pieces) + [-float(i) for i in range(len(words))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


@cache
def _trained_pieces() -> list[str]:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    backend.train_from_iterator(
        TRAINING_TEXTS, trainers.BpeTrainer(vocab_size=500, show_progress=False)
    )
    vocabulary = backend.get_vocab()
    merged = sorted((p for p in vocabulary if len(p) > 1), key=vocabulary.__getitem__)
    return merged + sorted(p for p in vocabulary if len(p) == 1)


@cache
def byte_level() -> Tokenizer:
    return tokenizer_from_gguf(byte_level_metadata())


@cache
def sentencepiece() -> Tokenizer:
    return tokenizer_from_gguf(sentencepiece_metadata())


@cache
def sentencepiece_without_prefix() -> Tokenizer:
    return tokenizer_from_gguf(sentencepiece_metadata(add_space_prefix=False))


def byte_ids(tokenizer: Tokenizer, raw: bytes) -> list[int]:
    """One token for each byte."""
    id_of = {tokenizer.token_bytes(i): i for i in reversed(range(tokenizer.vocab_size))}
    if (first := tokenizer.token_to_id("<0x00>")) is not None:
        return [first + byte for byte in raw]
    return [id_of[bytes([byte])] for byte in raw]


TOKENIZERS = {
    "byte-level": byte_level,
    "sentencepiece": sentencepiece,
    "sentencepiece without prefix": sentencepiece_without_prefix,
}
