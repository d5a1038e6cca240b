"""Weights of a Hugging Face directory: one safetensors file, or several behind an index."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from headway.model.errors import ModelError
from headway.model.hf_config import read_json
from headway.model.weights.store import as_dtype, map_file, release_pages
from headway.ops.interface import GroupedWeight, Raw

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100 << 20


class _Tensor(NamedTuple):
    stored: npt.NDArray[np.uint8]  # its bytes, mapped
    dtype: str
    shape: tuple[int, ...]


class SafetensorsStore:
    """A TensorStore over mapped files. Opening it checks every header; nothing is read yet."""

    def __init__(self, directory: Path) -> None:
        """Raises ModelError when files are missing, truncated, or disagree with the index."""
        self.origin = str(directory)
        self._tensors: dict[str, _Tensor] = {}
        for path, expected in _files(directory).items():
            found = _open_file(path)
            missing = expected - found.keys()
            if missing:
                raise ModelError(
                    f"{path} lacks tensor {min(missing)!r}, which the index places there"
                )
            twice = self._tensors.keys() & found.keys()
            if twice:
                raise ModelError(f"tensor {min(twice)!r} is in two files of {directory}")
            self._tensors.update(found)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tensor.shape for name, tensor in self._tensors.items()}

    def release(self, name: str) -> None:
        release_pages(self._tensors[name].stored)

    def exact_dtype(self, name: str) -> str:
        return "bfloat16" if self._tensors[name].dtype == "BF16" else "float32"

    def grouped(self, name: str) -> GroupedWeight | None:
        return None

    def read(self, name: str, dtype: str) -> Raw:
        tensor = self._tensors[name]
        if tensor.dtype not in _DTYPES:
            raise ModelError(
                f"tensor {name!r} in {self.origin} is stored as {tensor.dtype}, "
                f"which is not served (served: {', '.join(_DTYPES)})"
            )
        values = tensor.stored.view(np.uint8)
        stored = np.dtype(_DTYPES[tensor.dtype])
        if values.ctypes.data % stored.itemsize:
            values = values.copy()
        return as_dtype(values.view(stored).reshape(tensor.shape), dtype)


def _files(directory: Path) -> dict[Path, set[str]]:
    """Each file, with the tensors that the index says are in it."""
    index_path = directory / _INDEX
    if not index_path.is_file():
        if not (directory / _SINGLE).is_file():
            raise ModelError(
                f"{directory} has neither {_SINGLE} nor {_INDEX}: "
                f"only safetensors and GGUF weights are served"
            )
        return {directory / _SINGLE: set()}
    weight_map = read_json(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{index_path} has no weight_map: download the model again")
    files: dict[Path, set[str]] = {}
    for name, shard in weight_map.items():
        files.setdefault(_shard_path(directory, shard), set()).add(name)
    return files


def _shard_path(directory: Path, shard: object) -> Path:
    plain = isinstance(shard, str) and Path(shard).name == shard and "\0" not in shard
    if not plain or not str(shard).endswith(".safetensors"):
        raise ModelError(
            f"{directory / _INDEX} names the file {str(shard)[:80]!r}; "
            f"shards must be .safetensors files in the model's own directory"
        )
    path = directory / str(shard)
    if not path.is_file():
        raise ModelError(f"{path} is missing, but the index needs it: download the model again")
    return path


def _open_file(path: Path) -> dict[str, _Tensor]:
    """The tensors of one file. The library checks the layout; sizes are checked again here."""
    try:
        with safe_open(path, framework="numpy"):
            pass
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(
            f"{path} is not a valid safetensors file ({error}): download it again"
        ) from error
    stored = map_file(path)
    length = int.from_bytes(stored[:_LENGTH_BYTES].tobytes(), "little")
    start = _LENGTH_BYTES + length
    if length > _MAX_HEADER_BYTES or start > len(stored):
        raise ModelError(f"{path} is truncated in its header: download it again")
    try:
        header = json.loads(stored[_LENGTH_BYTES:start].tobytes())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} has a malformed header: download it again") from error
    header.pop("__metadata__", None)
    return {name: _tensor(path, name, entry, stored[start:]) for name, entry in header.items()}


def _tensor(
    path: Path, name: str, entry: dict[str, Any], contents: npt.NDArray[np.uint8]
) -> _Tensor:
    begin, end = entry["data_offsets"]
    dtype, shape = entry["dtype"], tuple(entry["shape"])
    num_bytes = math.prod(shape) * np.dtype(_DTYPES.get(dtype, "u1")).itemsize
    fits = 0 <= begin <= end <= len(contents) and (dtype not in _DTYPES or end - begin == num_bytes)
    if not fits:
        raise ModelError(
            f"{path}: tensor {name!r} of shape {list(shape)} and {dtype} cannot lie in bytes "
            f"[{begin}, {end}) of {len(contents)}: download it again"
        )
    return _Tensor(contents[begin:end], dtype, shape)
