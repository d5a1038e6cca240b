"""ModelConfig from the metadata and tensor directory of a GGUF file."""

from __future__ import annotations

import types
from collections import Counter

from headway.model import limits
from headway.model.errors import ModelError
from headway.model.families import Family, family_of_gguf
from headway.model.fields import Fields
from headway.model.rope_config import gguf_rope
from headway.model.shape import ModelConfig
from headway.model.weights.gguf import GGUFFile

_STOP_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_NO_ROPE_INTERVAL = 4  # SmolLM3's; the format has no key for it


def gguf_config(file: GGUFFile) -> ModelConfig:
    """Raises ModelError where the file is malformed or asks for what is not served."""
    general = Fields(file.metadata, str(file.path))
    family = family_of_gguf(general.text("general.architecture"))
    fields = Fields(file.metadata, str(file.path), prefix=f"{family.gguf}.")
    _refuse_unserved(general, fields)
    hidden = fields.integer("embedding_length", 1, limits.WIDTH)
    layers = fields.integer("block_count", 1, limits.LAYERS)
    heads = fields.integer("attention.head_count", 1, limits.HEADS)
    vocab_size = _vocab_size(file, hidden)
    head_dim = _head_dim(fields, hidden, heads)
    rope = gguf_rope(fields, head_dim)
    if family.gguf_permuted and rope.rotary_dim != head_dim:
        raise fields.error("rope.dimension_count", f"must be the head size {head_dim}")
    return ModelConfig(
        architecture=family.architecture,
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=fields.integer("feed_forward_length", 1, limits.WIDTH),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=fields.integer("attention.head_count_kv", 1, heads, heads),
        head_dim=head_dim,
        max_position_embeddings=fields.integer("context_length", 1, limits.POSITIONS),
        rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon", 0.0, 1.0),
        rope=rope,
        tie_word_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        o_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_down.bias" in file.tensors,
        qk_norm=family.qk_norm,
        windows=(0,) * layers,
        rope_layers=_rope_layers(family, layers),
        eos_token_ids=_stop_ids(file, vocab_size),
        bos_token_id=next(iter(_tokenizer(file).token_ids("bos_token_id", vocab_size)), None),
        dtype=_commonest_type(file),
        generation=types.MappingProxyType({}),
        **_multipliers(fields, family, head_dim),
    )


def _refuse_unserved(general: Fields, fields: Fields) -> None:
    if general.integer("split.count", 0, 1 << 16, 0) > 1:
        raise general.error("split.count", "means a file in pieces: merge them into one first")
    if fields.integer("expert_count", 0, 1 << 16, 0):
        raise fields.error("expert_count", "means a mixture of experts, which is not served")
    window = fields.integer("attention.sliding_window", 0, limits.POSITIONS, 0)
    if 0 < window < fields.integer("context_length", 1, limits.POSITIONS):
        raise fields.error(
            "attention.sliding_window",
            "is not served from GGUF files: choose the Hugging Face directory of this model",
        )


def _vocab_size(file: GGUFFile, hidden: int) -> int:
    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2 or table.shape[1] != hidden:
        found = "none" if table is None else list(table.shape)
        raise ModelError(
            f"{file.path}: tensor 'token_embd.weight' must have shape [vocabulary, {hidden}], "
            f"found {found}"
        )
    if table.shape[0] > limits.VOCAB:
        raise ModelError(f"{file.path}: a vocabulary of {table.shape[0]} tokens is not served")
    return table.shape[0]


def _head_dim(fields: Fields, hidden: int, heads: int) -> int:
    head_dim = fields.integer("attention.key_length", 2, limits.HEAD_DIM, max(2, hidden // heads))
    if not fields.has("attention.key_length") and head_dim * heads != hidden:
        raise fields.error("embedding_length", f"must be a multiple of the {heads} heads")
    if fields.integer("attention.value_length", 2, limits.HEAD_DIM, head_dim) != head_dim:
        raise fields.error("attention.value_length", f"must equal the key length {head_dim}")
    return head_dim


def _rope_layers(family: Family, layers: int) -> tuple[bool, ...]:
    if not family.has_no_rope_layers:
        return (True,) * layers
    return tuple((layer + 1) % _NO_ROPE_INTERVAL != 0 for layer in range(layers))


def _multipliers(fields: Fields, family: Family, head_dim: int) -> dict[str, float]:
    if not family.has_multipliers:
        return {"attention_scale": head_dim**-0.5}
    low, high = limits.MULTIPLIERS
    return {
        "attention_scale": fields.number("attention.scale", low, high, head_dim**-0.5),
        "embedding_multiplier": fields.number("embedding_scale", low, high, 1.0),
        "residual_multiplier": fields.number("residual_scale", low, high, 1.0),
        "logits_divisor": fields.number("logit_scale", low, high, 1.0),
    }


def _tokenizer(file: GGUFFile) -> Fields:
    return Fields(file.metadata, str(file.path), prefix="tokenizer.ggml.")


def _stop_ids(file: GGUFFile, vocab_size: int) -> tuple[int, ...]:
    tokenizer = _tokenizer(file)
    found = [i for key in _STOP_KEYS for i in tokenizer.token_ids(key, vocab_size)]
    return tuple(dict.fromkeys(found))


def _commonest_type(file: GGUFFile) -> str:
    """The type of most bytes."""
    num_bytes: Counter[str] = Counter()
    for tensor in file.tensors.values():
        num_bytes[tensor.type_name] += len(tensor.stored)
    return num_bytes.most_common(1)[0][0]
