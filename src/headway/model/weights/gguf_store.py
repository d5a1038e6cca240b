"""A GGUF file as a TensorStore: dequantised, with the rows of q and k in the usual order."""

from __future__ import annotations

import numpy as np

from headway.model.errors import ModelError
from headway.model.families import family_of
from headway.model.shape import ModelConfig
from headway.model.weights.gguf import GGUFFile
from headway.model.weights.store import release_pages
from headway.ops.interface import F32, GroupedWeight, Raw

_ROPE_DIVISORS = "rope_freqs.weight"


class GGUFStore:
    """TensorStore over a file whose configuration is `config`."""

    def __init__(self, file: GGUFFile, config: ModelConfig) -> None:
        self.origin = str(file.path)
        self._file = file
        self._config = config
        self._permuted = family_of(config.architecture).gguf_permuted

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        tensors = self._file.tensors.values()
        return {t.name: t.shape for t in tensors if t.name != _ROPE_DIVISORS}

    def release(self, name: str) -> None:
        release_pages(self._file.tensors[name].stored)

    def exact_dtype(self, name: str) -> str:
        return "bfloat16" if self._file.tensors[name].type_name == "BF16" else "float32"

    def read(self, name: str, dtype: str) -> Raw:
        return self._in_order(name, self._file.tensors[name].read(dtype))

    def grouped(self, name: str) -> GroupedWeight | None:
        found = self._file.tensors[name].grouped()
        if found is None:
            return None
        minimums = None if found.minimums is None else self._in_order(name, found.minimums)
        return GroupedWeight(
            found.format,
            self._in_order(name, found.numbers),
            self._in_order(name, found.scales),
            minimums,
            self._in_order(name, found.factors),
        )

    def _in_order(self, name: str, rows: Raw) -> Raw:
        if self._permuted and ".attn_q." in name:
            return _halves_from_pairs(rows, self._config.num_heads)
        if self._permuted and ".attn_k." in name:
            return _halves_from_pairs(rows, self._config.num_kv_heads)
        return rows

    def rope_divisors(self) -> F32 | None:
        """Divisors of the rotary frequencies [rotary_dim / 2] (how Llama 3 files stretch them)."""
        tensor = self._file.tensors.get(_ROPE_DIVISORS)
        if tensor is None:
            return None
        expected = (self._config.rope.rotary_dim // 2,)
        divisors = tensor.read()
        if tensor.shape != expected or not np.all(np.isfinite(divisors) & (divisors > 0)):
            raise ModelError(
                f"{self.origin}: tensor {_ROPE_DIVISORS!r} must hold {expected[0]} positive "
                f"numbers, found shape {list(tensor.shape)}"
            )
        return divisors


def _halves_from_pairs(rows: Raw, num_heads: int) -> Raw:
    """Rows (or a bias) of each head from rotary pairs (2i, 2i + 1) to halves (i, i + D/2)."""
    pairs = rows.reshape(num_heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
