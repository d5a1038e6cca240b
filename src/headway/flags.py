"""One table: every flag of `headway serve` and `headway chat`, or why it is refused.

Names and meanings are vLLM's where vLLM has them: a pasted line gets the same meaning or one
sentence, never silence.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.engine.config import DTYPES, KV_CACHE_DTYPES, LOAD_FORMATS
from headway.server.config import LOG_LEVELS


class FlagError(ValueError):
    """A command line that cannot be served; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Flag:
    """`--no-NAME` exists where `parse` is None: an on-off flag."""

    names: tuple[str, ...]
    field: str
    parse: Callable[[str], Any] | None
    help: str
    metavar: str = "N"
    section: str = "engine"  # or "server": whose configuration the field is in
    repeats: bool = False  # takes one value or more and may come again
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Foreign:
    """A flag of others. `is_fine(value)`: the value asks for what happens anyway."""

    names: tuple[str, ...]
    sentence: str
    takes_value: bool = True
    is_refused: bool = True
    is_fine: Callable[[str], bool] = lambda value: False


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
        return int(text)
    except ValueError:
        raise ValueError(f"must be a whole number, got {text!r}") from None


def parse_share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise ValueError(f"must be at least 0 and less than 1, got {text!r}")
    return value


def parse_count(text: str) -> int:
    value = parse_int(text)
    if value < 0:
        raise ValueError(f"must be at least 0, got {value}")
    return value


def parse_file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ValueError(f"must be a file, and {text!r} is none")
    return path


FLAGS: tuple[Flag, ...] = (
    Flag(
        ("--model",),
        "model",
        str,
        "Directory, .gguf file or hub name; SmolLM2-135M-Instruct unless given.",
        "MODEL",
    ),
    Flag(
        ("--served-model-name",),
        "served_model_name",
        str,
        "Names that clients may ask for.",
        "NAME",
        repeats=True,
    ),
    Flag(("--revision",), "revision", str, "Revision of a hub model.", "REV"),
    Flag(("--download-dir",), "download_dir", str, "Where hub models are kept.", "DIR"),
    Flag(
        ("--load-format",),
        "load_format",
        str,
        "How the weights are stored.",
        "FORMAT",
        allowed=LOAD_FORMATS,
    ),
    Flag(
        ("--dtype",),
        "dtype",
        str,
        "Compute type.",
        "TYPE",
        allowed=DTYPES,
    ),
    Flag(
        ("--max-model-len",),
        "max_model_len",
        parse_model_len,
        "Longest prompt plus output, in tokens: 8192, 8k (8000), 8K (8192); auto: the model's.",
    ),
    Flag(("--seed",), "seed", parse_int, "Seed of the engine."),
    Flag(
        ("--max-num-seqs",),
        "max_num_seqs",
        parse_int,
        "Most sequences in a step; 256, or what the KV cache holds.",
    ),
    Flag(
        ("--max-num-batched-tokens",),
        "max_num_batched_tokens",
        parse_size,
        "Most tokens in a step; 512, or --max-num-seqs if larger.",
    ),
    Flag(
        ("--enable-chunked-prefill",),
        "enable_chunked_prefill",
        None,
        "Whether a prompt may be spread over several steps.",
    ),
    Flag(
        ("--long-prefill-token-threshold",),
        "long_prefill_token_threshold",
        parse_count,
        "Most prompt tokens of one sequence in a step; 0 is no limit.",
    ),
    Flag(
        ("--scheduling-policy",),
        "scheduling_policy",
        str,
        "Order of service.",
        "POLICY",
        allowed=("fcfs",),
    ),
    Flag(
        ("--scheduler-reserve-full-isl",),
        "scheduler_reserve_full_isl",
        None,
        "Whether the whole prompt must fit before a sequence is admitted.",
    ),
    Flag(
        ("--watermark",),
        "watermark",
        parse_share,
        "Share of blocks, 0 to 1, that admission leaves free.",
    ),
    Flag(("--block-size",), "block_size", parse_int, "Tokens in a KV block."),
    Flag(
        ("--kv-cache-memory-bytes",),
        "kv_cache_memory_bytes",
        parse_bytes,
        "Size of the KV cache: 1g, 512MiB; a quarter of free memory, at most 4 GiB.",
        "BYTES",
    ),
    Flag(
        ("--num-gpu-blocks-override",),
        "num_gpu_blocks_override",
        parse_int,
        "Number of KV blocks, whatever the memory says.",
    ),
    Flag(
        ("--enable-prefix-caching",),
        "enable_prefix_caching",
        None,
        "Whether computed blocks are found again.",
    ),
    Flag(
        ("--kv-cache-dtype",),
        "kv_cache_dtype",
        str,
        "Type of keys and values.",
        "TYPE",
        allowed=KV_CACHE_DTYPES,
    ),
    Flag(
        ("--kv-policy",),
        "kv_policy",
        str,
        "Blocks as needed, or all that max_tokens may need at admission.",
        "POLICY",
        allowed=("on-demand", "reserve"),
    ),
    Flag(
        ("--batching-unit",),
        "batching_unit",
        str,
        "Who may join: step (continuous batching) or request (static).",
        "UNIT",
        allowed=("step", "request"),
    ),
    Flag(
        ("--prefill-placement",),
        "prefill_placement",
        str,
        "Prompts beside decodes in a step, or before them.",
        "PLACE",
        allowed=("mixed", "first"),
    ),
    Flag(
        ("--preemption-victim",),
        "preemption_victim",
        str,
        "Who loses its blocks when there are none left.",
        "RULE",
        allowed=("newest",),
    ),
    Flag(
        ("--num-threads",),
        "num_threads",
        parse_int,
        "Threads of the kernels; one for each processor.",
    ),
    Flag(("--max-logprobs",), "max_logprobs", parse_count, "Most logprobs per token."),
    Flag(("--host",), "host", str, "Address to listen on.", "HOST", "server"),
    Flag(("--port",), "port", parse_int, "Port to listen on.", "PORT", "server"),
    Flag(
        ("--api-key",),
        "api_key",
        str,
        "Key that clients must send, for all but /health.",
        "KEY",
        "server",
        repeats=True,
    ),
    Flag(("--tokenizer",), "tokenizer", str, "Directory of another tokenizer.", "DIR", "server"),
    Flag(
        ("--chat-template",),
        "chat_template",
        parse_file,
        "File of another chat template.",
        "FILE",
        "server",
    ),
    Flag(
        ("--disable-log-stats",),
        "disable_log_stats",
        None,
        "Leave out the line of figures every ten seconds.",
        section="server",
    ),
    Flag(
        ("--uvicorn-log-level",),
        "uvicorn_log_level",
        str,
        "How much the HTTP server says.",
        "LEVEL",
        "server",
        allowed=LOG_LEVELS,
    ),
    Flag(
        ("--shutdown-timeout",),
        "shutdown_timeout",
        parse_count,
        "Seconds that running requests get to finish after SIGTERM.",
        "SECONDS",
        "server",
    ),
)


