"""Makes the models that the comparison runs on, in every form that an engine wants.

    python -m benchmarks.models FOLDER [--llama-quantize PROGRAM] [--optimum-cli PROGRAM]

smollm2: the default model's weights, dequantised to bfloat16. qwen3-0.6b: random weights in the
shape of Qwen3-0.6B, with SmolLM2's tokenizer. FOLDER/MODEL/hf holds safetensors, w8a8 the same in 8
bits for vLLM, bf16.gguf the same weights for llama.cpp; q8_0.gguf and q4_0.gguf are made by
llama.cpp's own tool, openvino-fp16, -int8 and -int4 by optimum-intel's, where these are given.
What is there is left alone. Needs the packages of the extra `golden`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from benchmarks.peers.workloads import MODELS

from headway.model.source import resolve

GGUF_QUANTIZATIONS = {"q8_0.gguf": "Q8_0", "q4_0.gguf": "Q4_0"}
# Groups of 64: the usual 128 do not divide SmolLM2's rows of 576.
OPENVINO_FORMATS = {
    "openvino-fp16": ["--weight-format", "fp16"],
    "openvino-int8": ["--weight-format", "int8"],
    "openvino-int4": ["--weight-format", "int4", "--group-size", "64", "--ratio", "1.0", "--sym"],
}
QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "torch_dtype": "bfloat16",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "rope_theta": 1_000_000.0,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EIGHT_BITS = {"num_bits": 8, "type": "int", "symmetric": True}
W8A8 = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {**_EIGHT_BITS, "strategy": "channel", "dynamic": False},
            "input_activations": {**_EIGHT_BITS, "strategy": "token", "dynamic": True},
        }
    },
}
_STANDARD_DEVIATION = 0.02
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_UNUSED_TOKEN = 5  # llama.cpp's type for a place in the vocabulary that no text reaches

Tensor = tuple[str, str, np.ndarray]  # its names in safetensors and GGUF, and its float32 values


def make(target: Path, write: Callable[[Path], object]) -> None:
    """`write(path)` under another name first, so that what has `target`'s name is whole."""
    if target.exists():
        return
    print(f"making {target}", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name("partial-" + target.name)
    if partial.is_dir():
        shutil.rmtree(partial)
    write(partial)
    partial.rename(target)


def default_gguf() -> Path:
    return Path(resolve(None).path)


def as_bfloat16(values: np.ndarray) -> np.ndarray:
    """Rounded to the nearest, ties to even; uint16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_smollm2(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = default_gguf()
    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)


def qwen3_tensors() -> Iterator[Tensor]:
    """The same values whenever it is called."""
    rng = np.random.default_rng(0)
    hidden, inner, head = QWEN3["hidden_size"], QWEN3["intermediate_size"], QWEN3["head_dim"]
    heads, kv = QWEN3["num_attention_heads"] * head, QWEN3["num_key_value_heads"] * head
    matrices = (
        ("self_attn.q_proj", "attn_q", (heads, hidden)),
        ("self_attn.k_proj", "attn_k", (kv, hidden)),
        ("self_attn.v_proj", "attn_v", (kv, hidden)),
        ("self_attn.o_proj", "attn_output", (hidden, heads)),
        ("mlp.gate_proj", "ffn_gate", (inner, hidden)),
        ("mlp.up_proj", "ffn_up", (inner, hidden)),
        ("mlp.down_proj", "ffn_down", (hidden, inner)),
    )
    norms = (
        ("input_layernorm", "attn_norm", hidden),
        ("post_attention_layernorm", "ffn_norm", hidden),
        ("self_attn.q_norm", "attn_q_norm", head),
        ("self_attn.k_norm", "attn_k_norm", head),
    )

    def drawn(shape: tuple[int, ...]) -> np.ndarray:
        return rng.standard_normal(shape, np.float32) * np.float32(_STANDARD_DEVIATION)

    embedding = drawn((QWEN3["vocab_size"], hidden))
    yield "model.embed_tokens.weight", "token_embd.weight", embedding
    for layer in range(QWEN3["num_hidden_layers"]):
        for name, short, shape in matrices:
            values = drawn(shape)
            yield f"model.layers.{layer}.{name}.weight", f"blk.{layer}.{short}.weight", values
        for name, short, size in norms:
            values = np.ones(size, np.float32)
            yield f"model.layers.{layer}.{name}.weight", f"blk.{layer}.{short}.weight", values
    yield "model.norm.weight", "output_norm.weight", np.ones(hidden, np.float32)


def write_qwen3(folder: Path, tokenizer: Path) -> None:
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", qwen3_tensors())
    (folder / "config.json").write_text(json.dumps(QWEN3, indent=2))
    for name in _TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, folder / name)


def write_w8a8(folder: Path, source: Path) -> None:
    """As vLLM reads 8 bits on a CPU: a scale per row of a matrix, activations a scale per token.

    The output, which is the embedding, stays bfloat16.
    """
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder)
    tensors = load_file(source / "model.safetensors")
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        values = tensors[name].float()
        scale = values.abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
        tensors[name] = (values / scale).round().char()
        tensors[f"{name}_scale"] = scale
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = W8A8
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def write_safetensors(path: Path, tensors: Iterable[Tensor]) -> None:
    """As bfloat16, for which numpy, and so the package's own writer, has no type."""
    packed = [(name, as_bfloat16(values)) for name, _, values in tensors]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, values in packed:
        begin, end = end, end + values.nbytes
        header[name] = {"dtype": "BF16", "shape": values.shape, "data_offsets": [begin, end]}
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        for _, values in packed:
            values.tofile(file)


def write_smollm2_gguf(path: Path) -> None:
    reader = gguf.GGUFReader(default_gguf())
    writer = gguf.GGUFWriter(path, "llama")
    copy_fields(reader, writer, skip=("general.architecture",))
    for tensor in reader.tensors:
        add_tensor(writer, tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
    finish(writer)


def write_qwen3_gguf(path: Path) -> None:
    reader = gguf.GGUFReader(default_gguf())
    writer = gguf.GGUFWriter(path, "qwen3")
    copy_fields(
        reader, writer, only="tokenizer.", skip=tuple(f"tokenizer.ggml.{n}" for n in _PADDED)
    )
    for name in _PADDED:
        add_padded(reader, writer, name)
    writer.add_context_length(QWEN3["max_position_embeddings"])
    writer.add_embedding_length(QWEN3["hidden_size"])
    writer.add_block_count(QWEN3["num_hidden_layers"])
    writer.add_feed_forward_length(QWEN3["intermediate_size"])
    writer.add_head_count(QWEN3["num_attention_heads"])
    writer.add_head_count_kv(QWEN3["num_key_value_heads"])
    writer.add_key_length(QWEN3["head_dim"])
    writer.add_value_length(QWEN3["head_dim"])
    writer.add_rope_freq_base(QWEN3["rope_theta"])
    writer.add_layer_norm_rms_eps(QWEN3["rms_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for _, name, values in qwen3_tensors():
        add_tensor(writer, name, values)
    finish(writer)


_PADDED = ("tokens", "token_type", "scores")


def add_padded(reader: Any, writer: Any, name: str) -> None:
    """A list of the tokenizer, made as long as the vocabulary."""
    field = reader.get_field(f"tokenizer.ggml.{name}")
    if field is None:
        return
    values = field.contents()
    places = range(len(values), QWEN3["vocab_size"])
    if name == "tokens":
        writer.add_token_list(values + [f"[PAD{place}]" for place in places])
    elif name == "token_type":
        writer.add_token_types(values + [_UNUSED_TOKEN for _ in places])
    else:
        writer.add_token_scores(values + [0.0 for _ in places])


def copy_fields(reader: Any, writer: Any, *, only: str = "", skip: tuple[str, ...] = ()) -> None:
    made_anew = ("GGUF.", "general.file_type", "general.quantization_version")
    for field in reader.fields.values():
        if not field.name.startswith(only) or field.name.startswith((*made_anew, *skip)):
            continue
        kind, *inner = field.types
        writer.add_key_value(field.name, field.contents(), kind, inner[-1] if inner else None)


def add_tensor(writer: Any, name: str, values: np.ndarray) -> None:
    """Matrices in bfloat16, vectors in float32, as llama.cpp's own converter does."""
    if values.ndim == 1:
        writer.add_tensor(name, values.astype(np.float32))
    else:
        packed = as_bfloat16(values).view(np.uint8)
        writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.BF16)


def finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--llama-quantize", type=Path)
    parser.add_argument("--optimum-cli", type=Path)
    arguments = parser.parse_args()
    tokenizer = arguments.folder / "smollm2" / "hf"
    make(tokenizer, write_smollm2)
    writers: dict[str, tuple[Callable[[Path], None], Callable[[Path], None]]] = {
        "smollm2": (write_smollm2, write_smollm2_gguf),
        "qwen3-0.6b": (lambda path: write_qwen3(path, tokenizer), write_qwen3_gguf),
    }
    for model in arguments.models.split(","):
        home = arguments.folder / model
        write_hf, write_gguf = writers[model]
        make(home / "hf", write_hf)
        make(home / "w8a8", lambda path, source=home / "hf": write_w8a8(path, source))
        make(home / "bf16.gguf", write_gguf)
        if arguments.llama_quantize:
            for name, kind in GGUF_QUANTIZATIONS.items():
                words = [str(arguments.llama_quantize), str(home / "bf16.gguf")]
                make(home / name, lambda to, w=words, k=kind: call([*w, str(to), k]))
        if arguments.optimum_cli:
            for name, flags in OPENVINO_FORMATS.items():
                words = [str(arguments.optimum_cli), "export", "openvino", "-m", str(home / "hf")]
                words += ["--task", "text-generation-with-past", *flags]
                make(home / name, lambda to, w=words: call([*w, str(to)]))


def call(words: list[str]) -> None:
    subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
