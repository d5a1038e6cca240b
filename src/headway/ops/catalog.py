"""Every op with inputs to try it on and a bound on its error: what tests and benchmarks walk.

A bound is derived, not tuned: n float32 additions in two different orders differ by at most
2 n * 2^-24 times the sum of the absolute terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.ops.bfloat16 import as_float32, round_to_bf16, to_bf16
from headway.ops.interface import Ops

UNIT = 2.0**-24  # relative rounding error of float32
BF16_UNIT = 2.0**-9
TINY = 1e-30  # absolute: below it, an instruction set may flush to zero
EXP_ERROR = 8 * UNIT  # relative, of the kernels' exp

Inputs = Mapping[str, Any]
Shape = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OpSpec:
    """`run(ops, inputs(rng, shape))` calls the op; results of two backends differ by <= bound."""

    name: str
    shapes: tuple[Shape, ...]
    inputs: Callable[[np.random.Generator, Shape], Inputs]
    run: Callable[[Ops, Inputs], np.ndarray]
    bound: Callable[[Inputs], np.ndarray | float]


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


# linear


def linear_inputs(rng: np.random.Generator, shape: Shape) -> Inputs:
    rows, out_features, in_features = shape["m"], shape["n"], shape["k"]
    return {
        "x": normal(rng, rows, in_features),
        "weight": normal(rng, out_features, in_features),
        "bias": normal(rng, out_features) if shape.get("bias") else None,
        "before": normal(rng, rows, out_features) if shape.get("accumulate") else None,
        "dtype": shape["dtype"],
    }


def linear_run(ops: Ops, inputs: Inputs) -> np.ndarray:
    weight = ops.pack_linear(inputs["weight"], inputs["bias"], inputs["dtype"])
    before = inputs["before"]
    out = np.full((len(inputs["x"]), len(inputs["weight"])), np.nan, np.float32)
    if before is not None:
        out[:] = before
    ops.linear(inputs["x"], weight, out, accumulate=before is not None)
    return out


def linear_bound(inputs: Inputs) -> np.ndarray | float:
    if inputs["dtype"] in ("int8", "int4"):
        return 0.0  # whole numbers are exact, and the scales are applied in one order
    x, weight = inputs["x"], inputs["weight"]
    if inputs["dtype"] == "bfloat16":
        x, weight = round_to_bf16(x), round_to_bf16(weight)
    size = np.abs(x).astype(np.float64) @ np.abs(weight).T.astype(np.float64)
    for extra in (inputs["bias"], inputs["before"]):
        if extra is not None:
            size = size + np.abs(extra)
    return np.asarray(2 * UNIT * (x.shape[1] + 3) * size + TINY)


LINEAR = OpSpec(
    name="linear",
    shapes=tuple(
        {"m": m, "n": n, "k": k, "dtype": dtype, "bias": bias, "accumulate": accumulate}
        for dtype in ("float32", "bfloat16", "int8", "int4")
        for m, n, k, bias, accumulate in (
            (1, 1, 1, False, False),
            (3, 17, 2, True, False),
            (2, 33, 3, False, True),
            (13, 64, 33, True, True),
            (1, 257, 64, True, False),
            (70, 96, 130, False, False),
        )
    ),
    inputs=linear_inputs,
    run=linear_run,
    bound=linear_bound,
)


# embed


def embed_inputs(rng: np.random.Generator, shape: Shape) -> Inputs:
    table = normal(rng, shape["vocabulary"], shape["width"])
    ids = rng.integers(0, shape["vocabulary"], shape["rows"], dtype=np.int32)
    return {"table": to_bf16(table) if shape["dtype"] == "bfloat16" else table, "token_ids": ids}


def embed_run(ops: Ops, inputs: Inputs) -> np.ndarray:
    out = np.full((len(inputs["token_ids"]), inputs["table"].shape[1]), np.nan, np.float32)
    ops.embed(inputs["table"], inputs["token_ids"], out)
    return out


EMBED = OpSpec(
    name="embed",
    shapes=tuple(
        {"vocabulary": 37, "width": width, "rows": rows, "dtype": dtype}
        for dtype in ("float32", "bfloat16")
        for width, rows in ((1, 1), (33, 5), (576, 70))
    ),
    inputs=embed_inputs,
    run=embed_run,
    bound=lambda inputs: 0.0,
)


# rms_norm


def rms_norm_inputs(rng: np.random.Generator, shape: Shape) -> Inputs:
    return {"x": normal(rng, shape["rows"], shape["width"]), "weight": normal(rng, shape["width"])}


def rms_norm_run(ops: Ops, inputs: Inputs) -> np.ndarray:
    out = np.full(inputs["x"].shape, np.nan, np.float32)
    ops.rms_norm(inputs["x"], inputs["weight"], 1e-5, out)
    return out


def rms_norm_bound(inputs: Inputs) -> np.ndarray:
    x = inputs["x"].astype(np.float64)
    size = np.abs(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * inputs["weight"])
    return np.asarray(2 * UNIT * (x.shape[1] + 6) * size + TINY)


RMS_NORM = OpSpec(
    name="rms_norm",
    shapes=tuple({"rows": r, "width": w} for r, w in ((1, 1), (3, 17), (2, 576), (70, 64))),
    inputs=rms_norm_inputs,
    run=rms_norm_run,
    bound=rms_norm_bound,
)


# silu_mul


def silu_mul_inputs(rng: np.random.Generator, shape: Shape) -> Inputs:
    return {"gate_up": normal(rng, shape["rows"], 2 * shape["width"]) * np.float32(shape["scale"])}


def silu_mul_run(ops: Ops, inputs: Inputs) -> np.ndarray:
    rows, both = inputs["gate_up"].shape
    out = np.full((rows, both // 2), np.nan, np.float32)
    ops.silu_mul(inputs["gate_up"], out)
    return out


def silu_mul_bound(inputs: Inputs) -> np.ndarray:
    gate, up = np.split(np.clip(inputs["gate_up"], -1e4, 1e4).astype(np.float64), 2, axis=-1)
    size = np.abs(gate / (1 + np.exp(np.clip(-gate, None, 700))) * up)
    return np.asarray((EXP_ERROR + 6 * UNIT) * size + TINY)


SILU_MUL = OpSpec(
    name="silu_mul",
    shapes=tuple(
        {"rows": r, "width": w, "scale": s}
        for r, w, s in ((1, 1, 1), (3, 17, 10), (2, 1536, 1), (70, 64, 100))
    ),
    inputs=silu_mul_inputs,
    run=silu_mul_run,
    bound=silu_mul_bound,
)


# log_softmax and argmax


def logits_inputs(rng: np.random.Generator, shape: Shape) -> Inputs:
    logits = normal(rng, shape["rows"], shape["width"]) * np.float32(5)
    logits[:, :: shape.get("masked_every", shape["width"] + 1)] = -np.inf
    return {"logits": logits}


def log_softmax_run(ops: Ops, inputs: Inputs) -> np.ndarray:
    out = np.full(inputs["logits"].shape, np.nan, np.float32)
    ops.log_softmax(inputs["logits"], out)
    return out


def log_softmax_bound(inputs: Inputs) -> np.ndarray:
    logits = inputs["logits"]
    spread = np.abs(logits[np.isfinite(logits)]).max(initial=1)
    # 64 additions to a lane and its tree in float32, then float64; the result is a difference.
    return np.full(logits.shape, EXP_ERROR + 80 * UNIT + 8 * UNIT * spread)


def argmax_run(ops: Ops, inputs: Inputs) -> np.ndarray:
    out = np.full(len(inputs["logits"]), -1, np.int32)
    ops.argmax(inputs["logits"], out)
    return out


LOGIT_SHAPES: tuple[Shape, ...] = (
    {"rows": 1, "width": 1},
    {"rows": 3, "width": 17},
    {"rows": 5, "width": 2500, "masked_every": 3},
)
LOG_SOFTMAX = OpSpec("log_softmax", LOGIT_SHAPES, logits_inputs, log_softmax_run, log_softmax_bound)
ARGMAX = OpSpec("argmax", LOGIT_SHAPES, logits_inputs, argmax_run, lambda inputs: 0.0)


# rope_and_store


def rope_inputs(rng: np.random.Generator, shape: Shape) -> Inputs:
    heads, kv_heads, head_dim = shape["heads"], shape["kv_heads"], shape["head_dim"]
    tokens, rotary_dim = shape["tokens"], shape.get("rotary_dim", head_dim)
    angles = rng.uniform(0, 6, (64, rotary_dim // 2)).astype(np.float32)
    norms = normal(rng, 2, head_dim) if shape.get("norm") else (None, None)
    return {
        "shape": shape,
        "qkv": normal(rng, tokens, (heads + 2 * kv_heads) * head_dim),
        "positions": rng.integers(0, 64, tokens, dtype=np.int32),
        "kv_rows": rng.permutation(96)[:tokens].astype(np.int64),
        "cos": np.cos(angles),
        "sin": np.sin(angles),
        "q_norm": norms[0],
        "k_norm": norms[1],
    }


def rope_run(ops: Ops, inputs: Inputs) -> np.ndarray:
    """q, and all of the cache, in one flat array."""
    shape = inputs["shape"]
    cache = ops.new_kv_cache(2, 3, 32, shape["kv_heads"], shape["head_dim"], shape["dtype"])
    qkv = inputs["qkv"].copy()
    ops.rope_and_store(
        qkv,
        inputs["positions"],
        inputs["kv_rows"],
        inputs["cos"],
        inputs["sin"],
        cache,
        1,
        num_heads=shape["heads"],
        q_norm=inputs["q_norm"],
        k_norm=inputs["k_norm"],
        interleaved=shape.get("interleaved", False),
    )
    query = qkv[:, : shape["heads"] * shape["head_dim"]]
    parts = (query, as_float32(cache.keys), as_float32(cache.values))
    return np.concatenate([part.ravel() for part in parts])


def rope_bound(inputs: Inputs) -> float:
    shape = inputs["shape"]
    largest = float(np.abs(inputs["qkv"]).max())
    if inputs["q_norm"] is not None:
        # A normalised element is at most sqrt(head_dim).
        largest = max(largest, shape["head_dim"] ** 0.5 * float(np.abs(inputs["q_norm"]).max()))
        largest = max(largest, shape["head_dim"] ** 0.5 * float(np.abs(inputs["k_norm"]).max()))
    unit = 2 * BF16_UNIT if shape["dtype"] == "bfloat16" else 2 * UNIT * (shape["head_dim"] + 10)
    return unit * 2 * largest


ROPE = OpSpec(
    name="rope_and_store",
    shapes=tuple(
        {"dtype": dtype, "heads": 3, "kv_heads": 1, "tokens": tokens, **rest}
        for dtype in ("float32", "bfloat16")
        for tokens, rest in (
            (1, {"head_dim": 8}),
            (20, {"head_dim": 64, "norm": True}),
            (70, {"head_dim": 80, "rotary_dim": 32}),
            (5, {"head_dim": 16, "interleaved": True}),
        )
    ),
    inputs=rope_inputs,
    run=rope_run,
    bound=rope_bound,
)

ALL = (LINEAR, EMBED, RMS_NORM, SILU_MUL, LOG_SOFTMAX, ARGMAX, ROPE)
