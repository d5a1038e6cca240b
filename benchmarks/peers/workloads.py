"""The work: W1 mixed requests at once, W2 one stream, W3 steps at a fixed batch and context.

Standard library only: it runs in every peer's interpreter.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.engine import CHUNK_TOKENS, Engine, Item

W1_FILE = Path(__file__).parents[1] / "workloads" / "w1.json"
W1_COUNT = {"smollm2": 64, "qwen3-0.6b": 24}
MODELS = tuple(W1_COUNT)
W2_IN, W2_OUT = 128, 128
PROMPT_LENGTHS = (128, 512, 2048)
BATCHES, CONTEXTS = (1, 4, 16, 64), (256, 2048)
STEPS = 64
_TIMES_TO_FIRST = 3  # of which the median counts


@dataclass(frozen=True)
class Cell:
    """One figure to measure: `w1`, `w2`, `ttft/512` or `w3/16x256`."""

    name: str

    @property
    def workload(self) -> str:
        return "w2" if self.name.startswith("ttft") else self.name.split("/")[0]

    @property
    def prompt_tokens(self) -> int:
        return int(self.name.split("/")[1])

    @property
    def batch_and_context(self) -> tuple[int, int]:
        batch, context = self.name.split("/")[1].split("x")
        return int(batch), int(context)


def cells(workloads: Sequence[str], batches: Sequence[int], contexts: Sequence[int]) -> list[Cell]:
    found = [Cell("w1")] if "w1" in workloads else []
    if "w2" in workloads:
        found += [Cell("w2"), *(Cell(f"ttft/{length}") for length in PROMPT_LENGTHS)]
    if "w3" in workloads:
        found += [Cell(f"w3/{batch}x{context}") for context in contexts for batch in batches]
    return found


def mixed_requests(model: str) -> list[Item]:
    items = json.loads(W1_FILE.read_text())[: W1_COUNT[model]]
    return [(item["prompt"], item["output"]) for item in items]


def prompts(length: int, start: int = 0) -> Iterator[list[int]]:
    """Endlessly many different prompts of one length."""
    texts = [item["prompt"] for item in json.loads(W1_FILE.read_text())]
    serial = start
    while True:
        text = texts[serial % len(texts)]
        shift = serial % len(text)
        turned = text[shift:] + text[:shift]
        yield (turned * (length // len(text) + 1))[:length]
        serial += 1


def decode_items(batch: int, context: int) -> list[Item]:
    """Requests that are decoded all at once for STEPS steps, at `context` on average.

    Prompts are computed in several steps, during which the first ones are decoded already: their
    outputs are longer by as many, and their prompts are shorter by half of that.
    """
    head_start = -(-batch * context // CHUNK_TOKENS)
    length = context - (STEPS + head_start) // 2
    source = prompts(length)
    return [(next(source), STEPS + head_start) for _ in range(batch)]


def kv_tokens(cell: Cell, model: str) -> int:
    """The most that the cache must hold for it, and some room for partly filled blocks."""
    if cell.workload == "w1":
        items = mixed_requests(model)
    elif cell.workload == "w3":
        items = decode_items(*cell.batch_and_context)
    else:
        items = [([0] * max(PROMPT_LENGTHS), W2_OUT)]
    return sum(len(prompt) + count + 64 for prompt, count in items)


def measure(cell: Cell, engine: Engine, model: str, turn: int) -> dict[str, float]:
    """`turn` makes prompts differ from round to round."""
    if cell.workload == "w1":
        return _mixed(engine, mixed_requests(model))
    if cell.workload == "w3":
        batch, context = cell.batch_and_context
        items = decode_items(batch, context)
        engine.ready(items, together=True)
        seconds = engine.decode(items)
        return {
            "ms_per_step": statistics.median(seconds) * 1e3,
            "best_ms": min(seconds) * 1e3,
            "steps": len(seconds),
        }
    engine.ready([([0] * max(PROMPT_LENGTHS), W2_OUT)], together=True)
    if cell.name == "w2":
        prompt = next(prompts(W2_IN, start=turn))
        seconds = engine.decode([(prompt, W2_OUT)])
        return {"ms_per_token": statistics.median(seconds) * 1e3, "mean_ms": _mean(seconds) * 1e3}
    source = prompts(cell.prompt_tokens, start=_TIMES_TO_FIRST * turn)
    times = [engine.generate([(next(source), 1)]) for _ in range(_TIMES_TO_FIRST)]
    return {"ttft_ms": statistics.median(times) * 1e3, "best_ms": min(times) * 1e3}


def _mixed(engine: Engine, items: list[Item]) -> dict[str, float]:
    engine.ready(items, together=False)
    seconds = engine.generate(items)
    made = sum(count for _, count in items)
    total = made + sum(len(prompt) for prompt, _ in items)
    return {
        "seconds": seconds,
        "output_tokens_per_second": made / seconds,
        "total_tokens_per_second": total / seconds,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
