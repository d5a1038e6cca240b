"""Loading: one matrix for input and output, files in pieces, every format to the same weights."""

from __future__ import annotations

import numpy as np
import pytest
from backends import BACKENDS, make_ops
from tiny import make_tiny_model, run_in_chunks

import headway.model.loader as loading
from headway.model.loader import load_model
from headway.model.source import ModelSource

_TOKENS = np.random.default_rng(8).integers(3, 96, 40).tolist()
_TIED = {"tie_word_embeddings": True}


def logits(tmp_path, backend, dtype="bfloat16", quantization=None):
    model = load_model(
        ModelSource("tiny", "hf", tmp_path), make_ops(backend), dtype, quantization=quantization
    )
    return run_in_chunks(model, _TOKENS, [40], dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_shared_table_gives_the_bits_of_one_of_its_own(backend, dtype, tmp_path, monkeypatch):
    make_tiny_model(tmp_path, _TIED)
    shared = logits(tmp_path, backend, dtype)
    monkeypatch.setattr(type(make_ops(backend)), "as_table", lambda self, weight: None)
    assert np.array_equal(logits(tmp_path, backend, dtype), shared)


@pytest.mark.parametrize("quantization", [None, "int8"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_pieces_change_no_bit(backend, quantization, tmp_path, monkeypatch):
    make_tiny_model(tmp_path, _TIED)
    whole = logits(tmp_path, backend, quantization=quantization)
    monkeypatch.setattr(loading, "_PIECE_BYTES", 1)
    monkeypatch.setattr(loading, "_PIECE_ROWS", 32)
    assert np.array_equal(logits(tmp_path, backend, quantization=quantization), whole)


def test_the_file_may_change_after_loading(tmp_path):
    """int8 keeps the embedding as rows of its own: copied, not mapped."""
    directory = make_tiny_model(tmp_path, _TIED)
    model = load_model(
        ModelSource("tiny", "hf", directory), make_ops("reference"), "float32", quantization="int8"
    )
    before = run_in_chunks(model, _TOKENS, [40])
    file = directory / "model.safetensors"
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.write(bytes(size))
    assert np.array_equal(run_in_chunks(model, _TOKENS, [40]), before)
