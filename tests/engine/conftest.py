"""A tiny model with random weights, loaded once for each way to run it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.model.loader import LoadedModel, load_model
from headway.model.source import ModelSource, resolve
from headway.ops.cpu.backend import CpuOps, available_isas
from headway.ops.interface import Ops
from tests.engine.harness import Bench
from tests.model.tiny import make_tiny_llama


@pytest.fixture(scope="session")
def tiny_source(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    folder: Path = tmp_path_factory.mktemp("tiny-llama")
    make_tiny_llama(folder, max_position_embeddings=1024)
    return resolve(str(folder))


# Whole numbers give the same bits on every instruction set (tests/ops/test_linear_int8.py and
# test_linear_grouped.py): the best and the emulated tiles are the two kernels there are for int8.
# Keys and values in int8: with VNNI and without.
WAYS = [
    *((isa, None, "auto") for isa in available_isas()),
    (available_isas()[0], "int8", "auto"),
    ("amx_emulated", "int8", "auto"),
    (available_isas()[0], "int4", "auto"),
    (available_isas()[0], "gguf", "auto"),
    (available_isas()[0], None, "int8"),
    (available_isas()[0], "int8", "int8"),
    (available_isas()[0], "int4", "int8"),
    ("portable", None, "int8"),
]


def name_of(way: tuple[str, str | None, str]) -> str:
    isa, quantization, kv_cache_dtype = way
    return "-".join(filter(None, (isa, quantization, f"kv_{kv_cache_dtype}")))


@pytest.fixture(scope="session", params=WAYS, ids=name_of)
def way(request: pytest.FixtureRequest) -> tuple[str, str | None, str]:
    """Instruction set, weights, keys and values."""
    found: tuple[str, str | None, str] = request.param
    return found


@pytest.fixture(scope="session")
def loaded(way: tuple[str, str | None, str], tiny_source: ModelSource) -> tuple[LoadedModel, Ops]:
    """The tiny model in bfloat16 on each instruction set of this machine, and in fewer bits."""
    isa, quantization, _ = way
    ops = CpuOps(isa=isa)
    source = tiny_source if quantization != "gguf" else _tiny_gguf(tiny_source.path)
    return load_model(source, ops, "bfloat16", quantization=quantization), ops


def _tiny_gguf(folder: Path) -> ModelSource:
    """The same model in a GGUF file, its matrices in Q4_1."""
    pytest.importorskip("gguf")
    from tests.model.tiny_gguf import make_tiny_gguf

    sizes = {"max_position_embeddings": 1024}
    path = make_tiny_gguf(folder / "tiny.gguf", "llama", sizes, quantisation="Q4_1")
    return ModelSource("tiny", "gguf", path)


@pytest.fixture
def make_bench(
    tiny_source: ModelSource,
    loaded: tuple[LoadedModel, Ops],
    way: tuple[str, str | None, str],
) -> Callable[..., Bench]:
    """A fresh engine with the given settings around the loaded model."""
    model, ops = loaded
    return lambda **settings: Bench(
        tiny_source, model, ops, **({"kv_cache_dtype": way[2]} | settings)
    )
