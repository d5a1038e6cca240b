"""From the flags, the engine's facts and the model's texts: what the application is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.core.request import SamplingParams
from headway.engine.config import EngineConfig
from headway.flags import FlagError
from headway.server.config import AppSettings, ServerConfig
from headway.wire import EngineFacts

if TYPE_CHECKING:
    from headway.model_text import ModelText

# Those of generation_config.json that vLLM takes for sampling, but for max_new_tokens: how long
# an answer may get is the client's to say.
_DEFAULTABLE = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
SAME_NAME = (
    "max_num_queued_reqs",
    "max_num_queued_tokens",
    "max_tenant_queued_reqs",
    "max_tenant_queued_tokens",
    "queue_full_status",
    "max_queue_time_s",
    "max_request_seconds",
    "default_deadline_s",
    "max_body_bytes",
    "clamp_max_tokens",
    "response_role",
    "default_chat_template_kwargs",
    "chat_template_content_format",
    "trust_request_chat_template",
    "return_tokens_as_token_ids",
    "enable_force_include_usage",
    "enable_per_request_metrics",
    "enable_request_id_headers",
    "enable_tokenizer_info_endpoint",
    "stream_interval",
    "fingerprint_mode",
    "fingerprint_value",
    "enable_log_requests",
    "max_log_len",
    "allowed_origins",
    "allowed_methods",
    "allowed_headers",
    "allow_credentials",
    "root_path",
    "middleware",
    "custom_histogram_buckets",
    "otlp_traces_endpoint",
    "explain_buffer",
)


def app_settings(
    engine: EngineConfig,
    server: ServerConfig,
    facts: EngineFacts,
    text: ModelText,
    sampling: Mapping[str, Any],
) -> AppSettings:
    """`sampling`: the defaults that `sampling_defaults` found."""
    return AppSettings(
        served_model_names=engine.served_model_name or (facts.model,),
        stop_token_ids=text.stop_token_ids | frozenset(facts.stop_token_ids),
        default_sampling=sampling,
        seed=engine.seed,
        api_keys=server.api_key,
        tenant_header=_tenant_header(server),
        is_metrics_open=server.open_metrics,
        is_debug=server.enable_dev_endpoints,
        disable_docs=server.disable_fastapi_docs,
        hidden_paths=server.disable_access_log_for_endpoints,
        is_access_logged=not server.disable_uvicorn_access_log,
        **{name: getattr(server, name) for name in SAME_NAME},
    )


def _tenant_header(server: ServerConfig) -> str | None:
    """Who has one of several keys is the key's tenant, unless a header is trusted by its name."""
    if server.tenant_header is None:
        return "x-tenant-id" if len(server.api_key) < 2 else None
    return None if server.tenant_header == "none" else server.tenant_header


def sampling_defaults(server: ServerConfig, own: Mapping[str, Any]) -> dict[str, Any]:
    """What holds where a request says nothing. `own`: the model's. Raises ValueError."""
    found = {**_base(server.generation_config, own), **server.override_generation_config}
    unknown = sorted(set(server.override_generation_config) - set(_DEFAULTABLE))
    if unknown:
        raise FlagError(
            f"--override-generation-config may set {', '.join(_DEFAULTABLE)}, not {unknown[0]}"
        )
    found = {name: value for name, value in found.items() if value is not None}
    try:
        SamplingParams(**found)
    except (TypeError, ValueError) as error:
        raise FlagError(f"--override-generation-config: {error}") from None
    return found


def _base(source: str, own: Mapping[str, Any]) -> dict[str, Any]:
    if source == "auto":
        return dict(own)
    if source == "vllm":
        return {}
    from headway.model.hf_config import read_generation

    found = read_generation(Path(source))
    return {name: value for name, value in found.items() if name in _DEFAULTABLE}
