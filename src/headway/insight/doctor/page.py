"""A page of metrics in Prometheus' text format, from whomever: hostile until read.

Only names of known servers are kept. They are told apart as whole names, never by how they begin,
and `:` and `_` in them are the same, since some pipelines cannot carry a colon.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

MAX_BYTES = 16 << 20
MAX_SAMPLES = 100_000
PREFIXES = ("vllm_", "headway_", "sglang_", "tgi_", "llamacpp_")
_OTHERS = frozenset({"process_start_time_seconds"})

# No two alternatives begin alike, so that no line takes more than one pass.
_LINE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*"
    r'(?:\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]*'
    r"([^\s#]+)(?:[ \t]+[0-9.eE+-]+)?[ \t]*(?:#.*)?"
)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


class Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float


class Page:
    """Samples by name, with `_` for `:`. A figure that is no number, or below 0, is not there."""

    def __init__(self, samples: Mapping[str, list[Sample]], num_garbled: int) -> None:
        self._samples = samples
        self.num_garbled = num_garbled  # lines of known servers that are no samples

    def named(self, name: str) -> list[Sample]:
        return self._samples.get(name.replace(":", "_"), [])

    def has(self, prefix: str) -> bool:
        """Whether any sample is of the server whose names begin with this."""
        return any(name.startswith(prefix) for name in self._samples)


def read_page(text: str) -> Page:
    """Raises ValueError, with a sentence, for what holds nothing of a known server."""
    samples: dict[str, list[Sample]] = {}
    num_samples = num_garbled = 0
    for line in text.split("\n"):
        if not (name := _known_name(line)):
            continue
        sample = _sample(line)
        if sample is None:
            num_garbled += 1
            continue
        num_samples += 1
        if num_samples > MAX_SAMPLES:
            raise ValueError(
                f"more than {MAX_SAMPLES:,} samples: this is not the page of one server; ask a "
                f"server itself instead of what gathers from many"
            )
        if math.isfinite(sample.value) and sample.value >= 0:
            samples.setdefault(name, []).append(sample)
    if not samples:
        raise ValueError(_nothing_known(text, num_garbled))
    return Page(samples, num_garbled)


def _known_name(line: str) -> str:
    """The name that a line begins with, "" where it is of nobody that we know."""
    found = re.match(r"[a-zA-Z_:][a-zA-Z0-9_:]*", line)
    name = found.group().replace(":", "_") if found else ""
    return name if name.startswith(PREFIXES) or name in _OTHERS else ""


def _sample(line: str) -> Sample | None:
    found = _LINE.fullmatch(line.strip())
    if not found:
        return None
    _, labels, value = found.groups()
    try:
        number = float(value)
    except ValueError:
        return None
    return Sample({name: _plain(text) for name, text in _LABEL.findall(labels or "")}, number)


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda m: "\n" if m.group(1) == "n" else m.group(1), text)


def _nothing_known(text: str, num_garbled: int) -> str:
    if num_garbled:
        return f"{num_garbled} lines begin like metrics of a known server, and none can be read"
    if text.lstrip()[:1] == "<":
        return "this is a web page, not metrics: give the address that ends in /metrics"
    return (
        "there are no metrics of Headway, vLLM, SGLang, TGI or llama.cpp in it (SGLang shows them "
        "with --enable-metrics, llama.cpp with --metrics)"
    )
