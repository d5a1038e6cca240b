"""What the API process is told at start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOG_LEVELS = ("critical", "error", "warning", "info", "debug", "trace")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The front-end flags; names and meanings are vLLM's. `shutdown_timeout` is in seconds.

    Raises ValueError with a sentence when a value cannot work.
    """

    host: str = "0.0.0.0"
    port: int = 8000
    api_key: tuple[str, ...] = ()
    tokenizer: str | None = None
    chat_template: Path | None = None
    disable_log_stats: bool = False
    uvicorn_log_level: str = "info"
    shutdown_timeout: int = 30

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port must be from 0 to 65535, got {self.port}")
        if self.shutdown_timeout < 0:
            raise ValueError(f"shutdown_timeout must be at least 0, got {self.shutdown_timeout}")
        if self.uvicorn_log_level not in LOG_LEVELS:
            allowed = ", ".join(LOG_LEVELS)
            raise ValueError(
                f"uvicorn_log_level must be one of {allowed}; got {self.uvicorn_log_level!r}"
            )
        if not all(self.api_key):
            raise ValueError("api_key must not be empty: give a key or leave the flag out")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSettings:
    """What the routes need beside the engine.

    `default_sampling` (from the model's generation_config) holds where the client says nothing.
    `stop_token_ids` end every sequence unless the client asks to ignore the end of sequence.
    """

    served_model_names: tuple[str, ...]
    stop_token_ids: frozenset[int]
    default_sampling: Mapping[str, Any] = field(default_factory=dict)
    api_keys: tuple[str, ...] = ()
    is_metrics_open: bool = False  # /metrics needs no key
    # Brakes; None is no limit. Seconds, bytes.
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    queue_full_status: int = 503
    max_queue_time_s: float | None = None
    max_request_seconds: float | None = None
    default_deadline_s: float | None = None
    max_body_bytes: int = 32 << 20
    clamp_max_tokens: bool = False  # to what the context leaves, instead of refusing
    # What answers look like.
    response_role: str = "assistant"
    default_chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    chat_template_content_format: str = "auto"
    trust_request_chat_template: bool = False
    return_tokens_as_token_ids: bool = False
    enable_force_include_usage: bool = False
    enable_per_request_metrics: bool = False
    enable_request_id_headers: bool = False
    enable_server_load_tracking: bool = False
    enable_tokenizer_info_endpoint: bool = False
    stream_interval: int = 1  # tokens of a choice between two chunks
    fingerprint_mode: str = "full"
    is_debug: bool = False  # open /reset_prefix_cache
    # What is told to others.
    enable_log_requests: bool = False
    max_log_len: int | None = None  # characters of a prompt that may be logged; None: none at all
    allowed_origins: tuple[str, ...] = ()
    allowed_methods: tuple[str, ...] = ("*",)
    allowed_headers: tuple[str, ...] = ("*",)
    root_path: str = ""
    disable_docs: bool = False
