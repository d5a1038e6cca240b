"""The backends that a model test runs on: the twins always, the native one where it is built."""

from __future__ import annotations

import importlib

import pytest

from headway.ops.reference.backend import ReferenceOps


def make_ops(name: str):
    if name == "reference":
        return ReferenceOps()
    try:
        backend = importlib.import_module("headway.ops.cpu.backend")
    except ImportError as error:
        pytest.skip(f"the native backend is not built: {error}")
    return backend.CpuOps()


BACKENDS = ("reference", "cpu")
