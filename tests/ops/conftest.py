"""Backends to try: every instruction set that this machine can run, and the emulated tiles."""

from __future__ import annotations

import numpy as np
import pytest

from headway.ops.cpu.backend import CpuOps, available_isas
from headway.ops.reference.backend import ReferenceOps

_backends: dict[str, CpuOps] = {}


def backend(isa: str) -> CpuOps:
    if isa not in _backends:
        _backends[isa] = CpuOps(isa, num_threads=2)
    return _backends[isa]


@pytest.fixture(params=available_isas())
def ops(request: pytest.FixtureRequest) -> CpuOps:
    return backend(request.param)


@pytest.fixture(params=["reference", *available_isas()])
def any_ops(request: pytest.FixtureRequest) -> CpuOps | ReferenceOps:
    return ReferenceOps() if request.param == "reference" else backend(request.param)


@pytest.fixture
def twin() -> ReferenceOps:
    return ReferenceOps()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)
