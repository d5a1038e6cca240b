"""ModelConfig from a Hugging Face directory: config.json and generation_config.json."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from pathlib import Path

from headway.model import limits
from headway.model.errors import ModelError
from headway.model.families import Family, WindowRule, family_of
from headway.model.fields import Fields
from headway.model.rope_config import hf_rope
from headway.model.shape import ModelConfig

_MAX_JSON_BYTES = 64 << 20
_DTYPES = ("float32", "float16", "bfloat16")
_GENERATION_LIMITS = {
    "temperature": (0.0, 1e3),
    "top_p": (0.0, 1.0),
    "top_k": (0.0, 1e9),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.0, 1e3),
    "max_new_tokens": (1.0, 1e9),
}


def read_hf_config(directory: Path) -> ModelConfig:
    """Raises ModelError where the files are missing, malformed, or ask for what is not served."""
    path = directory / "config.json"
    if not path.is_file():
        raise ModelError(f"{directory} has no config.json: is it a Hugging Face model directory?")
    generation_path = directory / "generation_config.json"
    generation = read_json(generation_path) if generation_path.is_file() else {}
    return parse_hf_config(read_json(path), generation, origin=str(path))


def read_generation(directory: Path) -> Mapping[str, float]:
    """The sampling defaults of a directory's generation_config.json. Raises ModelError."""
    path = directory / "generation_config.json"
    if not path.is_file():
        raise ModelError(f"{directory} has no generation_config.json")
    return _generation(Fields(read_json(path), str(path)))


def read_json(path: Path) -> dict[str, object]:
    """A JSON object from a file. Raises ModelError."""
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise ModelError(f"{path} is larger than {_MAX_JSON_BYTES} bytes: not a configuration")
        parsed = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path} is not valid JSON: download the model again") from error
    if not isinstance(parsed, dict):
        raise ModelError(f"{path} must hold a JSON object, not a {type(parsed).__name__}")
    return parsed


def parse_hf_config(
    config: Mapping[str, object], generation: Mapping[str, object], *, origin: str = "config.json"
) -> ModelConfig:
    """The pure part of `read_hf_config`."""
    fields = Fields(config, origin)
    family = _family(fields)
    _refuse_unserved(fields)
    layers = fields.integer("num_hidden_layers", 1, limits.LAYERS)
    heads = fields.integer("num_attention_heads", 1, limits.HEADS)
    hidden = fields.integer("hidden_size", 1, limits.WIDTH)
    vocab_size = fields.integer("vocab_size", 1, limits.VOCAB)
    head_dim = _head_dim(fields, family, hidden, heads)
    defaults = Fields(generation, "generation_config.json")
    eos = fields.token_ids("eos_token_id", vocab_size) + defaults.token_ids(
        "eos_token_id", vocab_size
    )
    return ModelConfig(
        architecture=family.architecture,
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size", 1, limits.WIDTH),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=fields.integer("num_key_value_heads", 1, heads, heads),
        head_dim=head_dim,
        max_position_embeddings=fields.integer("max_position_embeddings", 1, limits.POSITIONS),
        rms_norm_eps=fields.number("rms_norm_eps", 0.0, 1.0, family.rms_norm_eps),
        rope=hf_rope(fields, head_dim),
        tie_word_embeddings=fields.flag("tie_word_embeddings", family.tied_by_default),
        qkv_bias=_bias(fields, "attention_bias", family.qkv_bias),
        o_bias=_bias(fields, "attention_bias", family.o_bias),
        mlp_bias=_bias(fields, "mlp_bias", family.mlp_bias),
        qk_norm=family.qk_norm,
        windows=_windows(fields, family, layers),
        rope_layers=_rope_layers(fields, family, layers),
        eos_token_ids=tuple(dict.fromkeys(eos)),
        bos_token_id=next(iter(fields.token_ids("bos_token_id", vocab_size)), None),
        dtype=_dtype(fields),
        generation=_generation(defaults),
        **_multipliers(fields, family, head_dim),
    )


