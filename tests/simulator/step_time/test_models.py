"""Shapes of well-known models have the parameters that their cards state."""

from __future__ import annotations

import dataclasses

import pytest

from headway.model.shape import ModelConfig, RopeConfig
from headway.simulator.step_time.models import WELL_KNOWN, shape_from_config, shape_named

PARAMETERS = {
    "Llama-2-7B": 6_738_415_616,
    "Llama-2-13B": 13_015_864_320,
    "Llama-3-8B": 8_030_261_248,
    "Llama-3-70B": 70_553_706_496,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-3.2-3B": 3_212_749_824,
    "Llama-3.3-70B": 70_553_706_496,
    "Mistral-7B": 7_248_023_552,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-3B": 3_085_938_688,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352,
    "Qwen2.5-72B": 72_706_203_648,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360,
    "Qwen3-14B": 14_768_307_200,
    "Qwen3-32B": 32_762_123_264,
    "SmolLM2-135M": 134_515_008,
    "SmolLM2-360M": 361_821_120,
    "SmolLM2-1.7B": 1_711_376_384,
    "Mixtral-8x7B": 46_702_792_704,
    "Qwen3-30B-A3B": 30_532_122_624,
}
LLAMA = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}


@pytest.mark.parametrize("shape", WELL_KNOWN, ids=lambda shape: shape.name)
def test_parameters_are_those_of_the_model_card(shape):
    assert shape.num_parameters == PARAMETERS[shape.name]


def test_a_config_and_a_name_give_the_same_shape():
    assert shape_from_config(LLAMA, "Llama-3-8B") == shape_named("meta-llama/Llama-3-8B-Instruct")


@pytest.mark.parametrize(
    ("name", "config"),
    [
        (
            "Mixtral-8x7B",
            {
                **LLAMA,
                "model_type": "mixtral",
                "num_local_experts": 8,
                "num_experts_per_tok": 2,
                "vocab_size": 32000,
                "max_position_embeddings": 32768,
                "sliding_window": None,
            },
        ),
        (
            "Qwen2.5-7B",
            {
                **LLAMA,
                "model_type": "qwen2",
                "hidden_size": 3584,
                "intermediate_size": 18944,
                "max_position_embeddings": 32768,
                "num_attention_heads": 28,
                "num_hidden_layers": 28,
                "num_key_value_heads": 4,
                "sliding_window": 4096,
                "use_sliding_window": False,
                "vocab_size": 152064,
            },
        ),
        (
            "Qwen3-30B-A3B",
            {
                **LLAMA,
                "model_type": "qwen3_moe",
                "head_dim": 128,
                "hidden_size": 2048,
                "intermediate_size": 6144,
                "moe_intermediate_size": 768,
                "num_experts": 128,
                "num_experts_per_tok": 8,
                "decoder_sparse_step": 1,
                "mlp_only_layers": [],
                "num_hidden_layers": 48,
                "num_key_value_heads": 4,
                "max_position_embeddings": 40960,
                "vocab_size": 151936,
            },
        ),
    ],
)
def test_configs_of_other_families(name, config):
    assert shape_from_config(config, name) == shape_named(name)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers must be a whole number"),
        ({"sliding_window": 4096}, "sliding_window 4096 is narrower"),
        ({"layer_types": ["linear_attention"]}, "layer_types linear_attention"),
        ({"kv_lora_rank": 512}, "kv_lora_rank means"),
        ({"hidden_act": "gelu"}, "whether the MLP has a gate"),
        ({"quantization_config": {"bits": 4}}, "name their dtype"),
        ({"text_config": {}, "is_encoder_decoder": True}, "an encoder"),
        ({"num_key_value_heads": 5}, "cannot share"),
        ({"num_local_experts": 8}, "num_experts_per_tok is missing"),
        ({"num_local_experts": 8, "num_experts_per_tok": 9}, "cannot go through 9 of 8"),
    ],
)
def test_what_cannot_be_understood_is_refused(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        shape_from_config({**LLAMA, **change}, "some/config.json")


def test_an_unknown_name_lists_the_known_and_guesses():
    with pytest.raises(ValueError, match=r"'gpt-5': give its config\.json, or .* Llama-3-8B"):
        shape_named("gpt-5")
    with pytest.raises(ValueError, match=r"did you mean Qwen3-8B\?"):
        shape_named("Qwen/Qwen3-8")


def test_tensor_parallelism_divides_the_cache_until_heads_must_be_copied():
    shape = shape_named("Qwen3-8B")
    assert shape.blocks_in(16 << 30, tensor_parallel=4) == (16 << 30) // (147_456 // 4 * 16)
    assert shape.kv_share(16) == shape.num_kv_heads
    with pytest.raises(ValueError, match="cannot be divided among 3"):
        shape.kv_share(3)


def test_8_bit_keys_and_values_take_half_and_int8_its_scales():
    shape = shape_named("Qwen3-8B")
    assert shape.kv_bytes_per_token("fp8") == 73_728
    assert shape.kv_bytes_per_token("bf16") == 2 * 73_728
    assert shape.kv_bytes_per_token("int8") == 36 * 2 * 8 * (128 + 4) == 76_032
    with pytest.raises(ValueError, match="no dtype 'int3'"):
        shape.kv_bytes_per_token("int3")


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_keys_and_values_take_what_the_engine_stores(dtype):
    shape = shape_named("Qwen3-8B")
    sizes = ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim", "vocab_size")
    config = ModelConfig(
        architecture="",
        intermediate_size=shape.intermediate_size,
        max_position_embeddings=1,
        rms_norm_eps=0.0,
        rope=RopeConfig(theta=1.0, rotary_dim=shape.head_dim),
        attention_scale=1.0,
        windows=(None,) * shape.num_layers,
        rope_layers=(True,) * shape.num_layers,
        **{size: getattr(shape, size) for size in sizes},
    )
    assert shape.kv_bytes_per_token(dtype) == config.kv_bytes_per_token(dtype)


def test_a_token_goes_through_its_experts_only():
    mixtral, mistral = shape_named("Mixtral-8x7B"), shape_named("Mistral-7B")
    alone = dataclasses.replace(mixtral, num_experts=0, experts_per_token=0)
    assert alone.flops_per_token == mistral.flops_per_token
    mlp = 2 * 3 * 32 * 4096 * 14336
    router = 2 * 32 * 4096 * 8
    assert mixtral.flops_per_token == mistral.flops_per_token + mlp + router
