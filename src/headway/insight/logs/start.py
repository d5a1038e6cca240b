"""What servers say of their settings when they start."""

from __future__ import annotations

import re
from typing import Any

_POOL = re.compile(r"KV cache size: ([\d,]+) tokens")
_BLOCKS = re.compile(r"# (?:GPU|cuda) blocks: (\d+)")
_USUAL_BLOCK = 16
_SETTINGS = {
    "max_model_len": re.compile(
        r"Maximum concurrency for ([\d,]+) tokens per request|\bmax_model_len'?[=:] ?(\d+)"
        r"|\bcontext_len=(\d+)"
    ),
    "max_num_seqs": re.compile(r"\bmax_num_seqs'?[=: ] ?(\d+)|\bmax_running_requests=(\d+)"),
    "max_num_batched_tokens": re.compile(
        r"\bmax_num_batched_tokens'?[=: ] ?(\d+)|\bchunked_prefill_size=(\d+)"
    ),
    "num_kv_tokens": re.compile(r"\bmax_total_num_tokens=(\d+)"),
}
MARKS = (
    *("KV cache size", "Maximum concurrency", "max_num_seqs", "max_num_batched_tokens"),
    *("max_model_len", "max_total_num_tokens", "blocks: "),
)


class Settings:
    """As lines tell them one after another; what a later start does not repeat stays."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}  # of a Reading

    def take(self, text: str) -> None:
        for name, pattern in _SETTINGS.items():
            if (match := pattern.search(text)) and (value := _count(match)):
                self.fields[name] = value
        match = _POOL.search(text) or _BLOCKS.search(text)
        if match is not None and (value := _count(match)):
            tokens = value * _USUAL_BLOCK if match.re is _BLOCKS else value
            # A line for each engine.
            self.fields["num_kv_tokens"] = self.fields.get("num_kv_tokens", 0) + tokens

    def begin_again(self) -> None:
        """The cache's size is told anew, once for each engine."""
        self.fields.pop("num_kv_tokens", None)


def is_start(text: str) -> bool:
    """Whether the line tells how large the KV cache is, as every start does."""
    patterns = (_POOL, _BLOCKS, _SETTINGS["num_kv_tokens"])
    return any(pattern.search(text) for pattern in patterns)


def _count(match: re.Match[str]) -> int:
    digits = next(group for group in match.groups() if group).replace(",", "")
    return int(digits) if digits.isdecimal() and len(digits) < 16 else 0
