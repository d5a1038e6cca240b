"""When the engine's process looks for garbage."""

from __future__ import annotations

import gc

_NEW_OBJECTS = 50_000  # a step of a thousand sequences makes about 5,000, and drops them again


def rarely_look_for_garbage() -> None:
    """What is here now stays, so nothing looks at it again between two steps; and what a step makes
    and drops is not worth a look. Cycles are still found, after so many new objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
