"""How the values of flags are read. Each raises ValueError with the end of a sentence."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

from headway.core.config import weights_of


def parse_size(text: str) -> int:
    """`8192`, `8k` (8,000), `8K` (8,192), as vLLM reads lengths; m, M, g, G likewise."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", text.strip())
    if not match:
        raise ValueError(f"must be a number such as 8192, 8k or 8K, got {text!r}")
    base = 1000 if match[2].islower() else 1024
    return int(float(match[1]) * base ** " kmg".index(match[2].lower() or " "))


def parse_model_len(text: str) -> int | None:
    return None if text in ("auto", "-1") else parse_size(text)


def parse_bytes(text: str) -> int:
    """Bytes: a plain number, or with g, GiB, m, MiB, k, KiB (powers of 1024; GB is 10**9)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", text.strip().lower())
    if not match:
        raise ValueError(f"must be bytes such as 1g, 512MiB or 1073741824, got {text!r}")
    base = 1000 if match[3] == "b" and match[2] else 1024
    return int(float(match[1]) * base ** " kmgt".index(match[2] or " "))


def parse_int(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"must be a whole number, got {text[:50]!r}") from None
    if abs(value) >= 1 << 63:
        raise ValueError(f"must be a whole number of at most 63 bits, got {text[:50]}")
    return value


def parse_count(text: str) -> int:
    value = parse_int(text)
    if value < 0:
        raise ValueError(f"must be at least 0, got {value}")
    return value


def parse_milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"must be a number of milliseconds, at least 0, got {text!r}")
    return value


def parse_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"must be a number of seconds, got {text!r}")
    return value


def parse_share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise ValueError(f"must be at least 0 and less than 1, got {text!r}")
    return value


def parse_header(text: str) -> str:
    """The name of a header, or none."""
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", text):
        raise ValueError(f"must be the name of a header, or none, got {text!r}")
    return text.lower()


def parse_weights(text: str) -> str:
    """`a=2,b=1`, as it is; none is no weights."""
    if text == "none":
        return ""
    weights_of(text)
    return text


def parse_risk(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 0.5:
        raise ValueError(f"must be above 0 and at most 0.5, got {text!r}")
    return value


def parse_file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ValueError(f"must be a file, and {text!r} is none")
    return path


def parse_template(text: str) -> str:
    """The text of a chat template: of the file of that name, or the value itself."""
    if "{{" in text or "{%" in text:
        return text
    try:
        return parse_file(text).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot be read: {error}") from None


def parse_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ValueError(f'must be a JSON object such as {{"name": 1}}, got {text!r}')
    return value


def parse_buckets(text: str) -> dict[str, tuple[float, ...]]:
    """Bucket bounds by family: a JSON object of rising lists of numbers above 0."""
    buckets = {}
    for family, bounds in parse_object(text).items():
        if not _is_rising(bounds):
            raise ValueError(f"{family} must be a list of rising numbers above 0, got {bounds!r}")
        buckets[family] = tuple(float(bound) for bound in bounds)
    return buckets


def parse_words(text: str) -> tuple[str, ...]:
    """One word, or a JSON list of them."""
    if not text.startswith("["):
        return (text,)
    try:
        words = json.loads(text)
    except ValueError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"must be words or a JSON list of strings, got {text!r}")
    return tuple(words)


def parse_paths(text: str) -> tuple[str, ...]:
    """Paths of the server, comma between them."""
    paths = tuple(path.strip() for path in text.split(",") if path.strip())
    if not all(path.startswith("/") for path in paths):
        raise ValueError(f"must be paths such as /health,/metrics, got {text!r}")
    return paths


def _is_rising(bounds: object) -> bool:
    if not isinstance(bounds, list) or not bounds:
        return False
    if not all(isinstance(b, int | float) and math.isfinite(b) for b in bounds):
        return False
    return bounds[0] > 0 and all(a < b for a, b in itertools.pairwise(bounds))
