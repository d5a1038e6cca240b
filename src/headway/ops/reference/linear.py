"""Twin of `linear`: out = x @ weight.T + bias, one row at a time."""

from __future__ import annotations

from headway.ops.bfloat16 import from_bf16, round_to_bf16
from headway.ops.interface import F32, PackedLinear


def linear(x: F32, weight: PackedLinear, out: F32, *, accumulate: bool = False) -> None:
    """x [M, K], weight [N, K], out [M, N]; bfloat16 weights see x rounded to bfloat16.

    The matrix-vector product of a row is the same call however many rows there are, so that the
    row's bits are too.
    """
    matrix = weight.data
    if weight.dtype == "bfloat16":
        matrix, x = from_bf16(matrix), round_to_bf16(x)
    for row, result in zip(x, out, strict=True):
        product = matrix @ row
        if weight.bias is not None:
            product += weight.bias
        result[:] = result + product if accumulate else product
