"""Shapes of models: from a config.json, or by a well-known name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from headway.simulator.step_time.model_shape import ModelShape

_MAX_SIZE = 1 << 40
_GATED_ACTIVATIONS = ("silu", "swish")
_GATED_MODEL_TYPES = ("gemma",)  # with other activations
_QK_NORM_TYPES = ("qwen3", "qwen3_moe")
_QKV_BIAS_TYPES = ("qwen2", "qwen2_moe")
# What these mean is not in the numbers that a shape has.
_NOT_UNDERSTOOD = {
    "kv_lora_rank": "keys and values compressed into one vector",
    "ssm_cfg": "layers without attention",
    "mamba_d_state": "layers without attention",
    "linear_num_key_heads": "layers of linear attention",
    "first_k_dense_replace": "experts in some layers only",
    "mlp_only_layers": "experts in some layers only",
    "is_encoder_decoder": "an encoder",
    "quantization_config": "stored weights; take it out and name their dtype instead",
    "text_config": "a model of several parts; pass this one of them",
}


def shape_from_config(config: Mapping[str, Any], name: str = "config.json") -> ModelShape:
    """The shape in a Hugging Face config.json. Raises ValueError for what cannot be understood."""
    _refuse(config, name)
    heads = _size(config, name, "num_attention_heads")
    hidden = _size(config, name, "hidden_size")
    kind = config.get("model_type")
    return ModelShape(
        name=name,
        num_layers=_size(config, name, "num_hidden_layers"),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=_size(config, name, "num_key_value_heads", heads),
        head_dim=_size(config, name, "head_dim", max(1, hidden // heads)),
        vocab_size=_size(config, name, "vocab_size"),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", kind == "gemma")),
        qkv_bias=bool(config.get("attention_bias", kind in _QKV_BIAS_TYPES)),
        qk_norm=kind in _QK_NORM_TYPES,
        max_positions=_positions(config, name),
        **_mlp(config, name),
    )


def shape_named(name: str) -> ModelShape:
    """A well-known model, in any case, with or without its owner. Raises ValueError."""
    key = name.rpartition("/")[2].lower().removesuffix("-instruct")
    found = _BY_NAME.get(key)
    if found is None:
        near = difflib.get_close_matches(key, _BY_NAME, n=1)
        guess = f"did you mean {_BY_NAME[near[0]].name}? " if near else ""
        known = ", ".join(shape.name for shape in WELL_KNOWN)
        raise ValueError(
            f"no model is known as {name!r}: {guess}give its config.json, or choose one of {known}"
        )
    return found


def hub_name(name: str) -> str:
    """What the hub calls a well-known model; anything else as it is."""
    if "/" in name:
        return name
    for start, owner in _OWNERS.items():
        if name.lower().startswith(start.lower()):
            return owner + name
    return name


def _refuse(config: Mapping[str, Any], name: str) -> None:
    for key, meaning in _NOT_UNDERSTOOD.items():
        if config.get(key):
            raise ValueError(f"{name}: {key} means {meaning}, which a shape cannot tell")
    _refuse_windows(config, name)
    if config.get("decoder_sparse_step", 1) != 1:
        raise ValueError(f"{name}: decoder_sparse_step means experts in some layers only")
    activation = config.get("hidden_act", config.get("hidden_activation", "silu"))
    is_gated = activation in _GATED_ACTIVATIONS or config.get("model_type") in _GATED_MODEL_TYPES
    if not is_gated:
        raise ValueError(
            f"{name}: hidden_act {activation!r} does not tell whether the MLP has a gate"
        )


def _refuse_windows(config: Mapping[str, Any], name: str) -> None:
    window = _size(config, name, "sliding_window", _MAX_SIZE - 1)
    is_used = config.get("use_sliding_window", True)
    longest = _size(config, name, "max_position_embeddings", _MAX_SIZE - 1)
    if is_used and window < longest:
        raise ValueError(
            f"{name}: sliding_window {window} is narrower than the context; set it to null to "
            f"count full attention, which is then too much for longer texts"
        )
    kinds = set(map(str, config.get("layer_types") or ())) - {"full_attention"}
    if kinds - {"sliding_attention"}:
        raise ValueError(f"{name}: layer_types {', '.join(sorted(kinds))} cannot be counted")


def _mlp(config: Mapping[str, Any], name: str) -> dict[str, int]:
    for key in ("num_local_experts", "num_experts"):
        if config.get(key):
            return _experts(config, name, key)
    if "n_routed_experts" in config:
        raise ValueError(f"{name}: n_routed_experts means experts of a kind that is not known")
    return {"intermediate_size": _size(config, name, "intermediate_size")}


def _experts(config: Mapping[str, Any], name: str, key: str) -> dict[str, int]:
    size = "moe_intermediate_size" if "moe_intermediate_size" in config else "intermediate_size"
    return {
        "intermediate_size": _size(config, name, size),
        "num_experts": _size(config, name, key),
        "experts_per_token": _size(config, name, "num_experts_per_tok"),
        "shared_size": int(config.get("shared_expert_intermediate_size") or 0),
    }


def _positions(config: Mapping[str, Any], name: str) -> int:
    """0 where it does not say."""
    key = "max_position_embeddings"
    return 0 if config.get(key) is None else _size(config, name, key)


def _size(config: Mapping[str, Any], name: str, key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise ValueError(f"{name}: {key} is missing: is it the configuration of a decoder?")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _MAX_SIZE:
        raise ValueError(f"{name}: {key} must be a whole number above 0, got {value!r}")
    return value


# Layers, hidden size, heads, key-value heads, head dim, MLP, vocabulary, positions, and what else
# they have. Positions are those of the instruction-tuned models.
_LLAMA_LIKE: Mapping[str, tuple[int, int, int, int, int, int, int, int, str]] = {
    "Llama-2-7B": (32, 4096, 32, 32, 128, 11008, 32000, 4096, ""),
    "Llama-2-13B": (40, 5120, 40, 40, 128, 13824, 32000, 4096, ""),
    "Llama-3-8B": (32, 4096, 32, 8, 128, 14336, 128256, 8192, ""),
    "Llama-3-70B": (80, 8192, 64, 8, 128, 28672, 128256, 8192, ""),
    "Llama-3.1-8B": (32, 4096, 32, 8, 128, 14336, 128256, 131072, ""),
    "Llama-3.1-70B": (80, 8192, 64, 8, 128, 28672, 128256, 131072, ""),
    "Llama-3.2-1B": (16, 2048, 32, 8, 64, 8192, 128256, 131072, "tied"),
    "Llama-3.2-3B": (28, 3072, 24, 8, 128, 8192, 128256, 131072, "tied"),
    "Llama-3.3-70B": (80, 8192, 64, 8, 128, 28672, 128256, 131072, ""),
    "Mistral-7B": (32, 4096, 32, 8, 128, 14336, 32768, 32768, ""),  # v0.3, which has no window
    "Qwen2.5-0.5B": (24, 896, 14, 2, 64, 4864, 151936, 32768, "tied, bias"),
    "Qwen2.5-1.5B": (28, 1536, 12, 2, 128, 8960, 151936, 32768, "tied, bias"),
    "Qwen2.5-3B": (36, 2048, 16, 2, 128, 11008, 151936, 32768, "tied, bias"),
    "Qwen2.5-7B": (28, 3584, 28, 4, 128, 18944, 152064, 32768, "bias"),
    "Qwen2.5-14B": (48, 5120, 40, 8, 128, 13824, 152064, 32768, "bias"),
    "Qwen2.5-32B": (64, 5120, 40, 8, 128, 27648, 152064, 32768, "bias"),
    "Qwen2.5-72B": (80, 8192, 64, 8, 128, 29568, 152064, 32768, "bias"),
    "Qwen3-0.6B": (28, 1024, 16, 8, 128, 3072, 151936, 40960, "tied, norm"),
    "Qwen3-1.7B": (28, 2048, 16, 8, 128, 6144, 151936, 40960, "tied, norm"),
    "Qwen3-4B": (36, 2560, 32, 8, 128, 9728, 151936, 40960, "tied, norm"),
    "Qwen3-8B": (36, 4096, 32, 8, 128, 12288, 151936, 40960, "norm"),
    "Qwen3-14B": (40, 5120, 40, 8, 128, 17408, 151936, 40960, "norm"),
    "Qwen3-32B": (64, 5120, 64, 8, 128, 25600, 151936, 40960, "norm"),
    "SmolLM2-135M": (30, 576, 9, 3, 64, 1536, 49152, 8192, "tied"),
    "SmolLM2-360M": (32, 960, 15, 5, 64, 2560, 49152, 8192, "tied"),
    "SmolLM2-1.7B": (24, 2048, 32, 32, 64, 8192, 49152, 8192, "tied"),
    "Mixtral-8x7B": (32, 4096, 32, 8, 128, 14336, 32000, 32768, ""),
    "Qwen3-30B-A3B": (48, 2048, 32, 4, 128, 768, 151936, 40960, "norm"),
}
_OWNERS = {"Qwen": "Qwen/", "Llama-3.": "meta-llama/", "SmolLM2": "HuggingFaceTB/"}
_EXPERTS = {  # of a layer, and of a token
    "Mixtral-8x7B": (8, 2),
    "Qwen3-30B-A3B": (128, 8),
}


def _well_known(name: str) -> ModelShape:
    layers, hidden, heads, kv_heads, head_dim, mlp, vocab, positions, extras = _LLAMA_LIKE[name]
    num_experts, experts_per_token = _EXPERTS.get(name, (0, 0))
    return ModelShape(
        name=name,
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=mlp,
        vocab_size=vocab,
        max_positions=positions,
        tie_word_embeddings="tied" in extras,
        qkv_bias="bias" in extras,
        qk_norm="norm" in extras,
        num_experts=num_experts,
        experts_per_token=experts_per_token,
    )


WELL_KNOWN: tuple[ModelShape, ...] = tuple(map(_well_known, _LLAMA_LIKE))
_BY_NAME = {shape.name.lower(): shape for shape in WELL_KNOWN}
