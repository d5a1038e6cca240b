"""Where a model lies: a directory, a GGUF file, a hub repository, or the default model."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headway.model.default_model import DEFAULT_NAME, ensure_default_model
from headway.model.errors import ModelError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# Never code: no .py, no pickles.
_HUB_PATTERNS = ["*.json", "*.safetensors", "tokenizer.model", "*.jinja", "*.txt"]


@dataclass(frozen=True, slots=True)
class ModelSource:
    """`name` is what the server calls the model; `path` a directory ("hf") or a file ("gguf")."""

    name: str
    kind: Literal["hf", "gguf"]
    path: Path


def resolve(
    model: str | None, *, revision: str | None = None, download_dir: str | None = None
) -> ModelSource:
    """Find `model`, downloading what is not here yet; None is the default model.

    Raises ModelError with a sentence when it cannot be found or fetched.
    """
    if model is None:
        return ModelSource(DEFAULT_NAME, "gguf", ensure_default_model(cache_dir(download_dir)))
    path = Path(model).expanduser()
    if model and path.is_dir():
        return ModelSource(model, "hf", path)
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelError(f"{path} is a file, but not a .gguf: give its directory instead")
        return ModelSource(path.stem, "gguf", path)
    if path.suffix.lower() == ".gguf":
        raise ModelError(f"there is no file {model}")
    if not _HUB_ID.fullmatch(model):
        raise ModelError(
            f"model {model!r} is neither a directory, a .gguf file, nor a hub id like org/name"
        )
    return ModelSource(model, "hf", _download(model, revision, download_dir))


def cache_dir(download_dir: str | None = None) -> Path:
    """`download_dir`, else $HEADWAY_CACHE, else ~/.cache/headway."""
    chosen = download_dir or os.environ.get("HEADWAY_CACHE") or "~/.cache/headway"
    return Path(chosen).expanduser()


def _download(model: str, revision: str | None, download_dir: str | None) -> Path:
    # Slow to import, and a local model needs none of it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        path = snapshot_download(
            model, revision=revision, cache_dir=download_dir, allow_patterns=_HUB_PATTERNS
        )
    except GatedRepoError as error:
        raise ModelError(
            f"{model} is gated: accept its terms on the hub and set HF_TOKEN"
        ) from error
    except RevisionNotFoundError as error:
        raise ModelError(f"{model} has no revision {revision!r} on the hub") from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"{model} is neither a directory here nor a repository on the hub "
            f"(for a private one, set HF_TOKEN)"
        ) from error
    except Exception as error:  # the hub's client raises what its HTTP client does
        raise ModelError(
            f"{model} is not a directory here and could not be downloaded: check the name and the "
            f"network, or give a directory or a .gguf file ({type(error).__name__})"
        ) from error
    return Path(path)
