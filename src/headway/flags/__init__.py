"""Every flag of `headway serve` and `headway chat`, or why it is refused.

Names and meanings are vLLM's where vLLM has them: a pasted line gets the same meaning or one
sentence, never silence.
"""

from __future__ import annotations

from headway.flags.engine import ENGINE_FLAGS
from headway.flags.foreign import FOREIGN
from headway.flags.kinds import Flag, FlagError, Foreign
from headway.flags.server import SERVER_FLAGS

FLAGS: tuple[Flag, ...] = (*ENGINE_FLAGS, *SERVER_FLAGS)

__all__ = ["FLAGS", "FOREIGN", "Flag", "FlagError", "Foreign"]