def _family(fields: Fields) -> Family:
    names = fields.raw("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise fields.error("architectures", "must be a list with the name of one architecture")
    return family_of(names[0])


def _refuse_unserved(fields: Fields) -> None:
    if fields.raw("quantization_config") is not None:
        raise fields.error(
            "quantization_config",
            "means weights that are not served: choose a bf16, fp16 or fp32 copy, or a GGUF file",
        )
    activation = fields.text("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise fields.error("hidden_act", "must be silu")


def _head_dim(fields: Fields, family: Family, hidden: int, heads: int) -> int:
    if fields.has("head_dim") or family.head_dim is not None:
        return fields.integer("head_dim", 2, limits.HEAD_DIM, family.head_dim)
    if hidden % heads:
        raise fields.error("hidden_size", f"must be a multiple of the {heads} attention heads")
    return hidden // heads


def _bias(fields: Fields, name: str, fixed: bool | None) -> bool:
    return fields.flag(name, False) if fixed is None else fixed


def _windows(fields: Fields, family: Family, layers: int) -> tuple[int, ...]:
    window = 0
    if fields.has("sliding_window"):
        window = fields.integer("sliding_window", 1, limits.POSITIONS)
    kinds = fields.items("layer_types", layers)
    if kinds is not None and family.window_rule is not WindowRule.EVERY_LAYER:
        return tuple(_layer_window(fields, kind, window) for kind in kinds)
    match family.window_rule:
        case WindowRule.EVERY_LAYER:
            return (window,) * layers
        case WindowRule.UPPER_LAYERS if fields.flag("use_sliding_window", False):
            first = fields.integer("max_window_layers", 0, limits.LAYERS)
            return tuple(window if layer >= first else 0 for layer in range(layers))
        case WindowRule.NEVER if window and fields.flag("use_sliding_window", True):
            raise fields.error("sliding_window", f"is not served for {family.architecture}")
    return (0,) * layers


def _layer_window(fields: Fields, kind: object, window: int) -> int:
    if kind == "full_attention":
        return 0
    if kind != "sliding_attention" or not window:
        raise fields.error(
            "layer_types", "may hold full_attention, and sliding_attention with a sliding_window"
        )
    return window


def _rope_layers(fields: Fields, family: Family, layers: int) -> tuple[bool, ...]:
    if not family.has_no_rope_layers:
        return (True,) * layers
    marks = fields.items("no_rope_layers", layers)  # 1 marks a layer that does rotate
    if marks is None:
        interval = fields.integer("no_rope_layer_interval", 1, limits.LAYERS, 4)
        return tuple((layer + 1) % interval != 0 for layer in range(layers))
    if any(mark not in (0, 1) for mark in marks):
        raise fields.error("no_rope_layers", "must hold 0 and 1 only")
    return tuple(bool(mark) for mark in marks)


def _multipliers(fields: Fields, family: Family, head_dim: int) -> dict[str, float]:
    if not family.has_multipliers:
        return {"attention_scale": head_dim**-0.5}
    low, high = limits.MULTIPLIERS
    return {
        "attention_scale": fields.number("attention_multiplier", low, high, 1.0),
        "embedding_multiplier": fields.number("embedding_multiplier", low, high, 1.0),
        "residual_multiplier": fields.number("residual_multiplier", low, high, 1.0),
        "logits_divisor": fields.number("logits_scaling", low, high, 1.0),
    }


def _dtype(fields: Fields) -> str:
    name = "dtype" if fields.has("dtype") else "torch_dtype"
    dtype = fields.text(name, "float32")
    if dtype not in _DTYPES:
        raise fields.error(name, f"must be one of {', '.join(_DTYPES)}")
    return dtype


def _generation(fields: Fields) -> Mapping[str, float]:
    found = {
        name: fields.number(name, low, high)
        for name, (low, high) in _GENERATION_LIMITS.items()
        if fields.has(name)
    }
    return types.MappingProxyType(found)
