"""What weights, keys and values in few bits cost on a real text, against bfloat16 in one run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway import LLM, SamplingParams

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TEXT = (Path(__file__).parent / "lamplighter.txt").read_text()


def scores(
    quantization: str | None = None, kv_cache_dtype: str = "auto"
) -> tuple[np.ndarray, list[int]]:
    """Log probabilities of the text's tokens, and the likeliest token at each position."""
    llm = LLM(
        quantization=quantization, kv_cache_dtype=kv_cache_dtype, kv_cache_memory_bytes=1 << 28
    )
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
    output = llm.generate([TEXT], params, use_tqdm=False)[0]
    entries = output.prompt_logprobs[1:]
    own = [e[i].logprob for e, i in zip(entries, output.prompt_token_ids[1:], strict=True)]
    return np.array(own), [next(i for i, one in e.items() if one.rank == 1) for e in entries]


@pytest.fixture(scope="module")
def bfloat16() -> tuple[np.ndarray, list[int]]:
    return scores()


# The model's file is in Q4_1: "gguf" takes its matrices as they are, "int4" rounds them once more.
@pytest.mark.parametrize(
    ("formats", "dearer", "same"),
    [
        ({"quantization": "int8"}, 0.02, 0.91),
        ({"quantization": "int4"}, 0.03, 0.91),
        ({"quantization": "gguf"}, 0.02, 0.92),
        ({"kv_cache_dtype": "int8"}, 0.005, 0.97),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else None,
)
def test_fewer_bits_stay_close_to_bfloat16(bfloat16, formats, dearer, same):
    logprobs, likeliest = bfloat16
    found, found_likeliest = scores(**formats)
    assert len(logprobs) > 1000
    perplexity, found_perplexity = np.exp(-logprobs.mean()), np.exp(-found.mean())
    assert found_perplexity == pytest.approx(perplexity, rel=dearer)
    assert np.mean(np.equal(likeliest, found_likeliest)) > same
