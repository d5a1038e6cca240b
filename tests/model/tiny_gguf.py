"""Write the GGUF twin of a tiny Hugging Face checkpoint, with the gguf package."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from tests.model.tiny import BASE, random_tensors

from headway.model.weights.names import GGUF_NAMES, HF_NAMES

_ROLES = [role for role in HF_NAMES.__slots__ if role != "ignored"]


def make_tiny_gguf(
    path: Path,
    architecture: str,
    overrides: dict[str, object],
    *,
    quantisation: str = "F32",
    rope_divisors: np.ndarray | None = None,
) -> Path:
    """The weights of `make_tiny_model(overrides)` under GGUF names, q and k permuted for llama."""
    config = {**BASE, **overrides}
    writer = gguf.GGUFWriter(path, architecture)
    _write_sizes(writer, config)
    kind = gguf.GGMLQuantizationType[quantisation]
    for name, values in random_tensors(config).items():
        values = _permuted(architecture, name, values, config)
        if values.ndim == 1 or quantisation == "F32":
            writer.add_tensor(_gguf_name(name), values)
        else:
            writer.add_tensor(_gguf_name(name), gguf.quants.quantize(values, kind), raw_dtype=kind)
    if rope_divisors is not None:
        writer.add_tensor("rope_freqs.weight", rope_divisors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_sizes(writer: gguf.GGUFWriter, config: dict[str, object]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_eot_token_id(4)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token {i}" for i in range(config["vocab_size"])])
    if "embedding_multiplier" in config:
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])


def _permuted(
    architecture: str, name: str, values: np.ndarray, config: dict[str, object]
) -> np.ndarray:
    heads = None
    if ".q_proj." in name:
        heads = config["num_attention_heads"]
    if ".k_proj." in name:
        heads = config["num_key_value_heads"]
    if heads is None or architecture.startswith("qwen"):
        return values
    halves = values.reshape(heads, 2, -1, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)


def _gguf_name(name: str) -> str:
    parts = name.split(".")
    layer = parts[2] if name.startswith("model.layers.") else ""
    for role in _ROLES:
        theirs, ours = getattr(HF_NAMES, role), getattr(GGUF_NAMES, role)
        for ending in (".weight", ".bias"):
            if theirs.removesuffix(".weight").format(layer=layer) + ending == name:
                return ours.removesuffix(".weight").format(layer=layer) + ending
    raise AssertionError(json.dumps(name))
