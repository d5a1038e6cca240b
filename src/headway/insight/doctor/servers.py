"""Under which names which server tells what; the present name first, former ones behind it.

Counters are found with `_total` behind the name and without it. `docs/guides/doctor.md` says from
which releases the names are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Names = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A metric with a label whose values are told apart; `words` are ours for them."""

    metric: str
    label: str
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A kind of server: `prefix` begins the names of its metrics, with `_` for `:`.

    `late`: counts that move when a request ends, and not while it runs. `digits`: that a figure is
    printed with, where it is not printed whole.
    """

    name: str
    prefix: str
    states: Names
    shares: Names = field(default_factory=dict)
    counts: Names = field(default_factory=dict)
    distributions: Names = field(default_factory=dict)
    settings: Names = field(default_factory=dict)
    waiting_for: Tally | None = None
    deferred: Tally | None = None
    ended: Tally | None = None
    phases: Tally | None = None  # time of steps by "prefill" and "decode"
    late: tuple[str, ...] = ()
    digits: int | None = None
    counts_cached_apart: bool = False  # the prompt tokens are without those of the prefix cache
    waits_for_slots_alone: bool = False  # whoever waits waits for a slot
    reserves: bool | None = None


_VLLM_ENDED = Tally(metric="vllm_request_success", label="finished_reason")
VLLM = Server(
    name="vllm",
    prefix="vllm_",
    states={
        "num_running": ("vllm_num_requests_running",),
        "num_waiting": ("vllm_num_requests_waiting",),
    },
    shares={"kv_usage": ("vllm_kv_cache_usage_perc", "vllm_gpu_cache_usage_perc")},
    counts={
        "num_prompt_tokens": ("vllm_prompt_tokens",),
        "num_cached_tokens": ("vllm_prompt_tokens_cached",),
        "num_output_tokens": ("vllm_generation_tokens",),
        "num_preemptions": ("vllm_num_preemptions",),
        "num_steps": ("vllm_iteration_tokens_total_count",),
        "num_refused": ("vllm_admission_rejections",),
    },
    distributions={
        "ttft_s": ("vllm_time_to_first_token_seconds",),
        "itl_s": ("vllm_inter_token_latency_seconds", "vllm_time_per_output_token_seconds"),
        "queue_s": ("vllm_request_queue_time_seconds",),
        "prefill_s": ("vllm_request_prefill_time_seconds",),
        "decode_s": ("vllm_request_decode_time_seconds",),
        "e2e_s": ("vllm_e2e_request_latency_seconds",),
        "prompt_tokens": ("vllm_request_prompt_tokens",),
        "output_tokens": ("vllm_request_generation_tokens",),
        "max_tokens": ("vllm_request_params_max_tokens",),
        "step_tokens": ("vllm_iteration_tokens_total",),
    },
    deferred=Tally(metric="vllm_num_requests_waiting_by_reason", label="reason"),
    ended=_VLLM_ENDED,
    reserves=False,
)
HEADWAY = Server(
    name="headway",
    prefix="headway_",
    states={
        **VLLM.states,
        "num_resident_tokens": ("headway_resident_tokens",),
        "num_backlog_tokens": ("headway_backlog_tokens",),
    },
    shares=VLLM.shares,
    counts={
        **VLLM.counts,
        "num_recomputed_tokens": ("headway_preemption_recomputed_tokens",),
        "busy_s": ("headway_step_seconds_sum",),
    },
    distributions=VLLM.distributions,
    waiting_for=Tally(metric="headway_waiting_requests", label="reason"),
    deferred=VLLM.deferred,
    ended=_VLLM_ENDED,
)
SGLANG = Server(
    name="sglang",
    prefix="sglang_",
    states={
        "num_running": ("sglang_num_running_reqs",),
        "num_waiting": ("sglang_num_queue_reqs",),
        "num_deferred": ("sglang_num_grammar_queue_reqs",),
        "num_resident_tokens": ("sglang_num_used_tokens",),
    },
    shares={"kv_usage": ("sglang_token_usage",)},
    counts={
        "num_prompt_tokens": ("sglang_prompt_tokens",),
        "num_cached_tokens": ("sglang_cached_tokens",),
        "num_output_tokens": ("sglang_generation_tokens",),
        "num_preemptions": ("sglang_num_retracted_requests",),
    },
    distributions={
        "ttft_s": ("sglang_time_to_first_token_seconds",),
        "itl_s": ("sglang_inter_token_latency_seconds", "sglang_time_per_output_token_seconds"),
        "queue_s": ("sglang_queue_time_seconds",),
        "e2e_s": ("sglang_e2e_request_latency_seconds",),
    },
    settings={
        "num_kv_tokens": ("sglang_max_total_num_tokens",),
        "max_num_seqs": ("sglang_max_running_requests",),
        "max_loras": ("sglang_lora_pool_slots_total",),
    },
    late=("num_prompt_tokens", "num_cached_tokens", "num_output_tokens"),
)
TGI = Server(
    name="tgi",
    prefix="tgi_",
    states={
        "num_running": ("tgi_batch_current_size",),
        "num_waiting": ("tgi_queue_size",),
        "num_reserved_tokens": ("tgi_batch_current_max_tokens",),
    },
    counts={
        "num_prompt_tokens": ("tgi_request_input_length_sum",),
        "num_output_tokens": ("tgi_request_generated_tokens_sum",),
        "num_steps": ("tgi_batch_inference_count",),
    },
    distributions={
        "queue_s": ("tgi_request_queue_duration",),
        "itl_s": ("tgi_request_mean_time_per_token_duration",),
        "e2e_s": ("tgi_request_duration",),
        "prompt_tokens": ("tgi_request_input_length",),
        "output_tokens": ("tgi_request_generated_tokens",),
        "max_tokens": ("tgi_request_max_new_tokens",),
    },
    phases=Tally(metric="tgi_batch_inference_duration_sum", label="method"),
    late=("num_prompt_tokens", "num_output_tokens"),
    reserves=True,
)
LLAMA_CPP = Server(
    name="llama.cpp",
    prefix="llamacpp_",
    states={
        "num_running": ("llamacpp_requests_processing",),
        "num_waiting": ("llamacpp_requests_deferred",),
        "num_resident_tokens": ("llamacpp_kv_cache_tokens",),
    },
    shares={"kv_usage": ("llamacpp_kv_cache_usage_ratio",)},
    counts={
        "num_prompt_tokens": ("llamacpp_prompt_tokens",),
        "num_cached_tokens": ("llamacpp_prompt_tokens_cached",),
        "num_output_tokens": ("llamacpp_tokens_predicted",),
        "num_steps": ("llamacpp_n_decode",),
        "prefill_busy_s": ("llamacpp_prompt_seconds",),
        "decode_busy_s": ("llamacpp_tokens_predicted_seconds",),
    },
    late=("num_output_tokens", "decode_busy_s"),
    digits=6,
    counts_cached_apart=True,
    waits_for_slots_alone=True,
)
# Headway shows vLLM's names as well, so it is looked for first.
SERVERS = (HEADWAY, VLLM, SGLANG, TGI, LLAMA_CPP)
