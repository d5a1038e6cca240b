"""What the brakes say no with."""

from __future__ import annotations


class QueueFullError(Exception):
    """The server takes no more for now; the message says why and what the wait is based on."""

    def __init__(self, message: str, retry_after_s: int, cause: str = "queue_reqs") -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.cause = cause  # queue_reqs, queue_tokens, tenant_reqs or tenant_tokens


class NeverFitsError(Exception):
    """More at once than the server ever takes: no use in trying again."""

    cause = "never_fits"
