"""What `headway bench serve` is told by flags: the server, the requests, what is shown."""

from __future__ import annotations

import json
import math
import os
import time
from typing import Any

from headway.bench.figures import TIMES, Objectives
from headway.bench.requests import Form
from headway.bench.server import get, served_model
from headway.bench.tally import Rules
from headway.bench.target import Target, target_of
from headway.cli.bench.flags import BenchFlags, number_or_nan, read_list
from headway.cli.bench.load import LoadPlan
from headway.cli.bench.readouts import Shown
from headway.cli.own_flags import api_key
from headway.flags import FlagError

_ENDPOINTS = {
    "openai": "/v1/completions",
    "vllm": "/v1/completions",
    "openai-chat": "/v1/chat/completions",
}
_SAMPLING = {
    "--temperature": "temperature",
    "--top-p": "top_p",
    "--top-k": "top_k",
    "--min-p": "min_p",
    "--frequency-penalty": "frequency_penalty",
    "--presence-penalty": "presence_penalty",
    "--repetition-penalty": "repetition_penalty",
    "--logprobs": "logprobs",
}


def form_of(flags: BenchFlags, alone: str | None) -> Form:
    """`alone`: the URL that stands on the line without a flag. Raises FlagError or ValueError."""
    target, headers, endpoint = _target(flags, alone), _headers(flags), _endpoint(flags)
    style = flags.text("--prompt-style", "ids")
    if style not in ("ids", "words"):
        raise FlagError(f"--prompt-style must be ids or words, got {style!r}")
    fields = _fields(flags)
    _wait_for_server(target, flags.number("--ready-check-timeout-sec", 0.0))
    return Form(
        target=target,
        endpoint=endpoint,
        model=flags.get("--model") or served_model(target, headers),
        salt=flags.whole("--text-seed", 0) if flags.has("--text-seed") else _fresh_salt(),
        as_words=style == "words",
        headers=headers,
        fields=fields,
        id_prefix=flags.text("--request-id-prefix", "bench-"),
    )


def _fresh_salt() -> int:
    return int.from_bytes(os.urandom(4))


def _target(flags: BenchFlags, alone: str | None) -> Target:
    urls = [*([] if alone is None else [alone]), *flags.values.get("--base-url", ())]
    parts = [name for name in ("--host", "--port") if flags.has(name)]
    if len(urls) > 1 or (urls and parts):
        raise FlagError(f"which server? There are {' and '.join([*urls, *parts])}: give one")
    host, port = flags.text("--host", "127.0.0.1"), flags.whole("--port", 8000, 1, 65535)
    url = urls[0] if urls else f"http://[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return target_of(url, is_checked=not flags.has("--insecure"))


def _endpoint(flags: BenchFlags) -> str:
    backend = flags.text("--backend", "openai")
    if backend not in _ENDPOINTS:
        raise FlagError(f"--backend must be one of {', '.join(_ENDPOINTS)}, got {backend!r}")
    endpoint = flags.text("--endpoint", _ENDPOINTS[backend])
    if not endpoint.startswith("/") or not endpoint.isascii() or " " in endpoint:
        raise FlagError(f"--endpoint is a path such as /v1/completions, got {endpoint!r}")
    return endpoint


def _headers(flags: BenchFlags) -> dict[str, str]:
    key = api_key(flags.get("--api-key"))
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return headers | {name.lower(): value for name, value in flags.pairs("--header").items()}


def _fields(flags: BenchFlags) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for flag, field in _SAMPLING.items():
        if flags.has(flag):
            value = flags.number(flag, 0.0, -1e9)
            fields[field] = int(value) if field in ("top_k", "logprobs") else value
    if flags.has("--ignore-eos"):
        fields["ignore_eos"] = True
    try:
        extra = json.loads(flags.text("--extra-body", "{}"))
    except (ValueError, RecursionError) as error:
        raise FlagError(f"--extra-body is not JSON: {error}") from None
    if not isinstance(extra, dict):
        raise FlagError("--extra-body must be a JSON object")
    return fields | extra


def rules_of(flags: BenchFlags, plan: LoadPlan) -> Any:
    limit = (
        flags.whole("--max-concurrency", 0, 1, 10**6) if flags.has("--max-concurrency") else None
    )
    is_closed_loop = plan.rates == (math.inf,)  # where as many clients wait for each other
    return Rules(
        max_concurrency=None if is_closed_loop else limit,
        stall_s=flags.number("--stall-s", 600.0, 0.1),
        drain_s=flags.number("--drain-s", 0.0) if flags.has("--drain-s") else None,
    )


def objectives_of(flags: BenchFlags) -> Objectives | None:
    if not flags.has("--goodput"):
        return None
    limits = []
    for given in flags.values["--goodput"]:
        name, _, limit = given.partition(":")
        milliseconds = number_or_nan(limit)
        if name not in ("ttft", "tpot", "e2el") or not 0 <= milliseconds < 1e12:
            raise FlagError(f"--goodput takes ttft:MS, tpot:MS and e2el:MS, got {given!r}")
        limits.append((name, milliseconds / 1e3))
    return Objectives(tuple(limits))


def shown_of(flags: BenchFlags) -> Shown:
    names = flags.text("--percentile-metrics", ",".join(TIMES)).split(",")
    percentiles = read_list(flags.text("--metric-percentiles", "50,90,99"), number_or_nan)
    if not set(names) <= set(TIMES):
        raise FlagError(f"--percentile-metrics takes {', '.join(TIMES)}, got {','.join(names)!r}")
    if not all(0 < percent <= 100 for percent in percentiles):
        raise FlagError("--metric-percentiles takes numbers above 0 and up to 100")
    return Shown(tuple(names), tuple(percentiles))


def _wait_for_server(target: Target, patience_s: float) -> None:
    until = time.monotonic() + patience_s
    while patience_s:
        try:
            get(target, "/v1/models", {})
            return
        except ValueError:
            if time.monotonic() > until:
                raise
        time.sleep(0.5)