def _is_one(value: str) -> bool:
    return value == "1"


_NOT_HERE = "has no effect here and is ignored"
FOREIGN: tuple[Foreign, ...] = (
    Foreign(("--enforce-eager",), f"{_NOT_HERE}: there are no graphs", False, False),
    Foreign(("--compilation-config", "-O"), f"{_NOT_HERE}: there are no graphs", True, False),
    Foreign(("--async-scheduling", "--no-async-scheduling"), _NOT_HERE, False, False),
    Foreign(
        ("--max-num-scheduled-tokens",), f"{_NOT_HERE}: see --max-num-batched-tokens", True, False
    ),
    Foreign(("--prefill-schedule-interval",), _NOT_HERE, True, False),
    Foreign(("--performance-mode",), _NOT_HERE, True, False),
    Foreign(
        ("--enable-log-requests", "--disable-log-requests"),
        f"{_NOT_HERE}: texts are never logged",
        False,
        False,
    ),
    Foreign(
        ("--gpu-memory-utilization",),
        f"{_NOT_HERE}: on a CPU, --kv-cache-memory-bytes sets the size of the KV cache",
        True,
        False,
    ),
    Foreign(
        ("--preemption-mode",),
        "is gone: a preempted sequence is computed again (recompute), and nothing is swapped",
        is_fine=lambda value: value == "recompute",
    ),
    Foreign(
        ("--swap-space",),
        f"{_NOT_HERE}: a preempted sequence is computed again, and nothing is swapped",
        True,
        False,
    ),
    Foreign(
        ("--trust-remote-code",),
        "is refused: no code from a model directory is run; leave it out",
        False,
    ),
    Foreign(
        (
            "--tensor-parallel-size",
            "-tp",
            "--pipeline-parallel-size",
            "-pp",
            "--data-parallel-size",
            "-dp",
        ),
        "may only be 1: one engine is one machine",
        is_fine=_is_one,
    ),
    Foreign(
        ("--quantization", "-q"),
        "is refused: the weights are used as the model stores them; choose a model in that format",
    ),
    Foreign(
        ("--tokenizer-mode",),
        "may only be auto",
        is_fine=lambda value: value == "auto",
    ),
    Foreign(
        ("--max-num-partial-prefills", "--max-long-partial-prefills"),
        "may only be 1 for now",
        is_fine=_is_one,
    ),
    Foreign(
        ("--prefix-caching-hash-algo",),
        "may only be sha256",
        is_fine=lambda value: value == "sha256",
    ),
    Foreign(("--stream-interval",), "may only be 1 for now", is_fine=_is_one),
    Foreign(("--api-server-count",), "may only be 1", is_fine=_is_one),
    Foreign(("--enable-lora",), "is refused: adapters are not supported yet", False),
    Foreign(("--lora-modules",), "is refused: adapters are not supported yet"),
    Foreign(("--speculative-config",), "is refused: speculation is not supported yet"),
    Foreign(("--enable-auto-tool-choice",), "is refused: tool calls are not supported yet", False),
    Foreign(("--tool-call-parser", "--reasoning-parser"), "is refused: not supported yet"),
    Foreign(("--max-num-queued-reqs", "--max-num-queued-tokens"), "is refused: not supported yet"),
    Foreign(("--kv-offloading-size", "--kv-offloading-backend"), "is refused: not supported yet"),
    Foreign(("--uds", "--ssl-keyfile", "--ssl-certfile"), "is refused: not supported yet"),
    Foreign(("--generation-config",), "is refused: not supported yet; send the values per request"),
)
