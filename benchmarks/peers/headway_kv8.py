"""Headway with keys and values in 8 bits."""

from __future__ import annotations

from benchmarks.peers.engine import Engine, Setup
from benchmarks.peers.headway import Headway


def open_engine(setup: Setup) -> Engine:
    return Headway(setup, kv_cache_dtype="int8")
