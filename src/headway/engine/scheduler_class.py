"""`--scheduler-cls`: a scheduler of the operator's own."""

from __future__ import annotations

import importlib

from headway.core.scheduler import Scheduler


def load_scheduler_class(name: str | None) -> type[Scheduler]:
    """The class called MODULE.CLASS, or ours for None. Raises ValueError with a sentence."""
    if name is None:
        return Scheduler
    module_name, _, class_name = name.rpartition(".")
    if not module_name or not class_name:
        raise ValueError(f"scheduler_cls must be MODULE.CLASS, got {name!r}")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:  # an import runs the operator's code, which may raise anything
        raise ValueError(
            f"scheduler_cls {name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Scheduler)):
        raise ValueError(
            f"scheduler_cls {name!r} must be a subclass of headway.core.scheduler.Scheduler"
        )
    return found
