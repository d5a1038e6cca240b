"""The ops that treat rows apart: bits do not depend on the other rows, their number, or threads."""

from __future__ import annotations

import numpy as np
import pytest

from headway.ops import catalog
from headway.ops.cpu.backend import CpuOps
from tests.ops.comparing import assert_same_bits

# Which inputs have a row per row of the result, and a shape that is worth several threads.
ROWWISE = {
    "embed": (("token_ids",), {"vocabulary": 37, "width": 577, "rows": 130, "dtype": "bfloat16"}),
    "rms_norm": (("x",), {"rows": 130, "width": 577}),
    "silu_mul": (("gate_up",), {"rows": 130, "width": 577, "scale": 3}),
    "log_softmax": (("logits",), {"rows": 40, "width": 2049, "masked_every": 7}),
    "argmax": (("logits",), {"rows": 40, "width": 2049}),
}
SPECS = {spec.name: spec for spec in catalog.ALL}


def some_rows(inputs, names, rows):
    picked = {name: np.ascontiguousarray(inputs[name][rows]) for name in names}
    return {**inputs, **picked}


@pytest.mark.parametrize("name", ROWWISE)
def test_rows_are_the_same_alone_and_together(any_ops, rng, name):
    row_inputs, shape = ROWWISE[name]
    spec = SPECS[name]
    inputs = spec.inputs(rng, shape)
    whole = spec.run(any_ops, inputs)
    for rows in ([0], [17], slice(3, 10), rng.permutation(shape["rows"])):
        assert_same_bits(spec.run(any_ops, some_rows(inputs, row_inputs, rows)), whole[rows])


@pytest.mark.parametrize("name", ROWWISE)
def test_rows_do_not_know_the_number_of_threads(ops, rng, name):
    spec = SPECS[name]
    inputs = spec.inputs(rng, ROWWISE[name][1])
    expected = spec.run(CpuOps(ops.isa, num_threads=1), inputs)
    for threads in (2, 5):
        assert_same_bits(spec.run(CpuOps(ops.isa, num_threads=threads), inputs), expected)
