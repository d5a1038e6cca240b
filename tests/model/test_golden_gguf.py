"""A GGUF file gives the logits of the Hugging Face directory with the same weights."""

from __future__ import annotations

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

from backends import BACKENDS, make_ops  # noqa: E402
from tiny import make_tiny_model, one_sequence_batch, run_in_chunks  # noqa: E402
from tiny_gguf import make_tiny_gguf  # noqa: E402

from headway.model.config import ModelError, read_config  # noqa: E402
from headway.model.loader import load_model  # noqa: E402
from headway.model.source import ModelSource  # noqa: E402
from headway.model.weights.gguf import read_gguf  # noqa: E402
from headway.ops.cache import new_kv_cache  # noqa: E402

pytestmark = pytest.mark.golden

_TOKENS = np.random.default_rng(3).integers(3, 96, 60).tolist()
_BIASES = {"attention_bias": True, "mlp_bias": True}
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-biases": ("llama", _BIASES),
    "qwen2": ("qwen2", {"architectures": ["Qwen2ForCausalLM"]}),
    "qwen3": ("qwen3", {"architectures": ["Qwen3ForCausalLM"], "head_dim": 32}),
    "smollm3": (
        "smollm3",
        {"architectures": ["SmolLM3ForCausalLM"], "num_hidden_layers": 4},
    ),
    "granite": (
        "granite",
        {
            "architectures": ["GraniteForCausalLM"],
            "attention_multiplier": 0.2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "logits_scaling": 2.0,
        },
    ),
}


def logits_of(source: ModelSource, dtype: str = "float32") -> np.ndarray:
    model = load_model(source, make_ops("reference"), dtype)
    return run_in_chunks(model, _TOKENS, [len(_TOKENS)], dtype)


@pytest.mark.parametrize("case", CASES)
def test_equal_to_the_directory(case, tmp_path):
    architecture, overrides = CASES[case]
    directory = make_tiny_model(tmp_path / "hf", overrides)
    path = make_tiny_gguf(tmp_path / "tiny.gguf", architecture, overrides)
    from_gguf = logits_of(ModelSource("tiny", "gguf", path))
    from_directory = logits_of(ModelSource("tiny", "hf", directory))
    # The file keeps epsilon and multipliers in float32, config.json in float64.
    np.testing.assert_allclose(from_gguf, from_directory, rtol=0, atol=2e-5)


def test_rope_divisors_stretch_like_llama3(tmp_path):
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    directory = make_tiny_model(tmp_path / "hf", {"rope_scaling": scaling})
    frequencies = 10000.0 ** -(np.arange(0, 16, 2) / 16)
    turns = 32 * frequencies / (2 * np.pi)
    keep = np.clip((turns - 1) / 3, 0, 1)
    divisors = (1 / ((1 - keep) / 8 + keep)).astype(np.float32)
    assert divisors.max() == 8
    path = make_tiny_gguf(tmp_path / "tiny.gguf", "llama", {}, rope_divisors=divisors)
    np.testing.assert_allclose(
        logits_of(ModelSource("tiny", "gguf", path)),
        logits_of(ModelSource("tiny", "hf", directory)),
        rtol=0,
        atol=2e-4,
    )


def test_rope_divisors_of_another_size_are_refused(tmp_path):
    path = make_tiny_gguf(
        tmp_path / "tiny.gguf", "llama", {}, rope_divisors=np.ones(3, dtype=np.float32)
    )
    with pytest.raises(ModelError, match="rope_freqs"):
        logits_of(ModelSource("tiny", "gguf", path))


@pytest.mark.parametrize("quantisation", ["Q8_0", "Q4_1", "F16", "BF16"])
def test_quantised_is_close_to_exact(quantisation, tmp_path):
    directory = make_tiny_model(tmp_path / "hf", {})
    path = make_tiny_gguf(tmp_path / "q.gguf", "llama", {}, quantisation=quantisation)
    exact = logits_of(ModelSource("tiny", "hf", directory))
    error = np.abs(logits_of(ModelSource("tiny", "gguf", path)) - exact).max()
    assert 0 < error < (0.5 if quantisation.startswith("Q4") else 0.05) * np.abs(exact).max()


def test_configuration_equals_the_directorys(tmp_path):
    directory = make_tiny_model(tmp_path / "hf", {})
    path = make_tiny_gguf(tmp_path / "tiny.gguf", "llama", {})
    ours = read_config(ModelSource("tiny", "gguf", path))
    theirs = read_config(ModelSource("tiny", "hf", directory))
    for name in ("hidden_size", "num_kv_heads", "head_dim", "vocab_size", "windows", "rope"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.eos_token_ids == (2, 4)
    assert ours.bos_token_id == 1
    assert ours.dtype == "F32"


def test_metadata_equals_the_gguf_packages(tmp_path):
    path = make_tiny_gguf(tmp_path / "tiny.gguf", "llama", {})
    ours = read_gguf(path).metadata
    theirs = gguf.GGUFReader(path)
    for name, value in ours.items():
        assert theirs.get_field(name).contents() == value, name
    assert ours["tokenizer.ggml.tokens"][7] == "token 7"


PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n",
)


@pytest.fixture(scope="module")
def theirs(default_gguf):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    path = default_gguf
    arguments = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**arguments)
    model = transformers.AutoModelForCausalLM.from_pretrained(**arguments, dtype=torch.float32)
    return tokenizer, model.eval(), torch


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_default_model_equals_transformers(backend, theirs, default_gguf):
    tokenizer, their_model, torch = theirs
    source = ModelSource("smollm2", "gguf", default_gguf)
    ours = load_model(source, make_ops(backend), "float32")
    # The twins take seconds a token.
    prompts, count = (PROMPTS, 16) if backend != "reference" else (PROMPTS[:1], 4)
    for prompt in prompts:
        ids = tokenizer(prompt)["input_ids"]
        known, logits = _greedy(ours, ids, count)
        with torch.no_grad():
            expected = their_model(torch.tensor([known[:-1]])).logits[0].numpy()
        assert np.abs(logits - expected).max() <= 1e-4 * np.abs(expected).max()
        assert expected[len(ids) - 1 :].argmax(axis=1).tolist() == known[len(ids) :]


def _greedy(model, ids: list[int], count: int) -> tuple[list[int], np.ndarray]:
    """The prompt with `count` likeliest tokens after it, and the logits of every position."""
    config = model.config
    cache = new_kv_cache(config.num_layers, 32, 16, config.num_kv_heads, config.head_dim, "float32")
    known, logits = list(ids), []
    computed = 0
    while len(known) < len(ids) + count:
        batch = one_sequence_batch(known[computed:], computed)
        logits.append(model.decoder.forward(batch, cache).copy())
        computed = len(known)
        known.append(int(logits[-1][-1].argmax()))
    return known, np.concatenate(logits)
