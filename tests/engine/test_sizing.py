"""Sizes that nobody gave."""

from __future__ import annotations

from pathlib import Path

from headway.engine.config import EngineConfig
from headway.engine.sizing import choose_sizes
from headway.model.config import read_config
from headway.model.source import resolve
from tests.model.tiny import make_tiny_llama


def test_the_pool_holds_a_request_that_fills_the_context(tmp_path: Path) -> None:
    make_tiny_llama(tmp_path, max_position_embeddings=1024)
    model = read_config(resolve(str(tmp_path)))
    sizes = choose_sizes(EngineConfig(max_model_len=100, max_num_seqs=1), model, "float32")
    assert sizes.num_blocks == 7
