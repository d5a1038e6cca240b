"""The door to a model's configuration: where its source says, checked."""

from __future__ import annotations

from headway.model.errors import ModelError
from headway.model.gguf_config import gguf_config
from headway.model.hf_config import read_hf_config
from headway.model.shape import ModelConfig, RopeConfig, plan_blocks
from headway.model.source import ModelSource
from headway.model.weights.gguf import read_gguf

__all__ = ["ModelConfig", "ModelError", "RopeConfig", "plan_blocks", "read_config"]


def read_config(source: ModelSource) -> ModelConfig:
    """Raises ModelError, with a sentence, where it cannot be read or served."""
    if source.kind == "gguf":
        return gguf_config(read_gguf(source.path))
    return read_hf_config(source.path)
