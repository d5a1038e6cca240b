"""The text side of a model: tokenizer, chat template and stop ids, opened where the model lies.

The engine never needs it; `LLM` and the API process do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.model.config import ModelConfig, read_config
from headway.model.source import ModelSource
from headway.model.weights.gguf import read_gguf
from headway.text.chat_template import ChatTemplate
from headway.text.eos import StopId, unite_stop_ids
from headway.text.tokenizer import Tokenizer
from headway.text.tokenizer_dir import load_tokenizer_dir
from headway.text.tokenizer_gguf import tokenizer_from_gguf


@dataclass(frozen=True, slots=True)
class ModelText:
    tokenizer: Tokenizer
    template: ChatTemplate | None  # None: the model names none and none was given
    stop_ids: tuple[StopId, ...]
    config: ModelConfig

    @property
    def stop_token_ids(self) -> frozenset[int]:
        return frozenset(stop.token_id for stop in self.stop_ids)

    @property
    def sampling_defaults(self) -> dict[str, Any]:
        """What the model's generation_config says, by SamplingParams names.

        Its `max_new_tokens` is left out: how long an answer may get is the client's to say.
        """
        return {k: v for k, v in self.config.generation.items() if k != "max_new_tokens"}


def open_text(
    source: ModelSource, *, tokenizer_path: str | None = None, chat_template: str | None = None
) -> ModelText:
    """`chat_template` replaces the model's own. Raises ValueError with a sentence."""
    config = read_config(source)  # first: what cannot be served at all is the better sentence
    tokenizer = _open_tokenizer(source, tokenizer_path)
    template = _open_template(chat_template or tokenizer.chat_template, tokenizer)
    stop_ids = unite_stop_ids(tokenizer, config.eos_token_ids, template)
    return ModelText(tokenizer, template, tuple(stop_ids), config)


def _open_tokenizer(source: ModelSource, tokenizer_path: str | None) -> Tokenizer:
    if tokenizer_path is not None:
        return load_tokenizer_dir(Path(tokenizer_path))
    if source.kind == "gguf":
        metadata: Mapping[str, object] = read_gguf(source.path).metadata
        return tokenizer_from_gguf(metadata)
    return load_tokenizer_dir(source.path)


def _open_template(source: str | None, tokenizer: Tokenizer) -> ChatTemplate | None:
    if source is None:
        return None
    return ChatTemplate(source, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)
