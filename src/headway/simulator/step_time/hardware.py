"""What machines can do, as their makers say, and what is got of it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

# Bits of one number as stored. int4 carries a 16-bit scale for every 32 weights.
DTYPE_BITS: Mapping[str, float] = {
    "float32": 32,
    "bf16": 16,
    "fp8": 8,
    "int8": 8,
    "int4": 4.5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One device. Peaks are dense: figures with structured sparsity are twice as large.

    `peak_flops`: operations a second by dtype of the products, a multiply-add being two.
    `compute_efficiency`, `memory_efficiency`: the shares of the peaks that are got.
    `overhead_ns`: of a step, whatever its size. These three are assumptions, everything else has
    its source in `sources`. Change a copy with `dataclasses.replace`.
    """

    name: str
    peak_flops: Mapping[str, float]
    memory_bytes: int
    memory_bytes_per_second: float
    sources: Mapping[str, str]
    compute_efficiency: float = 0.7
    memory_efficiency: float = 0.8
    overhead_ns: float = 500_000.0

    def __post_init__(self) -> None:
        for name in ("compute_efficiency", "memory_efficiency"):
            if not 1e-6 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in [1e-6, 1], got {getattr(self, name)}")
        if self.memory_bytes_per_second <= 0 or min(self.peak_flops.values(), default=0) <= 0:
            raise ValueError(f"{self.name}: peaks must be above 0")
        if not 0 <= self.overhead_ns <= 1e12:
            raise ValueError(f"overhead_ns must be from 0 to 1e12, got {self.overhead_ns}")

    def flops(self, dtype: str) -> float:
        """Operations a second that are got in products of this dtype. Raises ValueError."""
        if dtype not in self.peak_flops:
            known = ", ".join(self.peak_flops)
            raise ValueError(f"{self.name} has no peak for products in {dtype}: choose {known}")
        return self.peak_flops[dtype] * self.compute_efficiency

    @property
    def bytes_per_second(self) -> float:
        """Memory traffic that is got."""
        return self.memory_bytes_per_second * self.memory_efficiency


def _gpu(
    name: str,
    peaks: Mapping[str, float],
    memory_gb: int,
    gb_per_second: float,
    *,
    peaks_from: str,
    memory_from: str | None = None,
) -> Hardware:
    return Hardware(
        name=name,
        peak_flops={dtype: tera * 1e12 for dtype, tera in peaks.items()},
        memory_bytes=memory_gb * 10**9,
        memory_bytes_per_second=gb_per_second * 1e9,
        sources={"peak_flops": peaks_from, "memory": memory_from or peaks_from},
    )


_CPU = Hardware(
    name="cpu-avx512",
    peak_flops={"float32": 449e9, "bf16": 449e9, "int8": 1600e9},
    memory_bytes=24 * 2**30,
    memory_bytes_per_second=28e9,
    sources={
        "peak_flops": "benchmarks/roofline.py on two cores of a Xeon with AVX-512: float32 "
        "multiply-adds (products of bf16 weights are made of them), int8 dot products",
        "memory": "benchmarks/roofline.py, reading 1 GiB with two threads",
    },
    compute_efficiency=0.7,
    memory_efficiency=0.9,
    overhead_ns=150_000.0,
)

_PRESETS = (
    _gpu(
        "h100-sxm",
        {"bf16": 989, "fp8": 1979, "int8": 1979},
        80,
        3350,
        peaks_from="NVIDIA H100 datasheet, SXM column, halved: printed with sparsity",
    ),
    _gpu(
        "h100-pcie",
        {"bf16": 756.5, "fp8": 1513, "int8": 1513},
        80,
        2000,
        peaks_from="NVIDIA H100 datasheet, PCIe column, halved: printed with sparsity",
    ),
    _gpu(
        "h200-sxm",
        {"bf16": 989, "fp8": 1979, "int8": 1979},
        141,
        4800,
        peaks_from="NVIDIA H200 datasheet, SXM column, halved: printed with sparsity",
    ),
    _gpu(
        "a100-80gb-sxm",
        {"bf16": 312, "int8": 624},
        80,
        2039,
        peaks_from="NVIDIA A100 datasheet, 80GB SXM column, without sparsity",
    ),
    _gpu(
        "a100-40gb-sxm",
        {"bf16": 312, "int8": 624},
        40,
        1555,
        peaks_from="NVIDIA A100 datasheet, 40GB SXM column, without sparsity",
    ),
    _gpu(
        "a10",
        {"bf16": 125, "int8": 250},
        24,
        600,
        peaks_from="NVIDIA A10 datasheet, without sparsity",
    ),
    _gpu(
        "l4",
        {"bf16": 121, "fp8": 242.5, "int8": 242.5},
        24,
        300,
        peaks_from="NVIDIA L4 datasheet, halved: printed with sparsity (242 and 485)",
    ),
    _gpu(
        "l40s",
        {"bf16": 362.05, "fp8": 733, "int8": 733},
        48,
        864,
        peaks_from="NVIDIA L40S datasheet, figures without sparsity",
    ),
    _gpu(
        "b200-sxm",
        {"bf16": 2250, "fp8": 4500, "int8": 4500},
        180,
        8000,
        peaks_from="NVIDIA Blackwell architecture brief, HGX B200 at 1,000 W, without sparsity",
        memory_from="NVIDIA DGX B200 datasheet: 1,440 GB and 64 TB/s of eight",
    ),
    _gpu(
        "rtx-4090",
        {"bf16": 165.2, "fp8": 330.3, "int8": 660.6},
        24,
        1008,
        peaks_from="NVIDIA Ada GPU architecture whitepaper, appendix: with sums in float32",
    ),
    _gpu(
        "mi300x",
        {"bf16": 1307.4, "fp8": 2614.9, "int8": 2614.9},
        192,
        5300,
        peaks_from="AMD Instinct MI300X data sheet, without sparsity",
    ),
    _CPU,
)
HARDWARE: Mapping[str, Hardware] = {preset.name: preset for preset in _PRESETS}
_SHORT_NAMES = {
    "h100": "h100-sxm",
    "h200": "h200-sxm",
    "a100": "a100-80gb-sxm",
    "b200": "b200-sxm",
    "rtx4090": "rtx-4090",
    "4090": "rtx-4090",
    "cpu": "cpu-avx512",
}


def hardware_named(name: str) -> Hardware:
    """A preset, in any case, or by its short name. Raises ValueError that lists them."""
    key = name.lower().replace("_", "-").replace(" ", "-")
    found = HARDWARE.get(_SHORT_NAMES.get(key, key))
    if found is None:
        near = difflib.get_close_matches(key, [*HARDWARE, *_SHORT_NAMES], n=1, cutoff=0.7)
        guess = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"no hardware is called {name!r}: {guess}choose {', '.join(HARDWARE)}")
    return found
