"""Where settings come from: the command line, then the file of --config, then the environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.cli.parsing import ParsedFlags, parse_flags
from headway.flags import FlagError

_GIB = 1 << 30


def read_flags(argv: Sequence[str], environ: Mapping[str, str]) -> ParsedFlags:
    """Raises FlagError with one sentence."""
    words, config_path = _without_config(argv)
    flags = parse_flags(words)
    if config_path is not None:
        flags = flags.over(_from_file(config_path))
    return _with_key_file(flags.over(_from_environment(environ, flags)))


def _without_config(argv: Sequence[str]) -> tuple[list[str], str | None]:
    words: list[str] = []
    path: str | None = None
    rest = iter(argv)
    for word in rest:
        name, has_value, value = word.partition("=")
        if name != "--config":
            words.append(word)
            continue
        if path is not None:
            raise FlagError("--config may be given once")
        path = value if has_value else next(rest, None)
        if not path or path.startswith("--"):
            raise FlagError("--config needs a value: a YAML file")
    return words, path


def _from_file(path: str) -> ParsedFlags:
    """Keys are flags without their dashes, as vLLM has it; `model` is the model."""
    entries = _load_yaml(path)
    try:
        return parse_flags([word for key, value in entries.items() for word in _words(key, value)])
    except FlagError as error:
        raise FlagError(f"--config {path}: {error}") from None
    except (RecursionError, ValueError):
        raise FlagError(f"--config {path}: a value stands within itself") from None


def _load_yaml(path: str) -> dict[Any, Any]:
    import yaml

    try:
        entries = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise FlagError(f"--config {path} cannot be read: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise FlagError(f"--config {path} is not YAML: {reason}") from None
    if entries is None:
        return {}
    if not isinstance(entries, dict):
        raise FlagError(f"--config {path} must be a YAML mapping of flags to values")
    return entries


def _words(key: Any, value: Any) -> list[str]:
    name = "--" + str(key).replace("_", "-")
    if value is None:
        raise FlagError(f"{name} has no value: give one or leave the line out")
    if isinstance(value, bool):
        return [f"{name}={str(value).lower()}"]
    if isinstance(value, list):
        return [word for one in value for word in _words(key, one)]
    if isinstance(value, dict):
        return [f"{name}={json.dumps(value, default=str)}"]  # YAML has dates, JSON has none
    return [f"{name}={value}"]


def _from_environment(environ: Mapping[str, str], flags: ParsedFlags) -> ParsedFlags:
    """vLLM's variables that mean something here, and our own HEADWAY_API_KEY."""
    engine: dict[str, Any] = {}
    server: dict[str, Any] = {}
    warnings: list[str] = []
    keys = [environ.get(name, "") for name in ("HEADWAY_API_KEY", "VLLM_API_KEY")]
    if any(keys) and "api_key_file" not in flags.server:
        server["api_key"] = tuple(key for key in keys if key)
    if space := environ.get("VLLM_CPU_KVCACHE_SPACE"):
        engine["kv_cache_memory_bytes"] = _gib("VLLM_CPU_KVCACHE_SPACE", space)
    if environ.get("VLLM_SERVER_DEV_MODE") == "1":
        server["enable_dev_endpoints"] = True
    if environ.get("VLLM_BATCH_INVARIANT") == "0":
        warnings.append("VLLM_BATCH_INVARIANT=0 has no effect here: it is always 1")
    return ParsedFlags(engine, server, tuple(warnings))


def _gib(name: str, text: str) -> int | None:
    try:
        size = float(text)
    except ValueError:
        size = -1.0
    if not 0 <= size < 1 << 20:
        raise FlagError(f"{name} must be a number of GiB, got {text!r}")
    return int(size * _GIB) or None  # 0 leaves the choice to us, as it does there


def _with_key_file(flags: ParsedFlags) -> ParsedFlags:
    path = flags.server.get("api_key_file")
    if path is None:
        return flags
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise FlagError(f"--api-key-file {path} cannot be read: {error}") from None
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise FlagError(f"--api-key-file {path} has no key: put one on each line")
    return ParsedFlags(server={"api_key": (*flags.server.get("api_key", ()), *keys)}).over(flags)
