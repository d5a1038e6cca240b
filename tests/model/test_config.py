"""config.json and generation_config.json to ModelConfig: both spellings, sums, refusals."""

from __future__ import annotations

import json

import pytest
from tiny import BASE

from headway.model.config import ModelError, plan_blocks, read_config
from headway.model.hf_config import parse_hf_config
from headway.model.source import ModelSource

QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "rope_scaling": None,
    "max_window_layers": 36,
    "sliding_window": None,
    "use_sliding_window": False,
    "torch_dtype": "bfloat16",
    "eos_token_id": 151645,
    "bos_token_id": 151643,
}


def parse(overrides=None, generation=None):
    return parse_hf_config({**BASE, **(overrides or {})}, generation or {})


def test_qwen3_8b_needs_147456_bytes_a_token():
    config = parse_hf_config(QWEN3_8B, {})
    assert config.kv_factors("bfloat16") == {
        "layers": 36,
        "kv_heads": 8,
        "head_dim": 128,
        "keys_and_values": 2,
        "bytes": 2,
    }
    assert config.kv_bytes_per_token("bfloat16") == 147_456
    num_blocks = plan_blocks(config, 16, "bfloat16", 16 << 30)
    assert num_blocks == 7_281
    assert num_blocks * 16 == 116_496
    assert plan_blocks(config, 16, "float32", 16 << 30) == 3_640


def test_int8_keys_and_values_have_a_scale_each():
    config = parse_hf_config(QWEN3_8B, {})
    assert config.kv_bytes_per_token("int8") == 36 * 8 * (128 + 4) * 2


@pytest.mark.parametrize("memory", [-5, 0, 16 * 147_456 - 1])
def test_no_block_fits_in_too_little(memory):
    assert plan_blocks(parse_hf_config(QWEN3_8B, {}), 16, "bfloat16", memory) == 0


def test_an_unknown_kv_dtype_is_refused():
    with pytest.raises(ModelError, match="float32 or bfloat16"):
        parse().kv_bytes_per_token("int3")


def test_both_spellings_of_rope_are_one():
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling |= {"original_max_position_embeddings": 64, "rope_type": "llama3"}
    old = parse({"rope_theta": 5e5, "rope_scaling": scaling})
    new = parse({"rope_theta": None, "rope_parameters": {**scaling, "rope_theta": 5e5}})
    assert old.rope == new.rope
    assert old.rope.theta == 5e5
    assert old.rope.kind == "llama3"


def test_end_ids_of_both_files_are_united_in_order():
    config = parse({"eos_token_id": 7}, {"eos_token_id": [9, 7, 11]})
    assert config.eos_token_ids == (7, 9, 11)
    assert parse({"eos_token_id": None}).eos_token_ids == ()


def test_generation_defaults_are_kept_by_name():
    config = parse(generation={"temperature": 0.6, "top_k": 20, "do_sample": True})
    assert dict(config.generation) == {"temperature": 0.6, "top_k": 20.0}


def test_qwen3_heads_are_128_wide_unless_told():
    config = parse_hf_config({k: v for k, v in QWEN3_8B.items() if k != "head_dim"}, {})
    assert config.head_dim == 128


def test_partial_rotation():
    assert parse({"partial_rotary_factor": 0.5}).rope.rotary_dim == 8


REFUSED = {
    "architectures": [None, [], ["MambaForCausalLM"], "LlamaForCausalLM", [3], ["A", "B"]],
    "hidden_act": ["gelu", 3],
    "quantization_config": [{"quant_method": "awq"}],
    "num_hidden_layers": [None, 0, -1, 10**9, "2", True, 2.5, [2], float("nan"), float("inf")],
    "num_attention_heads": [0, 3, 10**7],
    "num_key_value_heads": [0, 3, 8, -2],
    "hidden_size": [0, None, 1 << 40],
    "vocab_size": [0, None, 1 << 40, "many"],
    "head_dim": [0, 1, 15, 1 << 20],
    "rms_norm_eps": [-1.0, float("nan"), "small", 2],
    "max_position_embeddings": [0, None, 1 << 50],
    "rope_theta": [0, -1, 1, float("inf"), "big"],
    "rope_scaling": [
        [],
        {"rope_type": "dynamic", "factor": 2},
        {"rope_type": "longrope"},
        {"type": "su"},
        {"rope_type": "linear"},
        {"rope_type": "linear", "factor": 0},
        {"rope_type": "yarn", "factor": "x"},
        {"rope_type": "yarn", "factor": 2, "beta_fast": 0},
        {"rope_type": "llama3", "factor": 8},
        {
            "rope_type": "llama3",
            "factor": 8,
            "low_freq_factor": 4,
            "high_freq_factor": 4,
            "original_max_position_embeddings": 64,
        },
    ],
    "rope_parameters": [{"full_attention": {"rope_theta": 1e4}, "rope_type": 3}],
    "partial_rotary_factor": [0, 0.1, 1.5, 0.2],
    "sliding_window": [16],  # Llama has none
    "layer_types": [["full_attention"], ["full_attention", "linear_attention"], "all"],
    "tie_word_embeddings": ["yes", 1],
    "attention_bias": [1],
    "eos_token_id": ["</s>", -1, 96, [2, 96], [2, None], True],
    "dtype": ["int4", 7],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in REFUSED.items() for value in values]
)
def test_impossible_values_are_refused_by_name(key, value):
    with pytest.raises(ModelError) as caught:
        parse({key: value})
    sentence = str(caught.value)
    assert len(sentence) < 600
    assert "\n" not in sentence


def test_an_unknown_architecture_lists_the_served_ones():
    with pytest.raises(ModelError, match=r"'MambaForCausalLM'.*LlamaForCausalLM.*Qwen3"):
        parse({"architectures": ["MambaForCausalLM"]})


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"a": ' * 5000, "\udcff", '{"architectures": NaN}']
)
def test_malformed_json_is_one_sentence(text, tmp_path):
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelError, match=r"config\.json"):
        read_config(ModelSource("m", "hf", tmp_path))


def test_a_directory_without_config_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"no config\.json"):
        read_config(ModelSource("m", "hf", tmp_path))


def test_a_directory_is_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(BASE))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 5], "top_p": 0.9}')
    config = read_config(ModelSource("m", "hf", tmp_path))
    assert config.eos_token_ids == (2, 5)
    assert config.generation["top_p"] == 0.9
