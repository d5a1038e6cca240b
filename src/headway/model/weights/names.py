"""Which tensor of a file plays which role, and the shape it must have."""

from __future__ import annotations

from dataclasses import dataclass

from headway.model.errors import ModelError
from headway.model.shape import ModelConfig

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorNames:
    """Names of one file format; those of a layer are patterns with {layer}.

    `ignored` are endings of tensors that some files carry and nobody needs.
    """

    embedding: str
    final_norm: str
    lm_head: str
    attention_norm: str
    q: str
    k: str
    v: str
    o: str
    q_norm: str
    k_norm: str
    mlp_norm: str
    gate: str
    up: str
    down: str
    ignored: tuple[str, ...]


HF_NAMES = TensorNames(
    embedding="model.embed_tokens.weight",
    final_norm="model.norm.weight",
    lm_head="lm_head.weight",
    attention_norm="model.layers.{layer}.input_layernorm.weight",
    q="model.layers.{layer}.self_attn.q_proj.weight",
    k="model.layers.{layer}.self_attn.k_proj.weight",
    v="model.layers.{layer}.self_attn.v_proj.weight",
    o="model.layers.{layer}.self_attn.o_proj.weight",
    q_norm="model.layers.{layer}.self_attn.q_norm.weight",
    k_norm="model.layers.{layer}.self_attn.k_norm.weight",
    mlp_norm="model.layers.{layer}.post_attention_layernorm.weight",
    gate="model.layers.{layer}.mlp.gate_proj.weight",
    up="model.layers.{layer}.mlp.up_proj.weight",
    down="model.layers.{layer}.mlp.down_proj.weight",
    ignored=(".rotary_emb.inv_freq",),
)

GGUF_NAMES = TensorNames(
    embedding="token_embd.weight",
    final_norm="output_norm.weight",
    lm_head="output.weight",
    attention_norm="blk.{layer}.attn_norm.weight",
    q="blk.{layer}.attn_q.weight",
    k="blk.{layer}.attn_k.weight",
    v="blk.{layer}.attn_v.weight",
    o="blk.{layer}.attn_output.weight",
    q_norm="blk.{layer}.attn_q_norm.weight",
    k_norm="blk.{layer}.attn_k_norm.weight",
    mlp_norm="blk.{layer}.ffn_norm.weight",
    gate="blk.{layer}.ffn_gate.weight",
    up="blk.{layer}.ffn_up.weight",
    down="blk.{layer}.ffn_down.weight",
    ignored=(),
)


def bias_of(weight_name: str) -> str:
    return weight_name.removesuffix(".weight") + ".bias"


def expected_shapes(config: ModelConfig, names: TensorNames) -> dict[str, Shape]:
    """Every tensor that the decoder reads."""
    shapes: dict[str, Shape] = {
        names.embedding: (config.vocab_size, config.hidden_size),
        names.final_norm: (config.hidden_size,),
    }
    if not config.tie_word_embeddings:
        shapes[names.lm_head] = (config.vocab_size, config.hidden_size)
    for layer in range(config.num_layers):
        for pattern, shape in _layer_shapes(config, names).items():
            shapes[pattern.format(layer=layer)] = shape
    return shapes


def check_shapes(
    found: dict[str, Shape], config: ModelConfig, names: TensorNames, origin: str
) -> None:
    """Raises ModelError, with expected and found shapes, unless all is there and nothing else."""
    expected = expected_shapes(config, names)
    for name, shape in expected.items():
        if name not in found:
            raise ModelError(f"{origin} lacks tensor {name!r} of shape {list(shape)}")
        if found[name] != shape:
            raise ModelError(
                f"{origin}: tensor {name!r} must have shape {list(shape)} by the configuration, "
                f"found {list(found[name])}"
            )
    needless = names.ignored + ((names.lm_head,) if config.tie_word_embeddings else ())
    for name in found.keys() - expected.keys():
        if not name.endswith(needless):
            raise ModelError(
                f"{origin}: tensor {name!r} is not part of {config.architecture} as it is served; "
                f"the model needs something that is not"
            )


def _layer_shapes(config: ModelConfig, names: TensorNames) -> dict[str, Shape]:
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, Shape] = {
        names.attention_norm: (hidden,),
        names.q: (config.q_size, hidden),
        names.k: (config.kv_size, hidden),
        names.v: (config.kv_size, hidden),
        names.o: (hidden, config.q_size),
        names.mlp_norm: (hidden,),
        names.gate: (inner, hidden),
        names.up: (inner, hidden),
        names.down: (hidden, inner),
    }
    if config.qk_norm:
        shapes |= {names.q_norm: (config.head_dim,), names.k_norm: (config.head_dim,)}
    for weights, present in (
        ((names.q, names.k, names.v), config.qkv_bias),
        ((names.o,), config.o_bias),
        ((names.gate, names.up, names.down), config.mlp_bias),
    ):
        if present:
            shapes |= {bias_of(weight): shapes[weight][:1] for weight in weights}
    return shapes
