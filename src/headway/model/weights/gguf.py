"""Reader of GGUF files, versions 2 and 3: metadata, tensor directory, mapped contents.

Hostile until checked: nothing is allocated by a count before the count is known to fit the file.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headway.model.errors import ModelError
from headway.model.weights.dequantize import BLOCK_TYPES, dequantize
from headway.model.weights.grouped import TAKEN, take_blocks
from headway.model.weights.store import map_file
from headway.ops.bfloat16 import to_bf16
from headway.ops.blocks import decode_blocks
from headway.ops.interface import GroupedWeight, Raw

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_DIMENSIONS = 4
_MAX_NAME_BYTES = 1 << 10
_MAX_ENTRIES = 1 << 20
_MAX_ARRAY_VALUES = 1 << 24
_MAX_ARRAY_DEPTH = 2
_MAX_ALIGNMENT = 1 << 16
_DEFAULT_ALIGNMENT = 32
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_SMALLEST_STRING_BYTES = 8
_SMALLEST_TENSOR_BYTES = 24
_SMALLEST_ENTRY_BYTES = 13
# Values dequantised at a time, so that the temporaries stay in the cache.
_PART_VALUES = 1 << 15


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """One tensor: `shape` is numpy's, rows first; `stored` its bytes, mapped."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    stored: npt.NDArray[np.uint8]

    def read(self, dtype: str = "float32") -> Raw:
        """Dequantised, as "float32" or "bfloat16" (uint16)."""
        block = BLOCK_TYPES[self.type_name]
        blocks = self.stored.reshape(-1, block.num_bytes)
        out = np.empty(
            (len(blocks), block.num_values), np.uint16 if dtype == "bfloat16" else np.float32
        )
        if decode_blocks(self.type_name, blocks, out):
            return out.reshape(self.shape)
        step = max(1, _PART_VALUES // block.num_values)
        for start in range(0, len(blocks), step):
            values = dequantize(blocks[start : start + step], self.type_name)
            out[start : start + step] = to_bf16(values) if dtype == "bfloat16" else values
        return out.reshape(self.shape)

    def grouped(self) -> GroupedWeight | None:
        """As it is, if its type is one that the kernels take."""
        if self.type_name not in TAKEN:
            return None
        blocks = self.stored.reshape(-1, BLOCK_TYPES[self.type_name].num_bytes)
        return take_blocks(blocks, self.type_name, self.shape)


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """`metadata`: text, numbers, bools and (nested) lists of them, by key."""

    path: Path
    metadata: dict[str, object]
    tensors: dict[str, GGUFTensor]


def read_gguf(path: str | Path) -> GGUFFile:
    """Read the header and place the tensors. Raises ModelError with a sentence."""
    path = Path(path)
    stored = map_file(path)
    cursor = _Cursor(stored, path)
    num_tensors, num_entries = _read_preamble(cursor)
    metadata = _read_metadata(cursor, num_entries)
    directory = [_read_entry(cursor) for _ in range(num_tensors)]
    start = _align(cursor.position, _alignment(metadata, path))
    return GGUFFile(path, metadata, _place(directory, stored[start:], path))


class _Cursor:
    """Reads forward through the header; running off the end is a ModelError."""

    def __init__(self, stored: npt.NDArray[np.uint8], path: Path) -> None:
        self._stored = stored.data
        self.path = path
        self.position = 0

    @property
    def remaining(self) -> int:
        return len(self._stored) - self.position

    def take(self, num_bytes: int) -> memoryview:
        if num_bytes > self.remaining:
            raise self.broken(f"ends {num_bytes - self.remaining} bytes early")
        taken = self._stored[self.position : self.position + num_bytes]
        self.position += num_bytes
        return taken

    def scalar(self, layout: str) -> int | float | bool:
        value: int | float | bool = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return value

    def count(self, layout: str, what: str, smallest: int, limit: int) -> int:
        """How many items follow, each of at least `smallest` bytes."""
        value = int(self.scalar(layout))
        if value > limit or value * smallest > self.remaining:
            raise self.broken(f"claims {value} {what}, more than it can hold")
        return value

    def string(self, limit: int | None = None) -> str:
        length = self.count("<Q", "bytes of text", 1, limit or len(self._stored))
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise self.broken("holds text that is not UTF-8") from error

    def strings(self, count: int) -> list[object]:
        """`string`, many times: a vocabulary has a hundred thousand."""
        try:
            found, self.position = _strings(self._stored, self.position, count)
        except (UnicodeDecodeError, struct.error):
            return [self.string() for _ in range(count)]  # says what is broken, and where
        return found

    def broken(self, how: str) -> ModelError:
        return ModelError(f"{self.path} {how} (byte {self.position}): download the file again")


def _strings(stored: memoryview, position: int, count: int) -> tuple[list[object], int]:
    """The strings that start at `position`, and where they end."""
    found: list[object] = []
    length_at = _LENGTH.unpack_from
    for _ in range(count):
        start = position + _LENGTH.size
        position = start + length_at(stored, position)[0]
        found.append(str(stored[start:position], "utf-8"))
    if position > len(stored):
        raise struct.error("the last string is cut off")
    return found, position


def _read_preamble(cursor: _Cursor) -> tuple[int, int]:
    if bytes(cursor.take(4)) != _MAGIC:
        raise ModelError(f"{cursor.path} is not a GGUF file: it does not begin with GGUF")
    version = int(cursor.scalar("<I"))
    if version not in _VERSIONS:
        raise ModelError(
            f"{cursor.path} is GGUF version {version}; little-endian versions "
            f"{' and '.join(map(str, _VERSIONS))} are served"
        )
    num_tensors = cursor.count("<Q", "tensors", _SMALLEST_TENSOR_BYTES, _MAX_ENTRIES)
    num_entries = cursor.count("<Q", "metadata entries", _SMALLEST_ENTRY_BYTES, _MAX_ENTRIES)
    return num_tensors, num_entries


def _read_metadata(cursor: _Cursor, num_entries: int) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for _ in range(num_entries):
        key = cursor.string(_MAX_NAME_BYTES)
        if key in metadata:
            raise cursor.broken(f"has the metadata key {key!r} twice")
        metadata[key] = _read_value(cursor, int(cursor.scalar("<I")), depth=0)
    return metadata


def _read_value(cursor: _Cursor, type_id: int, *, depth: int) -> object:
    if type_id in _SCALARS:
        return cursor.scalar(_SCALARS[type_id])
    if type_id == _STRING:
        return cursor.string()
    if type_id == _ARRAY and depth < _MAX_ARRAY_DEPTH:
        return _read_array(cursor, depth)
    raise cursor.broken(f"has a metadata value of unknown type {type_id}")


def _read_array(cursor: _Cursor, depth: int) -> list[object]:
    type_id = int(cursor.scalar("<I"))
    if type_id in _SCALARS:
        layout = np.dtype(_SCALARS[type_id])
        length = cursor.count("<Q", "values", layout.itemsize, _MAX_ARRAY_VALUES)
        values: list[object] = np.frombuffer(cursor.take(length * layout.itemsize), layout).tolist()
        return values
    length = cursor.count("<Q", "values", _SMALLEST_STRING_BYTES, _MAX_ARRAY_VALUES)
    if type_id == _STRING:
        return cursor.strings(length)
    return [_read_value(cursor, type_id, depth=depth + 1) for _ in range(length)]


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int


def _read_entry(cursor: _Cursor) -> _Entry:
    name = cursor.string(_MAX_NAME_BYTES)
    num_dimensions = int(cursor.scalar("<I"))
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise cursor.broken(f"gives tensor {name!r} {num_dimensions} dimensions")
    # The file counts the fastest dimension first, numpy last.
    shape = tuple(int(cursor.scalar("<Q")) for _ in range(num_dimensions))[::-1]
    return _Entry(name, shape, int(cursor.scalar("<I")), int(cursor.scalar("<Q")))


def _alignment(metadata: dict[str, object], path: Path) -> int:
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    is_power = isinstance(alignment, int) and alignment > 0 and alignment & (alignment - 1) == 0
    if not is_power or not isinstance(alignment, int) or alignment > _MAX_ALIGNMENT:
        raise ModelError(f"{path}: general.alignment must be a power of two, got {alignment!r}")
    return alignment


def _align(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


def _place(
    directory: list[_Entry], contents: npt.NDArray[np.uint8], path: Path
) -> dict[str, GGUFTensor]:
    tensors: dict[str, GGUFTensor] = {}
    end = 0
    for entry in sorted(directory, key=lambda entry: (entry.offset, entry.name)):
        if entry.name in tensors:
            raise ModelError(f"{path} has tensor {entry.name!r} twice: download the file again")
        if entry.offset < end:
            raise ModelError(f"{path}: tensor {entry.name!r} overlaps another one")
        tensors[entry.name] = tensor = _slice(entry, contents, path)
        end = entry.offset + len(tensor.stored)
    return tensors


_TYPE_NAMES = {block.type_id: name for name, block in BLOCK_TYPES.items()}


def _slice(entry: _Entry, contents: npt.NDArray[np.uint8], path: Path) -> GGUFTensor:
    if entry.type_id not in _TYPE_NAMES:
        raise ModelError(
            f"{path}: tensor {entry.name!r} has quantisation type {entry.type_id}, which is not "
            f"served (served: {', '.join(BLOCK_TYPES)})"
        )
    type_name = _TYPE_NAMES[entry.type_id]
    block = BLOCK_TYPES[type_name]
    num_values = math.prod(entry.shape)
    if num_values == 0 or entry.shape[-1] % block.num_values:
        raise ModelError(
            f"{path}: tensor {entry.name!r} of shape {list(entry.shape)} cannot be {type_name}, "
            f"whose rows are multiples of {block.num_values} values"
        )
    num_bytes = num_values // block.num_values * block.num_bytes
    if entry.offset + num_bytes > len(contents):
        raise ModelError(
            f"{path} ends before tensor {entry.name!r} of shape {list(entry.shape)} and type "
            f"{type_name} does: download the file again"
        )
    stored = contents[entry.offset : entry.offset + num_bytes]
    return GGUFTensor(entry.name, entry.shape, type_name, stored)
