"""The scheduler's part of an engine's configuration, by the scheduler's names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headway.core.config import SchedulerConfig

if TYPE_CHECKING:
    from headway.engine.config import EngineConfig

_OUR_NAMES = {
    "ordering": "scheduling_policy",
    "prefill": "prefill_placement",
    "unit": "batching_unit",
    "victim": "preemption_victim",
}


def scheduler_config(
    config: EngineConfig, *, max_num_seqs: int, max_num_batched_tokens: int, max_model_len: int
) -> SchedulerConfig:
    """With sizes that are chosen. Raises ValueError, in the scheduler's words."""
    return SchedulerConfig(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len,
        block_size=config.block_size,
        enable_prefix_caching=config.enable_prefix_caching,
        enable_chunked_prefill=config.enable_chunked_prefill,
        long_prefill_token_threshold=config.long_prefill_token_threshold,
        max_num_partial_prefills=config.max_num_partial_prefills,
        target_itl_ms=config.target_itl_ms,
        kv_policy=config.kv_policy,
        kv_risk=config.kv_risk,
        unit=config.batching_unit,
        prefill=config.prefill_placement,
        ordering=config.scheduling_policy,
        ageing_tokens_per_s=config.ageing_tokens_per_s,
        victim=config.preemption_victim,
        tenant_weights=config.tenant_weights,
        max_tenant_seqs=config.max_tenant_seqs,
        reserve_full_isl=config.scheduler_reserve_full_isl,
        watermark=config.watermark,
        skip_blocked_ms=config.skip_blocked_ms,
    )


def check_scheduler(config: EngineConfig) -> None:
    """Raises ValueError for what does not go together, before a model is loaded for nothing.

    Sizes that nobody gave are taken to be such as refuse nothing.
    """
    max_model_len = config.max_model_len or 2
    try:
        scheduler_config(
            config,
            max_num_seqs=config.max_num_seqs or 1,
            max_num_batched_tokens=config.max_num_batched_tokens or max_model_len,
            max_model_len=max_model_len,
        )
    except ValueError as error:
        raise ValueError(_in_our_names(str(error))) from None


def _in_our_names(message: str) -> str:
    """The scheduler calls some choices otherwise: at the start of a sentence, or after `of`."""
    return re.sub(r"(^|\bof )(\w+)", lambda m: m[1] + _OUR_NAMES.get(m[2], m[2]), message)
