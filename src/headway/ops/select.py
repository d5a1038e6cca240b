"""Which backend runs, and why."""

from __future__ import annotations

import os

from headway.ops.interface import Ops

ISA_VARIABLE = "HEADWAY_ISA"


def choose(wanted: str | None = None, *, num_threads: int | None = None) -> tuple[Ops, str]:
    """A backend and the reason for it, as a sentence.

    `wanted`: "reference", "cpu", or an instruction set of the cpu backend ("avx512", "cpu/avx512");
    None asks the environment variable HEADWAY_ISA and then takes the best there is. Raises
    ValueError for what this machine cannot run, ImportError when the kernels were not built.
    """
    source = "asked for"
    if wanted is None and os.environ.get(ISA_VARIABLE):
        wanted, source = os.environ[ISA_VARIABLE], f"asked for by {ISA_VARIABLE}"
    if wanted == "reference":
        from headway.ops.reference.backend import ReferenceOps

        return ReferenceOps(), f"the numpy reference, {source}: right, and slow"
    isa = None if wanted in (None, "cpu") else wanted.removeprefix("cpu/")
    return _cpu(isa, num_threads, source)


def _cpu(isa: str | None, num_threads: int | None, source: str) -> tuple[Ops, str]:
    try:
        from headway.ops.cpu.backend import CpuOps
    except ImportError as error:
        raise ImportError(
            "the cpu kernels are not built: install headway, or run `make native` in a checkout; "
            "HEADWAY_ISA=reference runs without them, slowly"
        ) from error
    ops = CpuOps(isa, num_threads)
    why = source if isa else "the best this machine can run"
    return ops, f"cpu kernels for {ops.isa}, {why}, on {ops.num_threads} threads"
