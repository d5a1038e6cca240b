"""The default model's tokenizer as a directory for transformers, so that no hub is asked."""

from __future__ import annotations

import json
from pathlib import Path

from headway.model.source import resolve
from headway.model.weights.gguf import read_gguf
from headway.text.tokenizer import Tokenizer
from headway.text.tokenizer_gguf import tokenizer_from_gguf


def default_tokenizer() -> Tokenizer:
    return tokenizer_from_gguf(read_gguf(resolve(None).path).metadata)


def write_tokenizer(folder: Path) -> str:
    """`folder`, which then has what `AutoTokenizer.from_pretrained` needs."""
    tokenizer = default_tokenizer()
    (folder / "tokenizer.json").write_text(tokenizer.to_json())
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokenizer.bos_token,
        "eos_token": tokenizer.eos_token,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return str(folder)
