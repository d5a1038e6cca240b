"""What no real model exceeds. A configuration beyond these is broken or hostile, and is refused
before anything is allocated by its numbers."""

from __future__ import annotations

VOCAB = 1 << 24
WIDTH = 1 << 18
LAYERS = 1 << 10
HEADS = 1 << 10
HEAD_DIM = 1 << 10
POSITIONS = 1 << 26
MULTIPLIERS = (1e-6, 1e6)
