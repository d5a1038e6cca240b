"""Weights of tenants, as a flag and a recording's header have them."""

from __future__ import annotations

MAX_WEIGHT = 1_000_000


def weights_of(text: str) -> dict[str, int]:
    """`a=2,b=1` as weights by tenant, in that order; who is not named weighs 1. "" is none.

    Raises ValueError with the end of a sentence.
    """
    weights: dict[str, int] = {}
    for part in text.split(",") if text.strip() else ():
        name, found, digits = (piece.strip() for piece in part.rpartition("="))
        if not (found and name and digits.isascii() and digits.isdigit()):
            raise ValueError(f"must be TENANT=WEIGHT, comma between them, as a=2,b=1, got {text!r}")
        if not 1 <= int(digits[:10]) <= MAX_WEIGHT or len(digits) > 10:
            raise ValueError(f"must have weights from 1 to {MAX_WEIGHT}, got {part.strip()!r}")
        if name in weights:
            raise ValueError(f"must name each tenant once, got {name!r} again")
        weights[name] = int(digits)
    return weights
