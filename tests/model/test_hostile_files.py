"""Damaged and malicious weight files: one sentence or a load, never anything else."""

from __future__ import annotations

import contextlib
import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import BASE, make_tiny_llama, make_tiny_model, random_tensors, write_safetensors

from headway.model.config import ModelError
from headway.model.loader import load_model
from headway.model.source import ModelSource
from headway.model.weights.gguf import read_gguf
from headway.ops.reference.backend import ReferenceOps

_SMALL = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 8}
_SMALL |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4}


def load(path, kind="hf"):
    return load_model(ModelSource("tiny", kind, path), ReferenceOps(), "float32")


def test_a_missing_tensor_is_named(tmp_path):
    tensors = random_tensors(BASE)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    make_tiny_llama(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", tensors)
    with pytest.raises(ModelError, match=r"lacks tensor 'model\.layers\.1\.mlp\.up_proj\.weight'"):
        load(tmp_path)


def test_a_wrong_shape_is_named_with_both_shapes(tmp_path):
    tensors = random_tensors(BASE)
    tensors["model.norm.weight"] = np.ones(63, dtype=np.float32)
    make_tiny_llama(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", tensors)
    with pytest.raises(ModelError, match=r"model\.norm\.weight.*\[64\].*\[63\]"):
        load(tmp_path)


def test_a_tensor_that_nobody_would_read_is_refused(tmp_path):
    tensors = random_tensors(BASE)
    tensors["model.layers.0.self_attn.q_norm.weight"] = np.ones(16, dtype=np.float32)
    make_tiny_llama(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", tensors)
    with pytest.raises(ModelError, match=r"q_norm\.weight.*not part of LlamaForCausalLM"):
        load(tmp_path)


def test_a_tied_model_may_carry_its_head_and_old_rope_buffers(tmp_path):
    make_tiny_llama(tmp_path, tie_word_embeddings=True)
    tensors = random_tensors({**BASE, "tie_word_embeddings": True})
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8, dtype=np.float32)
    write_safetensors(tmp_path / "model.safetensors", tensors)
    assert load(tmp_path).config.tie_word_embeddings


def test_integers_are_not_weights(tmp_path):
    make_tiny_llama(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"F32"', b'"I32"'))
    with pytest.raises(ModelError, match="I32"):
        load(tmp_path)


def test_pickled_weights_are_not_looked_at(tmp_path):
    make_tiny_llama(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="only safetensors and GGUF"):
        load(tmp_path)


@pytest.mark.parametrize(
    "shard",
    [
        "../model.safetensors",
        "/etc/passwd",
        "a/../../b.safetensors",
        "..\\x.safetensors",
        "a\0.safetensors",
        "absent.safetensors",
        "x.bin",
        "..",
        "",
        3,
        None,
        ["a"],
    ],
)
def test_an_index_may_name_only_files_beside_it(shard, tmp_path):
    directory = tmp_path / "model"
    make_tiny_model(directory, {}, shards=2)
    make_tiny_llama(tmp_path)  # what the traversal would find
    index = directory / "model.safetensors.index.json"
    parsed = json.loads(index.read_text())
    parsed["weight_map"]["model.norm.weight"] = shard
    index.write_text(json.dumps(parsed))
    with pytest.raises(ModelError, match=r"shards must be|is missing"):
        load(directory)


@pytest.mark.parametrize("weight_map", [None, {}, [], "x"])
def test_an_index_without_a_map_is_refused(weight_map, tmp_path):
    make_tiny_llama(tmp_path)
    index = {"weight_map": weight_map}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="weight_map"):
        load(tmp_path)


def test_an_index_that_disagrees_with_its_shards_is_refused(tmp_path):
    make_tiny_model(tmp_path, {}, shards=2)
    index = tmp_path / "model.safetensors.index.json"
    parsed = json.loads(index.read_text())
    files = sorted(set(parsed["weight_map"].values()))
    parsed["weight_map"] = {
        name: files[1 - files.index(file)] for name, file in parsed["weight_map"].items()
    }
    index.write_text(json.dumps(parsed))
    with pytest.raises(ModelError, match="lacks tensor"):
        load(tmp_path)


@pytest.fixture(scope="module")
def small_safetensors(tmp_path_factory):
    return make_tiny_llama(tmp_path_factory.mktemp("small"), **_SMALL)


@pytest.fixture(scope="module")
def small_gguf(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "small.gguf"
    path.write_bytes(small_gguf_bytes())
    return path


def small_gguf_bytes() -> bytes:
    """A valid llama file, written by hand, so that this test needs no package."""
    numbers = {
        "llama.context_length": 64,
        "llama.embedding_length": 8,
        "llama.block_count": 1,
        "llama.feed_forward_length": 8,
        "llama.attention.head_count": 2,
        "tokenizer.ggml.eos_token_id": 2,
    }
    entries = [_text("general.architecture") + struct.pack("<I", 8) + _text("llama")]
    entries += [_text(key) + struct.pack("<II", 4, value) for key, value in numbers.items()]
    entries.append(_text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5))
    words = b"".join(_text(word) for word in "abcdefgh")
    entries.append(_text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 8) + words)
    names = {"token_embd": (8, 8), "output_norm": (8,), "blk.0.attn_norm": (8,)}
    names |= {"blk.0.ffn_norm": (8,)}
    names |= {f"blk.0.attn_{role}": (8, 8) for role in ("q", "k", "v", "output")}
    names |= {f"blk.0.ffn_{role}": (8, 8) for role in ("gate", "up", "down")}
    directory, offset = b"", 0
    for name, shape in names.items():
        directory += _text(f"{name}.weight") + struct.pack("<I", len(shape))
        directory += struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", 0, offset)
        offset += 256 if len(shape) == 2 else 32
    header = b"GGUF" + struct.pack("<IQQ", 3, len(names), len(entries))
    header += b"".join(entries) + directory
    header += b"\0" * (-len(header) % 32)
    values = np.random.default_rng(0).standard_normal(offset // 4).astype("<f4")
    return header + values.tobytes()


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def test_the_small_files_are_valid(small_safetensors, small_gguf):
    assert load(small_safetensors).config.hidden_size == 8
    model = load(small_gguf, "gguf")
    assert model.config.eos_token_ids == (2,)
    assert read_gguf(small_gguf).metadata["tokenizer.ggml.tokens"] == list("abcdefgh")


def test_every_truncation_of_a_gguf_file_is_refused(tmp_path):
    whole = small_gguf_bytes()
    path = tmp_path / "cut.gguf"
    for length in [*range(0, 1200, 7), *range(1200, len(whole), 211), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            load(path, "gguf")


def test_every_truncation_of_a_safetensors_file_is_refused(small_safetensors, tmp_path):
    whole = (small_safetensors / "model.safetensors").read_bytes()
    make_tiny_llama(tmp_path, **_SMALL)
    for length in [*range(0, len(whole), 61), len(whole) - 1]:
        (tmp_path / "model.safetensors").write_bytes(whole[:length])
        with pytest.raises(ModelError):
            load(tmp_path)


def loads_or_refuses(path, kind):
    """A ModelError, or a model; anything else fails the test by being raised."""
    with contextlib.suppress(ModelError):
        assert load(path, kind).config.num_layers >= 1


_DAMAGE = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(damage=_DAMAGE)
def test_a_damaged_gguf_file_loads_or_is_refused(damage, tmp_path_factory):
    stored = bytearray(small_gguf_bytes())
    for position, value in damage:
        stored[position % len(stored)] = value
    path = tmp_path_factory.mktemp("fuzz") / "fuzz.gguf"
    path.write_bytes(stored)
    loads_or_refuses(path, "gguf")


@settings(max_examples=150, deadline=None, derandomize=True)
@given(damage=_DAMAGE)
def test_a_damaged_safetensors_file_loads_or_is_refused(damage, tmp_path_factory):
    directory = make_tiny_llama(tmp_path_factory.mktemp("fuzz"), **_SMALL)
    path = directory / "model.safetensors"
    stored = bytearray(path.read_bytes())
    for position, value in damage:
        stored[position % len(stored)] = value
    path.write_bytes(stored)
    loads_or_refuses(directory, "hf")


_COUNTS = (2**63, 2**64 - 1, 2**40, 2**32, 10**7)


@pytest.mark.parametrize("count", _COUNTS)
@pytest.mark.parametrize("offset", [8, 16, 24])  # tensors, entries, the first key's length
def test_a_huge_count_is_refused_before_anything_is_allocated(offset, count, tmp_path):
    stored = bytearray(small_gguf_bytes())
    stored[offset : offset + 8] = struct.pack("<Q", count)
    (tmp_path / "x.gguf").write_bytes(stored)
    with pytest.raises(ModelError, match="claims"):
        load(tmp_path / "x.gguf", "gguf")


@pytest.mark.parametrize("version", [1, 4, 0x03000000])
def test_other_versions_are_refused(version, tmp_path):
    stored = bytearray(small_gguf_bytes())
    stored[4:8] = struct.pack("<I", version)
    (tmp_path / "x.gguf").write_bytes(stored)
    with pytest.raises(ModelError, match="version"):
        load(tmp_path / "x.gguf", "gguf")


def test_nested_arrays_have_a_floor(tmp_path):
    """An array of arrays of arrays ... must not exhaust the stack."""
    nested = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 5000
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + _text("deep") + nested
    (tmp_path / "x.gguf").write_bytes(header)
    with pytest.raises(ModelError, match="unknown type"):
        read_gguf(tmp_path / "x.gguf")


@pytest.mark.parametrize("contents", [b"", b"G", b"PK\x03\x04" + b"\0" * 100])
def test_what_is_no_gguf_file_is_refused(contents, tmp_path):
    (tmp_path / "x.gguf").write_bytes(contents)
    with pytest.raises(ModelError):
        read_gguf(tmp_path / "x.gguf")
