"""What the API process is told at start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOG_LEVELS = ("critical", "error", "warning", "info", "debug", "trace")
LOG_FORMATS = ("text", "json")
CONTENT_FORMATS = ("auto", "string", "openai")
FINGERPRINT_MODES = ("full", "hash", "custom", "none")
QUEUE_FULL_STATUSES = (429, 503)
# What the server gives a chat template itself.
TEMPLATE_VARIABLES = frozenset(
    {
        "messages",
        "add_generation_prompt",
        "continue_final_message",
        "tools",
        "documents",
        "chat_template",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The front-end flags; names and meanings are vLLM's where vLLM has them.

    Times are in seconds, sizes in bytes; None is no limit. Raises ValueError with a sentence when
    a value cannot work.
    """

    # Where it listens.
    host: str = "0.0.0.0"
    port: int = 8000
    uds: str | None = None
    root_path: str = ""
    ssl_keyfile: Path | None = None
    ssl_certfile: Path | None = None
    ssl_ca_certs: Path | None = None
    ssl_cert_reqs: int = 0
    ssl_ciphers: str | None = None
    # Who may come in.
    api_key: tuple[str, ...] = ()
    api_key_file: Path | None = None
    open_metrics: bool = False
    allowed_origins: tuple[str, ...] = ()
    allowed_methods: tuple[str, ...] = ("*",)
    allowed_headers: tuple[str, ...] = ("*",)
    allow_credentials: bool = False
    middleware: tuple[str, ...] = ()
    # How much may come in.
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    max_tenant_queued_reqs: int | None = None
    max_tenant_queued_tokens: int | None = None
    tenant_header: str | None = None  # None: x-tenant-id unless there are several keys
    queue_full_status: int = 503
    max_queue_time_s: float | None = None
    max_request_seconds: float | None = None
    default_deadline_s: float | None = None
    max_body_bytes: int = 32 << 20
    clamp_max_tokens: bool = False
    max_connections: int = 4096
    h11_max_incomplete_event_size: int = 64 << 10
    http_read_timeout_s: float = 30.0
    http_write_timeout_s: float = 30.0
    # Texts.
    tokenizer: str | None = None
    chat_template: str | None = None
    chat_template_content_format: str = "auto"
    default_chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    trust_request_chat_template: bool = False
    response_role: str = "assistant"
    generation_config: str = "auto"
    override_generation_config: Mapping[str, Any] = field(default_factory=dict)
    # What answers look like.
    return_tokens_as_token_ids: bool = False
    enable_force_include_usage: bool = False
    enable_per_request_metrics: bool = False
    enable_request_id_headers: bool = False
    enable_tokenizer_info_endpoint: bool = False
    enable_dev_endpoints: bool = False
    disable_fastapi_docs: bool = False
    stream_interval: int = 1
    fingerprint_mode: str = "full"
    fingerprint_value: str | None = None
    # What is told to others.
    disable_log_stats: bool = False
    uvicorn_log_level: str = "info"
    log_format: str = "text"
    disable_uvicorn_access_log: bool = False
    disable_access_log_for_endpoints: tuple[str, ...] = ()
    enable_log_requests: bool = False
    max_log_len: int | None = None
    otlp_traces_endpoint: str | None = None
    explain_buffer: int = 10_000
    custom_histogram_buckets: Mapping[str, Sequence[float]] = field(default_factory=dict)
    # How it lives and leaves.
    shutdown_timeout: int = 30
    health_timeout_s: float = 10.0
    engine_restart_limit: int | None = None

    def __post_init__(self) -> None:
        _check_numbers(self)
        _one_of("uvicorn_log_level", self.uvicorn_log_level, LOG_LEVELS)
        _one_of("log_format", self.log_format, LOG_FORMATS)
        _one_of("chat_template_content_format", self.chat_template_content_format, CONTENT_FORMATS)
        _one_of("fingerprint_mode", self.fingerprint_mode, FINGERPRINT_MODES)
        _one_of("queue_full_status", self.queue_full_status, QUEUE_FULL_STATUSES)
        _require(self.ssl_cert_reqs in (0, 1, 2), "ssl_cert_reqs must be 0, 1 or 2")
        begins_well = not self.root_path or self.root_path.startswith("/")
        _require(begins_well, f"root_path must begin with /, got {self.root_path!r}")
        if not all(self.api_key):
            raise ValueError("api_key must not be empty: give a key or leave the flag out")
        _check_together(self)
        if self.custom_histogram_buckets:
            from headway.insight.metrics.buckets import check_buckets  # seldom asked for

            check_buckets(self.custom_histogram_buckets)


