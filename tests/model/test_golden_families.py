"""Logits of every family equal transformers' on the same tiny checkpoint, in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from backends import BACKENDS, make_ops  # noqa: E402
from tiny import make_tiny_model, run_in_chunks  # noqa: E402

from headway.model.config import read_config  # noqa: E402
from headway.model.loader import load_model  # noqa: E402
from headway.model.source import ModelSource  # noqa: E402

pytestmark = pytest.mark.golden

_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
_QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
_QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
_MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
_SMOLLM3 = {
    "architectures": ["SmolLM3ForCausalLM"],
    "model_type": "smollm3",
    "num_hidden_layers": 4,
    "pad_token_id": 2,
}
_GRANITE = {
    "architectures": ["GraniteForCausalLM"],
    "model_type": "granite",
    "attention_multiplier": 0.2,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "logits_scaling": 2.0,
}

CASES: dict[str, dict[str, object]] = {
    "llama": {},
    "llama-tied": {"tie_word_embeddings": True},
    "llama-one-kv-head": {"num_key_value_heads": 1},
    "llama-all-kv-heads": {"num_key_value_heads": 4},
    "llama-biases": {"attention_bias": True, "mlp_bias": True},
    "llama-llama3-rope": {"rope_scaling": _LLAMA3},
    "llama-linear-rope": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama-linear-old-spelling": {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "llama-yarn-rope": {"rope_scaling": _YARN},
    "llama-yarn-attention-factor": {"rope_scaling": {**_YARN, "attention_factor": 0.7}},
    "llama-yarn-mscale": {
        "rope_scaling": {**_YARN, "mscale": 1.0, "mscale_all_dim": 0.5, "beta_fast": 16.0}
    },
    "llama-rope-parameters": {"rope_parameters": {**_LLAMA3, "rope_theta": 500000.0}},
    "qwen2": _QWEN2,
    "qwen2-window-on-upper-layers": {
        **_QWEN2,
        "use_sliding_window": True,
        "sliding_window": 7,
        "max_window_layers": 1,
    },
    "qwen2-window-off": {**_QWEN2, "use_sliding_window": False, "sliding_window": 7},
    "qwen2-layer-types": {
        **_QWEN2,
        "use_sliding_window": True,
        "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "qwen3-wide-heads": {**_QWEN3, "head_dim": 32},
    "qwen3-tied-bias": {**_QWEN3, "tie_word_embeddings": True, "attention_bias": True},
    "mistral-window": {**_MISTRAL, "sliding_window": 9},
    "mistral-no-window": {**_MISTRAL, "sliding_window": None},
    "smollm3": {**_SMOLLM3, "tie_word_embeddings": True},
    "smollm3-marks": {**_SMOLLM3, "no_rope_layers": [0, 1, 1, 0]},
    "granite": _GRANITE,
    "granite-tied-biases": {
        **_GRANITE,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "mlp_bias": True,
    },
}
_TOKENS = np.random.default_rng(3).integers(3, 96, 90).tolist()


def their_logits(directory: Path, token_ids: list[int]) -> np.ndarray:
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    with torch.no_grad():
        return model.eval()(torch.tensor([token_ids])).logits[0].float().numpy()


def assert_close(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES)
def test_logits_equal_transformers(case, backend, tmp_path):
    directory = make_tiny_model(tmp_path, CASES[case])
    theirs = their_logits(directory, _TOKENS)
    model = load_model(ModelSource("tiny", "hf", directory), make_ops(backend), "float32")
    assert_close(run_in_chunks(model, _TOKENS, [len(_TOKENS)]), theirs)


@pytest.mark.parametrize("stored", ["BF16", "F16"])
def test_half_precision_shards_equal_transformers(stored, tmp_path):
    directory = make_tiny_model(tmp_path, {"dtype": "bfloat16"}, stored=stored, shards=3)
    model = load_model(ModelSource("tiny", "hf", directory), make_ops("reference"), "float32")
    assert_close(run_in_chunks(model, _TOKENS, [len(_TOKENS)]), their_logits(directory, _TOKENS))


@pytest.mark.parametrize("case", CASES)
def test_a_configuration_that_transformers_wrote_again_means_the_same(case, tmp_path):
    first = make_tiny_model(tmp_path / "first", CASES[case])
    config = transformers.AutoConfig.from_pretrained(first)
    config.save_pretrained(tmp_path / "second")
    before = read_config(ModelSource("tiny", "hf", first))
    after = read_config(ModelSource("tiny", "hf", tmp_path / "second"))
    assert after == before
