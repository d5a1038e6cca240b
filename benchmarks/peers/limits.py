"""What the machine allows for each cell: the time that its bytes or its products take at the least.

A step reads every weight once and the keys and values of every running sequence, and multiplies;
memory and arithmetic overlap perfectly, so it takes the longer of the two. In W1 the prompts are
multiplied first, then come as many steps as the longest output has, each with who is left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.engine import Item
from benchmarks.peers.workloads import W2_IN, W2_OUT, Cell, mixed_requests

# 4 bits: a two-byte scale for every 32.
WEIGHT_BYTES = {"bf16": 2.0, "int8": 1.0, "int4": 4.5 / 8}
KV_BYTES = 2
PRODUCTS = {
    "bf16": ("float32_fma", "bfloat16_dot"),
    "int8": ("int8_dot",),
    "int4": ("int8_dot",),
}
READS = ("read_small_pages", "read_huge_pages")


@dataclass(frozen=True)
class Ceilings:
    """Bytes and operations per second; `products` by class of weights, `attention` in float32."""

    read: float
    products: Mapping[str, float]
    attention: float


def ceilings(measured: Sequence[tuple[str, int, float]]) -> Ceilings:
    """From roofline.cpp's lines (name, threads, thousand millions a second), on all threads.

    Without the instructions for a class, as bf16: no engine can do better than multiply floats.
    """
    threads = max(count for _, count, _ in measured)
    rates = {name: value * 1e9 for name, count, value in measured if count == threads}

    def best(names: Sequence[str]) -> float:
        return max(rates.get(name, rates["float32_fma"]) for name in names)

    return Ceilings(
        max(rates[name] for name in READS),
        {weights: best(names) for weights, names in PRODUCTS.items()},
        rates["float32_fma"],
    )


@dataclass(frozen=True)
class Shape:
    """Of a model: how many weights its layers and its output have, and what attention works on."""

    layers: int
    weights_per_layer: int
    output_weights: int
    query_width: int
    kv_width: int

    @classmethod
    def read(cls, folder: Path) -> Shape:
        config = json.loads((folder / "hf" / "config.json").read_text())
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        head = config.get("head_dim") or hidden // config["num_attention_heads"]
        query = config["num_attention_heads"] * head
        kv = config["num_key_value_heads"] * head
        return cls(
            config["num_hidden_layers"],
            hidden * (2 * query + 2 * kv) + 3 * hidden * inner,
            hidden * config["vocab_size"],
            query,
            kv,
        )

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * KV_BYTES * self.layers * self.kv_width


@dataclass(frozen=True)
class Roofline:
    shape: Shape
    ceilings: Ceilings
    weights: str

    def step(self, contexts: Sequence[int]) -> float:
        """Seconds of a decode step; a context for each sequence."""
        shape, count, total = self.shape, len(contexts), sum(contexts)
        weights = shape.layers * shape.weights_per_layer + shape.output_weights
        read = weights * WEIGHT_BYTES[self.weights] + total * shape.kv_bytes_per_token
        return max(
            read / self.ceilings.read, self._products(count * weights) + self._attention(total)
        )

    def prompt(self, length: int) -> float:
        """Seconds until the first token of a prompt alone."""
        weights = self.shape.layers * self.shape.weights_per_layer + self.shape.output_weights
        read = weights * WEIGHT_BYTES[self.weights] / self.ceilings.read
        return max(read, self._prompt_products(length))

    def mixed(self, items: Sequence[Item]) -> float:
        """Seconds of all of them, asked for at once."""
        seconds = sum(self._prompt_products(len(prompt)) for prompt, _ in items)
        for made in range(1, max(count for _, count in items)):
            seconds += self.step([len(prompt) + made for prompt, n in items if n > made])
        return seconds

    def figure(self, cell: Cell, model: str) -> tuple[str, float]:
        """The name of the cell's figure and the best it could be."""
        if cell.name == "w1":
            items = mixed_requests(model)
            made = sum(count for _, count in items)
            return "output_tokens_per_second", made / self.mixed(items)
        if cell.name == "w2":
            return "ms_per_token", self.step([W2_IN + W2_OUT // 2]) * 1e3
        if cell.workload == "w2":
            return "ttft_ms", self.prompt(cell.prompt_tokens) * 1e3
        batch, context = cell.batch_and_context
        return "ms_per_step", self.step([context] * batch) * 1e3

    def _prompt_products(self, length: int) -> float:
        shape = self.shape
        products = length * shape.layers * shape.weights_per_layer + shape.output_weights
        return self._products(products) + self._attention(length * (length + 1) // 2)

    def _products(self, count: int) -> float:
        return 2 * count / self.ceilings.products[self.weights]

    def _attention(self, pairs: int) -> float:
        """`pairs` of a query and a position it sees: two products for each, key and value."""
        return 4 * pairs * self.shape.layers * self.shape.query_width / self.ceilings.attention
