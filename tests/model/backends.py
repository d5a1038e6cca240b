"""The backends that a model test runs on: the twins and the native kernels."""

from __future__ import annotations

from headway.ops.cpu.backend import CpuOps
from headway.ops.interface import Ops
from headway.ops.reference.backend import ReferenceOps

BACKENDS = ("reference", "cpu")


def make_ops(name: str) -> Ops:
    return ReferenceOps() if name == "reference" else CpuOps()
