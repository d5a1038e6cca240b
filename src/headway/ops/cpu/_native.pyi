from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]

LAYOUT_F32: str
LAYOUT_BF16: str
LAYOUT_INT8: str
LAYOUT_INT4: str

def available_isas() -> list[str]: ...
def known_isas() -> list[str]: ...
def num_allowed_cpus() -> int: ...
def packed_words(layout: str, out_features: int, in_features: int, /) -> int: ...
def block_types() -> list[str]: ...
def dequantize(type_name: str, blocks: Array, out: Array, /) -> None: ...

class Backend:
    def __init__(self, isa: str, num_threads: int) -> None: ...
    @property
    def isa(self) -> str: ...
    @property
    def num_threads(self) -> int: ...
    def pack_linear(self, weight: Array, to_bf16: bool, packed: Array, /) -> None: ...
    def linear(
        self,
        x: Array,
        packed: Array,
        scales: Array | None,
        bias: Array | None,
        out_features: int,
        in_features: int,
        layout: str,
        out: Array,
        accumulate: bool,
        /,
    ) -> None: ...
    def pack_linear_int8(self, weight: Array, packed: Array, scales: Array, /) -> None: ...
    def pack_linear_int4(self, weight: Array, packed: Array, scales: Array, /) -> None: ...
    def pack_linear_grouped(
        self,
        layout: str,
        numbers: Array,
        scales: Array,
        minimums: Array | None,
        packed: Array,
        /,
    ) -> None: ...
    def embed(self, table: Array, token_ids: Array, out: Array, /) -> None: ...
    def rms_norm(self, x: Array, weight: Array, eps: float, out: Array, /) -> None: ...
    def silu_mul(self, gate_up: Array, out: Array, /) -> None: ...
    def rope_and_store(
        self,
        qkv: Array,
        positions: Array,
        kv_rows: Array,
        cos: Array,
        sin: Array,
        keys: Array,
        values: Array,
        block_size: int,
        layer: int,
        num_heads: int,
        q_norm: Array | None,
        k_norm: Array | None,
        eps: float,
        interleaved: bool,
        /,
    ) -> None: ...
    def paged_attention(
        self,
        qkv: Array,
        keys: Array,
        values: Array,
        block_size: int,
        layer: int,
        positions: Array,
        chunk_starts: Array,
        block_tables: Array,
        num_heads: int,
        scale: float,
        window: int,
        out: Array,
        /,
    ) -> None: ...
    def argmax(self, logits: Array, out: Array, /) -> None: ...
    def log_softmax(self, logits: Array, out: Array, /) -> None: ...
    def sample(
        self,
        logits: Array,
        temperature: Array,
        top_k: Array,
        top_p: Array,
        min_p: Array,
        seeds: Array,
        positions: Array,
        out: Array,
        /,
    ) -> None: ...
    def widen(self, bf16: Array, f32: Array, /) -> None: ...
    def narrow(self, f32: Array, bf16: Array, /) -> None: ...

class Program:
    """Buffers by number. Holds pointers to the weights: the caller keeps them."""

    def __init__(self, backend: Backend, /) -> None: ...
    def add_buffer(self, columns: int, /) -> int: ...
    def embed(self, table: Array, out: int, /) -> None: ...
    def rms_norm(self, x: int, weight: Array, eps: float, out: int, /) -> None: ...
    def linear(
        self,
        x: int,
        packed: Array,
        scales: Array | None,
        bias: Array | None,
        out_features: int,
        in_features: int,
        layout: str,
        out: int,
        accumulate: bool,
        /,
    ) -> None: ...
    def rope_and_store(
        self,
        qkv: int,
        layer: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        rotates: bool,
        q_norm: Array | None,
        k_norm: Array | None,
        eps: float,
        /,
    ) -> None: ...
    def attention(
        self,
        qkv: int,
        layer: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        window: int,
        out: int,
        /,
    ) -> None: ...
    def silu_mul(self, gate_up: int, out: int, /) -> None: ...
    def pick_logit_rows(self, x: int, out: int, /) -> None: ...
    def run(
        self,
        token_ids: Array,
        positions: Array,
        kv_rows: Array,
        chunk_starts: Array,
        block_tables: Array,
        logit_rows: Array,
        keys: Array,
        values: Array,
        block_size: int,
        cos: Array,
        sin: Array,
        identity_cos: Array,
        identity_sin: Array,
        result: int,
        out: Array,
        /,
    ) -> None: ...
    def measure_time(self, wanted: bool, /) -> None: ...
    def take_times(self) -> dict[str, float]: ...
