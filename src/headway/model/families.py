"""The model families that are served, as data: what each one's files say and leave unsaid."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from headway.model.errors import ModelError


class WindowRule(enum.Enum):
    """Which layers a `sliding_window` in the configuration is for, unless layer_types says."""

    NEVER = "never"
    EVERY_LAYER = "every layer"
    UPPER_LAYERS = "layers from max_window_layers on, if use_sliding_window"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Options of one architecture. A bias of None is read from the configuration.

    `gguf` is the architecture's name in GGUF files; `gguf_permuted` says that those files hold the
    rows of q and k in interleaved rotary order.
    """

    architecture: str
    gguf: str | None
    gguf_permuted: bool = False
    qkv_bias: bool | None = False
    o_bias: bool | None = False
    mlp_bias: bool | None = False
    qk_norm: bool = False
    window_rule: WindowRule = WindowRule.NEVER
    has_no_rope_layers: bool = False
    has_multipliers: bool = False
    tied_by_default: bool = False
    rms_norm_eps: float = 1e-6
    head_dim: int | None = None  # None: hidden_size / num_attention_heads


FAMILIES = (
    Family(
        architecture="LlamaForCausalLM",  # Llama, SmolLM, TinyLlama, Yi ...
        gguf="llama",
        gguf_permuted=True,
        qkv_bias=None,
        o_bias=None,
        mlp_bias=None,
    ),
    Family(
        architecture="MistralForCausalLM",
        gguf=None,  # GGUF files call it llama
        window_rule=WindowRule.EVERY_LAYER,
    ),
    Family(
        architecture="Qwen2ForCausalLM",
        gguf="qwen2",
        qkv_bias=True,
        window_rule=WindowRule.UPPER_LAYERS,
    ),
    Family(
        architecture="Qwen3ForCausalLM",
        gguf="qwen3",
        qkv_bias=None,
        o_bias=None,
        qk_norm=True,
        head_dim=128,
        window_rule=WindowRule.UPPER_LAYERS,
    ),
    Family(
        architecture="SmolLM3ForCausalLM",
        gguf="smollm3",
        gguf_permuted=True,
        qkv_bias=None,
        o_bias=None,
        mlp_bias=None,
        has_no_rope_layers=True,
        tied_by_default=True,
    ),
    Family(
        architecture="GraniteForCausalLM",
        gguf="granite",
        gguf_permuted=True,
        qkv_bias=None,
        o_bias=None,
        mlp_bias=None,
        has_multipliers=True,
    ),
)

_BY_ARCHITECTURE = {family.architecture: family for family in FAMILIES}
_BY_GGUF = {family.gguf: family for family in FAMILIES if family.gguf is not None}


def family_of(architecture: str) -> Family:
    """By the name in config.json. Raises ModelError, listing what is served."""
    if architecture not in _BY_ARCHITECTURE:
        raise ModelError(
            f"architecture {architecture[:80]!r} is not served; choose a model of one of: "
            f"{', '.join(_BY_ARCHITECTURE)}"
        )
    return _BY_ARCHITECTURE[architecture]


def family_of_gguf(architecture: str) -> Family:
    """By general.architecture of a GGUF file. Raises ModelError, listing what is served."""
    if architecture not in _BY_GGUF:
        raise ModelError(
            f"GGUF architecture {architecture[:80]!r} is not served; choose a file of one of: "
            f"{', '.join(_BY_GGUF)}"
        )
    return _BY_GGUF[architecture]
