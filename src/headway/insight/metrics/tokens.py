"""Where tokens came from: counters that add up.

prompt_tokens = prompt_tokens_cached + what was computed = the sum of prompt_tokens_by_source
lost to preemptions, of those that resumed = recomputed + refunded
"""

from __future__ import annotations

from headway.insight.metrics.families import Families

COMPUTED, CACHED, TRANSFERRED = "local_compute", "local_cache_hit", "external_kv_transfer"


class TokenMetrics:
    """Prompt tokens count when the first output token comes: the prompt is computed then."""

    def __init__(self, families: Families) -> None:
        self._prompt = families.counter(
            "vllm:prompt_tokens",
            "Prompt tokens, cached or computed, of sequences that got a first token.",
        )
        self._output = families.counter("vllm:generation_tokens", "Output tokens.")
        self._cached = families.counter(
            "vllm:prompt_tokens_cached",
            "Those of prompt_tokens that came from the prefix cache at the first admission.",
        )
        families.counter(
            "vllm:prompt_tokens_recomputed",
            "Prompt tokens found in the prefix cache and computed all the same: always 0, what has "
            "to be computed is not looked up. For preemptions see headway:preemption_recomputed.",
        )
        self._by_source = families.counters(
            "vllm:prompt_tokens_by_source",
            "prompt_tokens by where their keys and values came from.",
            "source",
            (COMPUTED, CACHED, TRANSFERRED),
        )
        self._queries = families.counter(
            "vllm:prefix_cache_queries", "Prompt tokens of admitted sequences."
        )
        self._hits = families.counter(
            "vllm:prefix_cache_hits", "Those of prefix_cache_queries found in the prefix cache."
        )
        self._recomputed = families.counter(
            "headway:preemption_recomputed_tokens",
            "Tokens computed again after preemptions, what the prefix cache gave back not counted.",
        )
        self._refunded = families.counter(
            "headway:preemption_refunded_tokens",
            "Tokens lost to preemptions that the prefix cache gave back.",
        )

    def on_admitted(self, num_prompt_tokens: int, num_cached_tokens: int) -> None:
        self._queries.inc(num_prompt_tokens)
        self._hits.inc(num_cached_tokens)

    def on_prompt_done(self, num_prompt_tokens: int, num_cached_tokens: int) -> None:
        self._prompt.inc(num_prompt_tokens)
        self._cached.inc(num_cached_tokens)
        self._by_source[CACHED].inc(num_cached_tokens)
        self._by_source[COMPUTED].inc(num_prompt_tokens - num_cached_tokens)

    def on_output(self, num_tokens: int) -> None:
        self._output.inc(num_tokens)

    def on_resumed(self, num_recomputed_tokens: int, num_lost_tokens: int) -> None:
        self._recomputed.inc(num_recomputed_tokens)
        self._refunded.inc(num_lost_tokens - num_recomputed_tokens)
