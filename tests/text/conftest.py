"""The default model as transformers reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def smollm_of_transformers(default_gguf: Path) -> Any:
    """The tokenizer that transformers makes of the file; read only, it takes seconds to load."""
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(
        default_gguf.parent, gguf_file=default_gguf.name
    )
