"""Headway: a continuous-batching LLM serving engine built around one pure scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.core.request import SamplingParams
    from headway.llm import LLM

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    # Lazy: `import headway.core` must cost nothing that the core does not need.
    if name == "LLM":
        from headway.llm import LLM

        return LLM
    if name == "SamplingParams":
        from headway.core.request import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'headway' has no attribute {name!r}")
