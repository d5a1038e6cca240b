"""How long what is known of a request is kept for the one who delivers its answer."""

from __future__ import annotations

from headway.core.events import AbortCause, Aborted, Retired
from headway.core.request import FinishReason

# Ended and never said to be delivered: its client left in the last moment. The oldest go.
MAX_UNDELIVERED = 4096


def is_withdrawn(event: Retired | Aborted) -> bool:
    """Nobody is left to tell; a stop string, or a time limit, has a client who waits."""
    return (
        isinstance(event, Aborted)
        and event.reason is FinishReason.ABORT
        and event.cause in (AbortCause.CLIENT, AbortCause.ENGINE)
    )
