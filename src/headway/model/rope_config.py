"""RopeConfig from config.json (two spellings) and from GGUF metadata."""

from __future__ import annotations

import math

from headway.model import limits
from headway.model.fields import Fields
from headway.model.shape import RopeConfig

_MAX_THETA = 1e15
_MAX_FACTOR = 1e6
_KINDS = {"default": "none", "none": "none", "linear": "linear", "llama3": "llama3", "yarn": "yarn"}


def hf_rope(fields: Fields, head_dim: int) -> RopeConfig:
    """From `rope_parameters` (transformers 5), or `rope_scaling` and `rope_theta` (before)."""
    name = "rope_parameters" if fields.has("rope_parameters") else "rope_scaling"
    scaling = fields.nested(name)
    theta_fields = scaling if scaling.has("rope_theta") else fields
    theta = theta_fields.number("rope_theta", 2.0, _MAX_THETA, 10_000.0)
    partial_fields = scaling if scaling.has("partial_rotary_factor") else fields
    partial = partial_fields.number("partial_rotary_factor", 0.0, 1.0, 1.0)
    rotary_dim = int(head_dim * partial)
    if rotary_dim < 2:
        raise partial_fields.error("partial_rotary_factor", "must leave at least 2 dimensions")
    kind_name = "rope_type" if scaling.has("rope_type") else "type"
    kind = scaling.text(kind_name, "default")
    if kind not in _KINDS:
        raise scaling.error(
            kind_name, f"is a rope scaling that is not served (served: {', '.join(_KINDS)})"
        )
    match _KINDS[kind]:
        case "linear":
            factor = scaling.number("factor", 1.0, _MAX_FACTOR)
            return RopeConfig(theta=theta, rotary_dim=rotary_dim, kind="linear", factor=factor)
        case "llama3":
            return _llama3(scaling, theta, rotary_dim)
        case "yarn":
            return _yarn(fields, scaling, theta, rotary_dim)
    return RopeConfig(theta=theta, rotary_dim=rotary_dim)


def gguf_rope(fields: Fields, head_dim: int) -> RopeConfig:
    """From the `<arch>.rope.*` keys; `fields` has the architecture as prefix."""
    theta = fields.number("rope.freq_base", 2.0, _MAX_THETA, 10_000.0)
    rotary_dim = fields.integer("rope.dimension_count", 2, head_dim, head_dim)
    kind = fields.text("rope.scaling.type", "none")
    if kind not in ("none", "linear", "yarn"):
        raise fields.error("rope.scaling.type", "must be none, linear or yarn")
    if kind == "none":
        return RopeConfig(theta=theta, rotary_dim=rotary_dim)
    factor = fields.number("rope.scaling.factor", 1.0, _MAX_FACTOR)
    if kind == "linear":
        return RopeConfig(theta=theta, rotary_dim=rotary_dim, kind=kind, factor=factor)
    original = fields.integer("rope.scaling.original_context_length", 1, limits.POSITIONS)
    # This file format keeps a correction to the factor of the paper, where config.json keeps all.
    correction = fields.number("rope.scaling.attn_factor", 0.0, _MAX_FACTOR, 1.0)
    return RopeConfig(
        theta=theta,
        rotary_dim=rotary_dim,
        kind="yarn",
        factor=factor,
        original_max_position_embeddings=original,
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 1e-3, _MAX_FACTOR, 32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1e-3, _MAX_FACTOR, 1.0),
        attention_factor=_paper_attention_factor(factor) * correction,
    )


def _llama3(scaling: Fields, theta: float, rotary_dim: int) -> RopeConfig:
    low = scaling.number("low_freq_factor", 1e-3, _MAX_FACTOR)
    high = scaling.number("high_freq_factor", 1e-3, _MAX_FACTOR)
    if high <= low:
        raise scaling.error("high_freq_factor", f"must be above low_freq_factor={low:g}")
    return RopeConfig(
        theta=theta,
        rotary_dim=rotary_dim,
        kind="llama3",
        factor=scaling.number("factor", 1.0, _MAX_FACTOR),
        original_max_position_embeddings=scaling.integer(
            "original_max_position_embeddings", 1, limits.POSITIONS
        ),
        low_freq_factor=low,
        high_freq_factor=high,
    )


def _yarn(fields: Fields, scaling: Fields, theta: float, rotary_dim: int) -> RopeConfig:
    longest = fields.integer("max_position_embeddings", 1, limits.POSITIONS)
    original = scaling.integer("original_max_position_embeddings", 1, limits.POSITIONS, longest)
    factor = scaling.number("factor", 1.0, _MAX_FACTOR, max(1.0, longest / original))
    if scaling.has("attention_factor"):
        attention_factor = scaling.number("attention_factor", 0.0, _MAX_FACTOR)
    else:
        attention_factor = _mscale_ratio(scaling, factor)
    return RopeConfig(
        theta=theta,
        rotary_dim=rotary_dim,
        kind="yarn",
        factor=factor,
        original_max_position_embeddings=original,
        beta_fast=scaling.number("beta_fast", 1e-3, _MAX_FACTOR, 32.0),
        beta_slow=scaling.number("beta_slow", 1e-3, _MAX_FACTOR, 1.0),
        truncate=scaling.flag("truncate", True),
        attention_factor=attention_factor,
    )


def _mscale_ratio(scaling: Fields, factor: float) -> float:
    over = scaling.number("mscale", 0.0, _MAX_FACTOR, 0.0)
    under = scaling.number("mscale_all_dim", 0.0, _MAX_FACTOR, 0.0)
    if over and under:
        return _paper_attention_factor(factor, over) / _paper_attention_factor(factor, under)
    return _paper_attention_factor(factor)


def _paper_attention_factor(factor: float, mscale: float = 1.0) -> float:
    """YaRN (Peng et al., 2023), section 3.4: the temperature of attention after extension."""
    return 1.0 if factor <= 1.0 else 0.1 * mscale * math.log(factor) + 1.0
