"""The operator's own layers, by import path."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from fastapi import FastAPI


def add_middleware(app: FastAPI, path: str) -> None:
    """A class is an ASGI middleware, a coroutine function takes (request, call_next).

    Raises ValueError with a sentence when `path` names neither.
    """
    found: Any = _load(path)
    if inspect.isclass(found):
        layer: Any = found
        app.add_middleware(layer)
    elif inspect.iscoroutinefunction(found):
        app.middleware("http")(found)
    else:
        raise ValueError(f"middleware {path!r} is neither a class nor a coroutine function")


def _load(path: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # a module may do anything when it is imported
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"middleware {path!r} cannot be imported: {what}") from error


def build_layers(app: FastAPI) -> None:
    """Put the layers round the routes now, not at the first request. Raises ValueError."""
    try:
        app.middleware_stack = app.build_middleware_stack()
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"the --middleware layers cannot be put round the server: {what}"
        ) from error
