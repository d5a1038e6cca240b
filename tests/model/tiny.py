"""Tiny random models on disk, made with numpy alone, in milliseconds."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from headway.model.hf_config import parse_hf_config
from headway.model.weights.names import HF_NAMES, expected_shapes
from headway.ops.bfloat16 import to_bf16
from headway.ops.cache import new_kv_cache
from headway.ops.interface import TokenBatch

BASE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_STORED = {"F32": np.float32, "F16": np.float16, "BF16": to_bf16}


def make_tiny_llama(directory: Path, **overrides: object) -> Path:
    """A Llama of 2 layers, width 64, vocabulary 96; overrides are keys of its config.json."""
    return make_tiny_model(directory, overrides)


def make_tiny_model(
    directory: Path,
    overrides: dict[str, object],
    *,
    stored: str = "F32",
    shards: int = 1,
    seed: int = 0,
) -> Path:
    """Any served family, by `architectures` and `model_type`; random weights, stored as asked."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {**BASE, **overrides}
    (directory / "config.json").write_text(json.dumps(config))
    tensors = random_tensors(config, seed)
    if shards == 1:
        write_safetensors(directory / "model.safetensors", tensors, stored)
        return directory
    names = sorted(tensors)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        write_safetensors(directory / file, part, stored)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def random_tensors(config: dict[str, object], seed: int = 0) -> dict[str, np.ndarray]:
    """float32 tensors by their Hugging Face names; large enough that attention is not flat."""
    random = np.random.default_rng(seed)
    tensors = {}
    for name, shape in expected_shapes(parse_hf_config(config, {}), HF_NAMES).items():
        values = random.standard_normal(shape, dtype=np.float32)
        if name.endswith("norm.weight"):
            values = 1 + 0.2 * values
        elif len(shape) == 2 and "embed" not in name:
            values *= np.float32(1.5 / math.sqrt(shape[1]))
        tensors[name] = values.astype(np.float32)
    return tensors


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], stored: str = "F32") -> None:
    header: dict[str, object] = {}
    contents = []
    end = 0
    for name, values in tensors.items():
        convert = _STORED[stored]
        raw = (convert(values) if stored == "BF16" else values.astype(convert)).tobytes()
        header[name] = {
            "dtype": stored,
            "shape": list(values.shape),
            "data_offsets": [end, end + len(raw)],
        }
        contents.append(raw)
        end += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(contents))


def one_sequence_batch(
    token_ids: list[int], first_position: int = 0, block_size: int = 16, num_blocks: int = 32
) -> TokenBatch:
    """A chunk of one sequence whose blocks are scattered; logits of every row."""
    count = len(token_ids)
    positions = np.arange(first_position, first_position + count, dtype=np.int32)
    table = ((np.arange(num_blocks) * 7 + 3) % num_blocks).astype(np.int32)
    return TokenBatch(
        token_ids=np.array(token_ids, dtype=np.int32),
        positions=positions,
        kv_rows=table[positions // block_size].astype(np.int64) * block_size
        + positions % block_size,
        chunk_starts=np.array([0, count], dtype=np.int32),
        block_tables=table[None, :].copy(),
        logit_rows=np.arange(count, dtype=np.int32),
    )


def run_in_chunks(model, token_ids: list[int], chunks: list[int], dtype: str = "float32"):
    """Logits [len(token_ids), vocab] of a prompt run as chunks of the given sizes."""
    config = model.config
    cache = new_kv_cache(config.num_layers, 32, 16, config.num_kv_heads, config.head_dim, dtype)
    logits = []
    first = 0
    for size in chunks:
        batch = one_sequence_batch(token_ids[first : first + size], first)
        logits.append(model.decoder.forward(batch, cache).copy())
        first += size
    assert first == len(token_ids)
    return np.concatenate(logits)
