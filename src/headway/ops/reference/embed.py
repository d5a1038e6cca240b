"""Twin of `embed`: rows of a table, by token id."""

from __future__ import annotations

from headway.ops.bfloat16 import as_float32
from headway.ops.interface import F32, I32, Raw


def embed(table: Raw, token_ids: I32, out: F32) -> None:
    """out[i] = table[token_ids[i]]; table [V, D] float32 or bfloat16, out [T, D]."""
    out[...] = as_float32(table[token_ids])
