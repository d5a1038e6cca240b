"""What the loader needs of a weight file, whatever its format."""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headway.model.errors import ModelError
from headway.ops.bfloat16 import from_bf16, to_bf16
from headway.ops.interface import GroupedWeight, Raw

# Converted at a time: small enough for the cache, large enough that numpy's calls vanish.
_PART_VALUES = 1 << 18


class TensorStore(Protocol):
    """Tensors by name, as on disk until they are read. Checked when opened."""

    origin: str

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]: ...

    def read(self, name: str, dtype: str) -> Raw:
        """A new or mapped array of the tensor's shape, as "float32" or "bfloat16" (uint16).

        May be called by several threads at once.
        """
        ...

    def release(self, name: str) -> None:
        """The tensor has been read for good: what memory the file takes may be given back."""
        ...

    def grouped(self, name: str) -> GroupedWeight | None:
        """The tensor as it is, if it is stored in few bits that the kernels take; else None."""
        ...

    def exact_dtype(self, name: str) -> str:
        """ "bfloat16" where the tensor is stored so, else "float32": what `read` need not round."""
        ...


def map_file(path: Path) -> npt.NDArray[np.uint8]:
    """The file's bytes, read by the system when touched. Raises ModelError."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{path} is empty: download the model again") from error
    return np.frombuffer(mapped, dtype=np.uint8)


def release_pages(stored: npt.NDArray[Any]) -> None:
    """Let go of the pages behind a part of what `map_file` gave; reading it again brings them back.

    Its neighbours on the first and the last page lose theirs as well, to the same effect. Other
    arrays are left alone.
    """
    whole = stored
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    mapping = whole.base.obj if isinstance(whole.base, memoryview) else whole.base
    if whole.flags.writeable or not isinstance(mapping, mmap.mmap):
        return  # memory of the process: letting go would be losing it
    start = stored.ctypes.data - whole.ctypes.data
    first = start - start % mmap.PAGESIZE
    with contextlib.suppress(OSError, AttributeError):  # a system without such advice
        mapping.madvise(mmap.MADV_DONTNEED, first, start - first + stored.nbytes)


def as_dtype(values: npt.NDArray[Any], dtype: str) -> Raw:
    """float16, float32, float64, or uint16 as bfloat16, to `dtype`; part by part, little memory."""
    is_bf16 = values.dtype == np.uint16
    if is_bf16 and dtype == "bfloat16":
        return values
    if values.dtype == np.float32 and dtype == "float32":
        return values
    flat = values.reshape(-1)
    out = np.empty(flat.size, dtype=np.uint16 if dtype == "bfloat16" else np.float32)
    for start in range(0, flat.size, _PART_VALUES):
        part = flat[start : start + _PART_VALUES]
        with np.errstate(over="ignore"):  # float64 beyond float32 becomes inf
            wide = from_bf16(part) if is_bf16 else part.astype(np.float32)
        out[start : start + len(part)] = to_bf16(wide) if dtype == "bfloat16" else wide
    return out.reshape(values.shape)
