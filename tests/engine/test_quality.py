"""What weights in few bits cost on a real model and a real text, against bfloat16 in one run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway import LLM, SamplingParams

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TEXT = (Path(__file__).parent / "lamplighter.txt").read_text()


def scores(quantization: str | None) -> tuple[np.ndarray, list[int]]:
    """Log probabilities of the text's tokens, and the likeliest token at each position."""
    llm = LLM(quantization=quantization, kv_cache_memory_bytes=1 << 28)
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
    output = llm.generate([TEXT], params, use_tqdm=False)[0]
    entries = output.prompt_logprobs[1:]
    own = [e[i].logprob for e, i in zip(entries, output.prompt_token_ids[1:], strict=True)]
    return np.array(own), [next(i for i, one in e.items() if one.rank == 1) for e in entries]


@pytest.fixture(scope="module")
def exact() -> tuple[np.ndarray, list[int]]:
    return scores(None)


# The model's file is in Q4_1: "gguf" takes its matrices as they are, "int4" rounds them once more.
@pytest.mark.parametrize(
    ("quantization", "dearer", "same"),
    [("int8", 0.02, 0.91), ("int4", 0.03, 0.91), ("gguf", 0.02, 0.92)],
)
def test_fewer_bits_stay_close_to_bfloat16(exact, quantization, dearer, same):
    logprobs, likeliest = exact
    found, found_likeliest = scores(quantization)
    assert len(logprobs) > 1000
    perplexity, found_perplexity = np.exp(-logprobs.mean()), np.exp(-found.mean())
    assert found_perplexity == pytest.approx(perplexity, rel=dearer)
    assert np.mean(np.equal(likeliest, found_likeliest)) > same
