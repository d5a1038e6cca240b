"""What an engine is told at start, checked once at the door; defaults are chosen by `sizing`."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.config import KV_RISK
from headway.engine.scheduler_settings import check_scheduler

DTYPES = ("auto", "float32", "bfloat16")
KV_CACHE_DTYPES = ("auto", "float32", "bfloat16", "int8")
QUANTIZATIONS = ("int8", "int4", "gguf")
LOAD_FORMATS = ("auto", "safetensors", "gguf", "dummy")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Names, meanings and defaults are vLLM's where vLLM has them. None: chosen from the machine.

    Raises ValueError with a sentence when a value cannot work.
    """

    model: str | None = None
    served_model_name: tuple[str, ...] = ()
    revision: str | None = None
    download_dir: str | None = None
    load_format: str = "auto"
    dtype: str = "auto"
    quantization: str | None = None  # of the weights; None: as `dtype`
    max_model_len: int | None = None
    seed: int | None = None  # of what requests without one draw; None: 0 offline, else at random
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    max_num_partial_prefills: int = 0  # 1, or 8 with a target
    target_itl_ms: float = 0.0  # off
    scheduling_policy: str = "fcfs"
    ageing_tokens_per_s: int | None = None  # under sjf; None: 50
    tenant_weights: str = ""  # "a=2,b=1"
    max_tenant_seqs: int = 0
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    skip_blocked_ms: int = 0
    block_size: int = 16
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    enable_prefix_caching: bool = True
    kv_cache_dtype: str = "auto"
    kv_policy: str = "on-demand"
    kv_risk: float = KV_RISK  # of `predict`
    batching_unit: str = "step"
    prefill_placement: str = "mixed"
    preemption_victim: str = "auto"  # by the scheduling policy
    num_threads: int | None = None
    max_logprobs: int = 20
    scheduler_cls: str | None = None  # MODULE.CLASS, a Scheduler of one's own
    enable_trace_replay: bool = False
    trace_steps: bool = False  # tell the API process which steps ran when
    record: str | None = None  # file to which arrivals and decisions are written

    def __post_init__(self) -> None:
        _one_of("dtype", self.dtype, DTYPES)
        _one_of("kv_cache_dtype", self.kv_cache_dtype, KV_CACHE_DTYPES)
        if self.quantization is not None:
            _one_of("quantization", self.quantization, QUANTIZATIONS)
        _one_of("load_format", self.load_format, LOAD_FORMATS)
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "num_threads"):
            _at_least_one(name, getattr(self, name))
        for name in ("kv_cache_memory_bytes", "num_gpu_blocks_override", "block_size"):
            _at_least_one(name, getattr(self, name))
        if self.block_size % 16:
            raise ValueError(
                f"block_size must be a multiple of 16 on the CPU, got {self.block_size}"
            )
        if self.max_logprobs < 0:
            raise ValueError(f"max_logprobs must be at least 0, got {self.max_logprobs}")
        check_scheduler(self)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


def _at_least_one(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
