"""SmolLM2 against transformers on the same weights: tokens in float32, logits in bfloat16.

Greedy outputs are compared by teacher forcing: if transformers, given the prompt and our output,
would choose our next token at every position, then its own greedy output is ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("gguf")

from headway import LLM, SamplingParams  # noqa: E402
from headway.model.loader import load_model  # noqa: E402
from headway.model.source import ModelSource, resolve  # noqa: E402
from headway.ops import select  # noqa: E402
from headway.ops.interface import TokenBatch  # noqa: E402

pytestmark = [pytest.mark.golden, pytest.mark.slow, pytest.mark.timeout(600)]

NUM_OUTPUT_TOKENS = 64

STORY = (
    "The lamplighter walked down the hill before the fog came in. He counted the doors as he "
    "went, and at each one he left a small blue flame. Nobody thanked him, for nobody was awake; "
)
PLAIN = [
    "The capital of France is",
    "Once upon a time",
    "1, 1, 2, 3, 5, 8,",
    "def fibonacci(n):\n    ",
    "SELECT name, age FROM users WHERE",
    "#include <stdio.h>\n\nint main(void) {\n",
    '{"name": "Ada", "born": 1815, "fields": [',
    "Zürich, São Paulo, Kraków, Ðà Nẵng:",
    "日本語の文章を書いてください。",
    "Привет, как дела?",
    "مرحبا بالعالم",
    "👩‍👩‍👧‍👦 family, 🇨🇭 flag, é vs é",
    "   leading spaces and\ttabs\r\n\r\nand blank lines\n\n\n",
    "a",
    "\n",
    "In 1969, Neil Armstrong and Buzz Aldrin landed on the Moon. Write about the third man:",
    "Q: What is 17 times 23?\nA:",
    STORY * 4,
    STORY * 12,
    STORY * 44,  # about 1,800 tokens
]
CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [
        {"role": "system", "content": "You answer in one word."},
        {"role": "user", "content": "The colour of grass?"},
    ],
    [
        {"role": "user", "content": "Hi!"},
        {"role": "assistant", "content": "Hello! How can I help?"},
        {"role": "user", "content": "Write a haiku about trains."},
    ],
    [{"role": "user", "content": "Explain continuous batching to a child. " * 8}],
]


@pytest.fixture(scope="module")
def source() -> ModelSource:
    return resolve(None)


@pytest.fixture(scope="module")
def reference(source: ModelSource) -> Any:
    path = Path(source.path)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    return model.eval()


def reference_logits(model: Any, token_ids: list[int]) -> np.ndarray:
    with torch.inference_mode():
        logits: np.ndarray = model(torch.tensor([token_ids])).logits[0].numpy()
    return logits


@pytest.fixture(scope="module")
def outputs() -> list[tuple[list[int], list[int]]]:
    """(prompt ids, output ids) of the 24 prompts, all in one batch, in float32."""
    llm = LLM(dtype="float32", kv_cache_memory_bytes=1 << 29, max_num_seqs=24)
    params = SamplingParams(temperature=0, max_tokens=NUM_OUTPUT_TOKENS, ignore_eos=True)
    results = llm.generate(PLAIN, params, use_tqdm=False) + llm.chat(CHATS, params, use_tqdm=False)
    return [(r.prompt_token_ids, r.outputs[0].token_ids) for r in results]


def test_float32_greedy_tokens_are_those_of_transformers(
    outputs: list[tuple[list[int], list[int]]], reference: Any
) -> None:
    assert len(outputs) == 24
    assert max(len(prompt) for prompt, _ in outputs) > 1800
    for prompt, output in outputs:
        assert len(output) == NUM_OUTPUT_TOKENS
        logits = reference_logits(reference, prompt + output)
        chosen = logits[len(prompt) - 1 : -1].argmax(axis=1)
        assert chosen.tolist() == output


def test_bfloat16_agrees_with_float32(
    outputs: list[tuple[list[int], list[int]]], reference: Any, source: ModelSource
) -> None:
    ops, _ = select.choose()
    model = load_model(source, ops, "bfloat16")
    agreements, errors = [], []
    for prompt, output in outputs[:16] + outputs[20:]:
        token_ids = prompt + output
        expected = reference_logits(reference, token_ids)
        found = all_logits(model, ops, token_ids)
        agreements += (expected.argmax(1) == found.argmax(1)).tolist()
        errors.append(np.linalg.norm(expected - found) / np.linalg.norm(expected))
    assert np.mean(agreements) >= 0.99, f"top-1 agreement {np.mean(agreements):.4f}"
    assert np.mean(errors) <= 2e-2, f"relative error {np.mean(errors):.4f}"


def all_logits(model: Any, ops: Any, token_ids: list[int]) -> np.ndarray:
    """Logits at every position of one sequence, in one pass."""
    count = len(token_ids)
    num_blocks = -(-count // 16)
    config = model.config
    cache = ops.new_kv_cache(
        config.num_layers, num_blocks, 16, config.num_kv_heads, config.head_dim, "bfloat16"
    )
    batch = TokenBatch(
        token_ids=np.array(token_ids, np.int32),
        positions=np.arange(count, dtype=np.int32),
        kv_rows=np.arange(count, dtype=np.int64),
        chunk_starts=np.array([0, count], np.int32),
        block_tables=np.arange(num_blocks, dtype=np.int32)[None],
        logit_rows=np.arange(count, dtype=np.int32),
    )
    return model.decoder.logits(model.decoder.hidden_states(batch, cache)).copy()
