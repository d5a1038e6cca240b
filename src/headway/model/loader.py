"""From a source to a decoder: open, check, then read and pack tensor by tensor."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

from headway.model.config import read_config
from headway.model.decoder import Decoder, DecoderWeights, LayerWeights
from headway.model.errors import ModelError
from headway.model.gguf_config import gguf_config
from headway.model.shape import DTYPE_BYTES, ModelConfig
from headway.model.source import ModelSource
from headway.model.weights.dummy import DummyStore
from headway.model.weights.gguf import read_gguf
from headway.model.weights.gguf_store import GGUFStore
from headway.model.weights.grouped import stacked
from headway.model.weights.names import (
    GGUF_NAMES,
    HF_NAMES,
    TensorNames,
    bias_of,
    check_shapes,
    expected_shapes,
)
from headway.model.weights.safetensors import SafetensorsStore
from headway.model.weights.store import TensorStore, as_dtype, release_pages
from headway.ops.interface import F32, GroupedWeight, Ops, PackedLinear, Raw
from headway.ops.memory import aligned_zeros

# Matrices read (and dequantised) while another is packed: more would only cost memory.
_AHEAD = 2
_PIECE_BYTES = 16 << 20
_PIECE_ROWS = 256  # a multiple of any backend's panel
_LOAD_FORMATS = ("auto", "dummy")
QUANTIZATIONS = (None, "int8", "int4", "gguf")

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """`phases_ms` says how long each part of the loading took, for people to read."""

    config: ModelConfig
    decoder: Decoder
    phases_ms: dict[str, float]


def load_model(
    source: ModelSource,
    ops: Ops,
    dtype: str,
    *,
    load_format: str = "auto",
    quantization: str | None = None,
) -> LoadedModel:
    """Weights in memory as `dtype` ("float32" or "bfloat16"), packed for `ops`.

    `quantization="int8"` packs the matrices of the layers and the output as int8 with a scale per
    output channel; "int4" those of the layers in 4 bits, the output as int8; "gguf" takes all that
    a GGUF file has in few bits as they are, the others as `dtype`. The embedding and the vectors
    stay `dtype`.
    `load_format="dummy"` makes random weights of the model's shapes. Raises ModelError.
    """
    if dtype not in DTYPE_BYTES:
        raise ModelError(f"dtype must be {' or '.join(DTYPE_BYTES)}, got {dtype!r}")
    if load_format not in _LOAD_FORMATS:
        raise ModelError(f"load_format must be {' or '.join(_LOAD_FORMATS)}, got {load_format!r}")
    if quantization not in QUANTIZATIONS:
        raise ModelError(f"quantization must be int8, int4, gguf or left out, got {quantization!r}")
    if quantization == "gguf" and (source.kind != "gguf" or load_format == "dummy"):
        raise ModelError(f"quantization gguf needs a GGUF file, {source.name} is loaded otherwise")
    started = time.monotonic()
    opened = _open_dummy(source) if load_format == "dummy" else _open(source)
    check_shapes(opened.store.shapes, opened.config, opened.names, opened.store.origin)
    checked = time.monotonic()
    weights = _Packing(opened, ops, dtype, quantization).pack()
    packed = time.monotonic()
    phases_ms = {
        "open and check": 1e3 * (checked - started),
        "read and pack": 1e3 * (packed - checked),
    }
    return LoadedModel(opened.config, Decoder(opened.config, weights, ops), phases_ms)


class _Opened(NamedTuple):
    config: ModelConfig
    store: TensorStore
    names: TensorNames
    rope_divisors: F32 | None = None


def _open(source: ModelSource) -> _Opened:
    if source.kind == "gguf":
        file = read_gguf(source.path)
        config = gguf_config(file)
        store = GGUFStore(file, config)
        return _Opened(config, store, GGUF_NAMES, store.rope_divisors())
    return _Opened(read_config(source), SafetensorsStore(source.path), HF_NAMES)


def _open_dummy(source: ModelSource) -> _Opened:
    config = read_config(source)
    return _Opened(config, DummyStore(expected_shapes(config, HF_NAMES)), HF_NAMES)


class _Matrix(NamedTuple):
    """Tensors stacked into one linear; `scale` is a multiplier that the weights absorb."""

    parts: tuple[str, ...]
    packed_as: str
    has_bias: bool = False
    scale: float = 1.0


class _Read(NamedTuple):
    weight: tuple[Raw, ...] | GroupedWeight
    bias: F32 | None
    packed_as: str


class _Packing:
    """Reads matrices in other threads, packs them in this one, in the order of the layers."""

    def __init__(self, opened: _Opened, ops: Ops, dtype: str, quantization: str | None) -> None:
        self._config, self._store, self._names, self._rope_divisors = opened
        self._ops = ops
        self._dtype = dtype
        self._takes_groups = quantization == "gguf"
        self._packed_as = dtype if self._takes_groups else quantization or dtype

    def pack(self) -> DecoderWeights:
        config, names = self._config, self._names
        with ThreadPoolExecutor(_AHEAD, thread_name_prefix="headway-load") as pool:
            matrices = _read_ahead(pool, self._read_matrix, self._matrices())
            linears = map(self._pack_matrix, self._matrices(), matrices)
            layers = tuple(self._layer(index, linears) for index in range(config.num_layers))
            lm_head = next(linears)
        return DecoderWeights(
            embedding=self._embedding(lm_head),
            layers=layers,
            final_norm=self._vector(names.final_norm),
            lm_head=lm_head,
            rope_divisors=self._rope_divisors,
        )

    def _pack_matrix(self, matrix: _Matrix, read: _Read) -> PackedLinear:
        packed = self._pack(read)
        for name in matrix.parts:
            self._store.release(name)
        return packed

    def _pack(self, read: _Read) -> PackedLinear:
        if isinstance(read.weight, GroupedWeight):
            return self._ops.pack_grouped(read.weight, read.bias)
        pieces = tuple(piece for part in read.weight for piece in _pieces(part))
        return self._ops.pack_linear(pieces, read.bias, read.packed_as, on_packed=release_pages)

    def _embedding(self, lm_head: PackedLinear) -> Raw:
        """The output matrix itself where it holds the same numbers; else rows of its own."""
        config, name = self._config, self._names.embedding
        is_same = config.tie_word_embeddings and lm_head.dtype == self._dtype
        if is_same and config.embedding_multiplier == config.logits_divisor == 1.0:
            table = self._ops.as_table(lm_head)
            if table is not None:
                return table
        rows = _owned(self._scaled(name, config.embedding_multiplier, self._dtype))
        self._store.release(name)
        return rows

    def _matrices(self) -> Iterator[_Matrix]:
        """In the order in which `_layer` and `pack` take them."""
        config, names = self._config, self._names
        branch = config.residual_multiplier
        for index in range(config.num_layers):
            for patterns, has_bias, scale in (
                ((names.q, names.k, names.v), config.qkv_bias, 1.0),
                ((names.o,), config.o_bias, branch),
                ((names.gate, names.up), config.mlp_bias, 1.0),
                ((names.down,), config.mlp_bias, branch),
            ):
                parts = tuple(pattern.format(layer=index) for pattern in patterns)
                yield _Matrix(parts, self._packed_as, has_bias, scale)
        head = names.embedding if config.tie_word_embeddings else names.lm_head
        # Logits are what 4 bits hurt most (docs/decisions/0024-int4-and-gguf-weights.md).
        packed_as = "int8" if self._packed_as == "int4" else self._packed_as
        yield _Matrix((head,), packed_as, scale=1.0 / config.logits_divisor)

    def _layer(self, index: int, linears: Iterator[PackedLinear]) -> LayerWeights:
        names = self._names
        qkv, o, gate_up, down = islice(linears, 4)
        q_norm = k_norm = None
        if self._config.qk_norm:
            q_norm = self._vector(names.q_norm.format(layer=index))
            k_norm = self._vector(names.k_norm.format(layer=index))
        return LayerWeights(
            attention_norm=self._vector(names.attention_norm.format(layer=index)),
            qkv=qkv,
            o=o,
            mlp_norm=self._vector(names.mlp_norm.format(layer=index)),
            gate_up=gate_up,
            down=down,
            q_norm=q_norm,
            k_norm=k_norm,
        )

    def _read_matrix(self, matrix: _Matrix) -> _Read:
        bias = None
        if matrix.has_bias:
            biases = np.concatenate([self._vector(bias_of(name)) for name in matrix.parts])
            bias = biases * np.float32(matrix.scale)
        weight = self._grouped(matrix) if self._takes_groups else None
        return _Read(self._floats(matrix) if weight is None else weight, bias, matrix.packed_as)

    def _grouped(self, matrix: _Matrix) -> GroupedWeight | None:
        found = [self._store.grouped(name) for name in matrix.parts]
        parts = [part for part in found if part is not None]
        if len(parts) < len(found):
            return None
        weight = stacked(parts)
        return replace(weight, factors=weight.factors * np.float32(matrix.scale))

    def _floats(self, matrix: _Matrix) -> tuple[Raw, ...]:
        dtype = self._matrix_dtype(matrix)
        return tuple(self._scaled(name, matrix.scale, dtype) for name in matrix.parts)

    def _matrix_dtype(self, matrix: _Matrix) -> str:
        """What a matrix is read as before it is packed: rounded once, not twice."""
        if matrix.packed_as == self._dtype:
            return self._dtype
        is_exact = all(self._store.exact_dtype(name) == "bfloat16" for name in matrix.parts)
        return "bfloat16" if is_exact and matrix.scale == 1.0 else "float32"

    def _scaled(self, name: str, scale: float, dtype: str) -> Raw:
        if scale == 1.0:
            return np.ascontiguousarray(self._store.read(name, dtype))
        return as_dtype(self._vector(name) * np.float32(scale), dtype)

    def _vector(self, name: str) -> F32:
        # Copied: a small array must not keep a whole mapped file open.
        return np.array(self._store.read(name, "float32"), dtype=np.float32)


def _owned(array: Raw) -> Raw:
    """A copy of what is still mapped, so that nobody changes it by changing the file."""
    if array.flags.writeable:
        return array
    copy: Raw = aligned_zeros(array.shape, array.dtype.type)
    for piece, place in zip(_pieces(array), _pieces(copy), strict=True):
        np.copyto(place, piece)
        release_pages(piece)
    return copy


def _pieces(matrix: Raw) -> list[Raw]:
    """Rows of it, whole panels at a time: what has been packed of the file needs no memory."""
    step = max(1, _PIECE_BYTES // (_PIECE_ROWS * matrix[0].nbytes)) * _PIECE_ROWS
    return [matrix[first : first + step] for first in range(0, len(matrix), step)]


def _read_ahead(
    pool: ThreadPoolExecutor, read: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Results in order, with `_AHEAD` of them being read while the caller uses one."""
    pending: deque[Future[Result]] = deque()
    for item in items:
        pending.append(pool.submit(read, item))
        if len(pending) > _AHEAD:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
