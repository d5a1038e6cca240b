"""The decoder alone: chunking changes no bit, bfloat16 stays close, bad batches are refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from backends import BACKENDS, make_ops
from tiny import make_tiny_model, one_sequence_batch, run_in_chunks

from headway.model.loader import load_model
from headway.model.source import ModelSource
from headway.ops.cache import new_kv_cache

_TOKENS = np.random.default_rng(5).integers(3, 96, 50).tolist()
_QWEN3_WINDOW = {
    "architectures": ["Qwen3ForCausalLM"],
    "use_sliding_window": True,
    "sliding_window": 11,
    "max_window_layers": 1,
}
_CHUNKINGS = ([1] * 50, [17, 33], [16, 1, 16, 1, 16], [49, 1])


def tiny(tmp_path, overrides=None, *, backend="reference", dtype="float32"):
    directory = make_tiny_model(tmp_path, overrides or {})
    return load_model(ModelSource("tiny", "hf", directory), make_ops(backend), dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("overrides", [{}, _QWEN3_WINDOW], ids=["llama", "qwen3-window"])
def test_chunking_changes_no_bit(overrides, backend, dtype, tmp_path):
    model = tiny(tmp_path, overrides, backend=backend, dtype=dtype)
    whole = run_in_chunks(model, _TOKENS, [len(_TOKENS)], dtype)
    for chunks in _CHUNKINGS:
        assert np.array_equal(run_in_chunks(model, _TOKENS, chunks, dtype), whole), chunks


@pytest.mark.parametrize("backend", BACKENDS)
def test_bfloat16_is_close_to_float32(backend, tmp_path):
    exact = run_in_chunks(tiny(tmp_path), _TOKENS, [50])
    rounded = run_in_chunks(
        tiny(tmp_path, backend=backend, dtype="bfloat16"), _TOKENS, [50], "bfloat16"
    )
    error = np.abs(rounded - exact).max() / np.abs(exact).max()
    assert 0 < error < 0.05


def test_only_the_wanted_rows_get_logits(tmp_path):
    model = tiny(tmp_path)
    cache = new_kv_cache(2, 32, 16, 2, 16, "float32")
    whole = run_in_chunks(model, _TOKENS, [50])
    batch = one_sequence_batch(_TOKENS)
    rows = np.array([49, 3], dtype=np.int32)
    picked = dataclasses.replace(batch, logit_rows=rows)
    assert np.array_equal(model.decoder.forward(picked, cache), whole[rows])


def test_hidden_states_survive_the_next_step(tmp_path):
    model = tiny(tmp_path)
    cache = new_kv_cache(2, 32, 16, 2, 16, "float32")
    first = model.decoder.hidden_states(one_sequence_batch(_TOKENS[:9]), cache)
    kept = first.copy()
    model.decoder.hidden_states(one_sequence_batch(_TOKENS[9:20], 9), cache)
    assert np.array_equal(first, kept)


def test_positions_past_the_model_are_refused(tmp_path):
    model = tiny(tmp_path, {"max_position_embeddings": 32})
    cache = new_kv_cache(2, 32, 16, 2, 16, "float32")
    with pytest.raises(ValueError, match="positions must lie in"):
        model.decoder.forward(one_sequence_batch([5], first_position=32), cache)


def test_another_models_cache_is_refused(tmp_path):
    model = tiny(tmp_path)
    with pytest.raises(ValueError, match="KV cache"):
        model.decoder.forward(one_sequence_batch([5]), new_kv_cache(3, 32, 16, 2, 16, "float32"))


def test_dummy_weights_give_finite_logits_and_need_no_file(tmp_path):
    directory = make_tiny_model(tmp_path, {})
    (directory / "model.safetensors").unlink()
    source = ModelSource("tiny", "hf", directory)
    model = load_model(source, make_ops("reference"), "bfloat16", load_format="dummy")
    logits = run_in_chunks(model, _TOKENS, [50], "bfloat16")
    assert np.isfinite(logits).all()
    assert logits.std() > 0.1


@pytest.mark.parametrize(
    ("dtype", "load_format", "name"),
    [("float16", "auto", "dtype"), ("float32", "pickle", "load_format")],
)
def test_unknown_options_are_refused(dtype, load_format, name, tmp_path):
    directory = make_tiny_model(tmp_path, {})
    with pytest.raises(ValueError, match=name):
        load_model(
            ModelSource("t", "hf", directory), make_ops("reference"), dtype, load_format=load_format
        )


@pytest.mark.parametrize("row", [-1, 3])
def test_rows_outside_the_batch_are_refused(row, tmp_path):
    batch = one_sequence_batch([5, 6, 7])
    wrong = dataclasses.replace(batch, logit_rows=np.array([0, row], dtype=np.int32))
    with pytest.raises(ValueError, match="logit_rows"):
        tiny(tmp_path).decoder.forward(wrong, new_kv_cache(2, 32, 16, 2, 16, "float32"))
