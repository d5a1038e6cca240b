"""Every op of the catalogue is within its bound of its twin, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from headway.ops import catalog
from tests.ops.comparing import assert_close

CASES = [(spec, shape) for spec in catalog.ALL for shape in spec.shapes]


def name_of(case: object) -> str:
    if isinstance(case, catalog.OpSpec):
        return case.name
    if isinstance(case, dict):
        return "-".join(f"{k}{v}" for k, v in case.items())
    return str(case)


@pytest.mark.parametrize(("spec", "shape"), CASES, ids=name_of)
def test_kernel_is_close_to_its_twin(ops, twin, rng, spec, shape):
    inputs = spec.inputs(rng, shape)
    assert_close(spec.run(ops, inputs), spec.run(twin, inputs), spec.bound(inputs))


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        (catalog.LINEAR, 1e-3),
        (catalog.RMS_NORM, 1e-3),
        (catalog.SILU_MUL, 1e-4),
        (catalog.LOG_SOFTMAX, 1e-3),
    ],
    ids=name_of,
)
def test_the_bound_would_notice_a_small_mistake(twin, rng, spec, wrong):
    inputs = spec.inputs(rng, spec.shapes[1])
    result = spec.run(twin, inputs)
    with pytest.raises(AssertionError):
        assert_close(result * np.float32(1 + wrong), result, spec.bound(inputs))
