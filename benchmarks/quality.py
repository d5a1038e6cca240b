"""What does a weight format cost in quality?

    python benchmarks/quality.py [--model M] [--text FILE ...] [--formats none int8 gguf none/int8]

Scores the text in windows of 2,000 characters with each format; the first is the one that others
are compared with (none: weights as --dtype has them; after a slash, that of the KV cache). Prints
perplexity; the share of positions whose likeliest token is the same; and by how much the log
probability of the text's own tokens moves, on average.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from headway import LLM, SamplingParams

WINDOW = 2000  # characters
TEXT = Path(__file__).parents[1] / "tests" / "engine" / "lamplighter.txt"


def scores(llm: LLM, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Log probability of each token after the first of its window, and the likeliest token."""
    windows = [text[at : at + WINDOW] for text in texts for at in range(0, len(text), WINDOW)]
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
    outputs = llm.generate(windows, params, use_tqdm=False)
    logprobs, likeliest = [], []
    for output in outputs:
        for token_id, entry in zip(
            output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True
        ):
            logprobs.append(entry[token_id].logprob)
            likeliest.append(next(i for i, one in entry.items() if one.rank == 1))
    return np.array(logprobs), np.array(likeliest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--text", nargs="+", type=Path, default=[TEXT])
    parser.add_argument("--formats", nargs="+", default=["none", "int8", "int4", "none/int8"])
    arguments = parser.parse_args()
    texts = [path.read_text() for path in arguments.text]
    first = None
    print(f"{'weights':9} {'positions':>9} {'perplexity':>10} {'same top-1':>10} {'moved by':>9}")
    for name in arguments.formats:
        weights, _, kv_cache_dtype = name.partition("/")
        llm = LLM(
            arguments.model,
            dtype=arguments.dtype,
            quantization=None if weights == "none" else weights,
            kv_cache_dtype=kv_cache_dtype or "auto",
            kv_cache_memory_bytes=1 << 29,
        )
        logprobs, likeliest = scores(llm, texts)
        first = first or (logprobs, likeliest)
        same, moved = np.mean(likeliest == first[1]), np.mean(np.abs(logprobs - first[0]))
        perplexity = np.exp(-np.mean(logprobs))
        print(f"{name:9} {len(logprobs):9} {perplexity:10.3f} {same:10.2%} {moved:9.4f}")


if __name__ == "__main__":
    main()
