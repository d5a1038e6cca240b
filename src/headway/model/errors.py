"""What a model that cannot be served raises."""

from __future__ import annotations


class ModelError(ValueError):
    """A model that cannot be read or served, in one sentence: what is wrong, what to do."""