def _check_numbers(config: ServerConfig) -> None:
    _require(0 <= config.port <= 65535, f"port must be from 0 to 65535, got {config.port}")
    for name in ("shutdown_timeout", "max_log_len", "explain_buffer", "engine_restart_limit"):
        value = getattr(config, name)
        _require(value is None or value >= 0, f"{name} must be at least 0, got {value}")
    for name in (
        "max_num_queued_reqs",
        "max_num_queued_tokens",
        "max_tenant_queued_reqs",
        "max_tenant_queued_tokens",
        "max_body_bytes",
        "max_connections",
        "h11_max_incomplete_event_size",
        "stream_interval",
    ):
        value = getattr(config, name)
        _require(value is None or value >= 1, f"{name} must be at least 1, got {value}")
    for name in (
        "max_queue_time_s",
        "max_request_seconds",
        "default_deadline_s",
        "http_read_timeout_s",
        "http_write_timeout_s",
        "health_timeout_s",
    ):
        value = getattr(config, name)
        _require(value is None or value > 0, f"{name} must be greater than 0, got {value}")


def _check_together(config: ServerConfig) -> None:
    if (config.ssl_keyfile is None) != (config.ssl_certfile is None):
        raise ValueError("ssl_keyfile and ssl_certfile go together: give both or neither")
    is_tls = config.ssl_certfile is not None
    for name in ("ssl_ca_certs", "ssl_ciphers"):
        if getattr(config, name) is not None and not is_tls:
            raise ValueError(f"{name} needs --ssl-keyfile and --ssl-certfile")
    if config.ssl_cert_reqs and config.ssl_ca_certs is None:
        raise ValueError("ssl_cert_reqs needs --ssl-ca-certs: who may sign clients' certificates")
    if (config.fingerprint_mode == "custom") != (config.fingerprint_value is not None):
        raise ValueError("fingerprint_mode custom and --fingerprint-value go together")
    for name in TEMPLATE_VARIABLES.intersection(config.default_chat_template_kwargs):
        raise ValueError(f"default_chat_template_kwargs may not set {name}: the server does")
    if config.allow_credentials and "*" in config.allowed_origins:
        raise ValueError("allow_credentials needs --allowed-origins to name its origins, not *")


def _one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        listed = ", ".join(str(one) for one in allowed)
        raise ValueError(f"{name} must be one of {listed}; got {value!r}")


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise ValueError(sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSettings:
    """What the routes need beside the engine.

    `default_sampling` (from the model's generation_config) holds where the client says nothing.
    `stop_token_ids` end every sequence unless the client asks to ignore the end of sequence.
    """

    served_model_names: tuple[str, ...]
    stop_token_ids: frozenset[int]
    default_sampling: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None  # draws the seeds of requests that bring none; None: at random
    api_keys: tuple[str, ...] = ()
    is_metrics_open: bool = False  # /metrics needs no key
    # Brakes; None is no limit. Seconds, bytes.
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    max_tenant_queued_reqs: int | None = None
    max_tenant_queued_tokens: int | None = None
    tenant_header: str | None = "x-tenant-id"  # None: no header names a tenant
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
    enable_tokenizer_info_endpoint: bool = False
    stream_interval: int = 1  # tokens of a choice between two chunks
    fingerprint_mode: str = "full"  # full, hash, custom or none
    fingerprint_value: str | None = None  # what custom says
    is_debug: bool = False  # open /reset_prefix_cache
    # What is told to others.
    enable_log_requests: bool = False
    max_log_len: int | None = None  # characters of a prompt that may be logged; None: none at all
    hidden_paths: tuple[str, ...] = ()  # not in the access log
    is_access_logged: bool = True
    allowed_origins: tuple[str, ...] = ()  # of browsers; none: CORS is closed
    allow_credentials: bool = False
    allowed_methods: tuple[str, ...] = ("*",)
    allowed_headers: tuple[str, ...] = ("*",)
    root_path: str = ""
    disable_docs: bool = False
    middleware: tuple[str, ...] = ()  # import paths of ASGI classes or functions, outermost last
    custom_histogram_buckets: Mapping[str, Sequence[float]] = field(default_factory=dict)
    otlp_traces_endpoint: str | None = None
    explain_buffer: int = 10_000  # requests that are over and can be explained; 0: none can
