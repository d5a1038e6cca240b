"""Pages of other servers, written under the names that their documentation gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headway.insight.doctor.page import Page, read_page

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, float("inf"))
TOKEN_BOUNDS = (1.0, 10.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, float("inf"))


@dataclass(frozen=True)
class Seen:
    """A server over `seconds`; states as they were at equal times, everything else per second.

    Times in seconds and lengths in tokens, of every request alike; `stalls`: the share of gaps
    between tokens that are as long as `stall`.
    """

    running: Sequence[float]
    waiting: Sequence[float]
    usage: Sequence[float] | None = None
    prompt: float = 0.0
    cached: float = 0.0
    output: float = 0.0
    steps: float = 0.0
    ended: float = 0.0
    length_share: float = 0.05
    usual_length_share: float = 0.05  # before the watch
    preempted: float = 0.0
    refused: float = 0.0
    queue: float = 0.01
    ttft: float = 0.1
    gap: float = 0.02
    stall: float = 0.0
    stalls: float = 0.0
    prefill: float = 0.1
    decode: float = 4.0
    prompt_length: float = 500.0
    output_length: float = 200.0
    declared: float = 400.0
    reserved: Sequence[float] | None = None
    prefill_busy: float = 0.0  # share of the time
    decode_busy: float = 0.0
    deferred: Sequence[float] | None = None
    adapters: Sequence[tuple[str, str]] | None = None  # running, waiting
    max_loras: int = 0
    seconds: float = 10.0
    life: float = 1000.0  # seconds before the watch, at the same rates
    labels: dict[str, str] = field(default_factory=dict)
    extra: str = ""

    def looks(self, write: Callable[[Seen, int, float], str]) -> list[tuple[Page, float]]:
        """The page at each look, and when it was."""
        last = len(self.running) - 1
        times = [self.life + self.seconds * n / max(1, last) for n in range(last + 1)]
        return [(read_page(write(self, n, at_s)), at_s) for n, at_s in enumerate(times)]


class Writer:
    """Lines of a page."""

    def __init__(self, labels: dict[str, str]) -> None:
        self._labels = labels
        self.lines: list[str] = []

    def add(self, name: str, value: float, **labels: str) -> None:
        named = {**self._labels, **labels}
        inner = ",".join(f'{key}="{text}"' for key, text in named.items())
        self.lines.append(f"{name}{{{inner}}} {value!r}" if inner else f"{name} {value!r}")

    def histogram(
        self, name: str, count: float, values: Sequence[tuple[float, float]], bounds=BOUNDS
    ) -> None:
        """`values` with the share of each."""
        self.lines.append(f"# TYPE {name} histogram")
        for bound in bounds:
            below = sum(share for value, share in values if value <= bound)
            self.add(
                f"{name}_bucket", count * below, le="+Inf" if bound == BOUNDS[-1] else f"{bound}"
            )
        self.add(f"{name}_sum", count * sum(value * share for value, share in values))
        self.add(f"{name}_count", count)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def gaps_of(seen: Seen) -> list[tuple[float, float]]:
    return [(seen.gap, 1 - seen.stalls), (seen.stall or seen.gap, seen.stalls)]


def length_count(seen: Seen, at_s: float) -> float:
    watched_s = at_s - seen.life
    return seen.ended * (seen.usual_length_share * seen.life + seen.length_share * watched_s)


def vllm(seen: Seen, n: int, at_s: float, *, is_old: bool = False) -> str:
    """vLLM as of 0.9 and later; `is_old`: the names before the renaming, without `engine`."""
    page = Writer({"model_name": "m", **({} if is_old else {"engine": "0"}), **seen.labels})
    total = "" if is_old else "_total"
    page.lines.append("# HELP vllm:num_requests_running Number of requests in model execution.")
    page.add("vllm:num_requests_running", seen.running[n])
    page.add("vllm:num_requests_waiting", seen.waiting[n])
    if seen.usage is not None:
        usage = "vllm:gpu_cache_usage_perc" if is_old else "vllm:kv_cache_usage_perc"
        page.add(usage, seen.usage[n])
    if seen.deferred is not None:
        waits = "vllm:num_requests_waiting_by_reason"
        page.add(waits, seen.deferred[n], reason="deferred")
        page.add(waits, seen.waiting[n] - seen.deferred[n], reason="capacity")
    page.add(f"vllm:prompt_tokens{total}", seen.prompt * at_s)
    page.add(f"vllm:generation_tokens{total}", seen.output * at_s)
    page.add(f"vllm:num_preemptions{total}", seen.preempted * at_s)
    page.add(f"vllm:prompt_tokens_cached{total}", seen.cached * at_s)
    at_length = length_count(seen, at_s)
    success = f"vllm:request_success{total}"
    page.add(success, seen.ended * at_s - at_length, finished_reason="stop")
    page.add(success, at_length, finished_reason="length")
    page.add(success, 0.0, finished_reason="abort")
    page.add(f"vllm:admission_rejections{total}", seen.refused * at_s, reason="queue_reqs")
    gap = "vllm:time_per_output_token_seconds" if is_old else "vllm:inter_token_latency_seconds"
    page.histogram(gap, seen.output * at_s, gaps_of(seen))
    count = seen.ended * at_s
    e2e = seen.queue + seen.prefill + seen.decode
    for name, value in (
        ("time_to_first_token_seconds", seen.ttft),
        ("request_queue_time_seconds", seen.queue),
        ("request_prefill_time_seconds", seen.prefill),
        ("request_decode_time_seconds", seen.decode),
        ("e2e_request_latency_seconds", e2e),
    ):
        page.histogram(f"vllm:{name}", count, [(value, 1.0)])
    for name, value in (
        ("request_prompt_tokens", seen.prompt_length),
        ("request_generation_tokens", seen.output_length),
        ("request_params_max_tokens", seen.declared),
    ):
        page.histogram(f"vllm:{name}", count, [(value, 1.0)], TOKEN_BOUNDS)
    per_step = (seen.prompt - seen.cached + seen.output) / seen.steps if seen.steps else 0.0
    page.histogram(
        "vllm:iteration_tokens_total", seen.steps * at_s, [(per_step, 1.0)], TOKEN_BOUNDS
    )
    if seen.adapters is not None:
        for m in range(n + 1):  # each combination that ever was stays, with its time
            running, waiting = seen.adapters[m]
            page.add(
                "vllm:lora_requests_info",
                1.79e9 + m,
                max_lora=str(seen.max_loras),
                running_lora_adapters=running,
                waiting_lora_adapters=waiting,
            )
    page.lines.append('vllm:cache_config_info{block_size="16",num_gpu_blocks="20000"} 1.0')
    return page.text() + seen.extra


def vllm_old(seen: Seen, n: int, at_s: float) -> str:
    return vllm(seen, n, at_s, is_old=True)


def sglang(seen: Seen, n: int, at_s: float) -> str:
    page = Writer({"model_name": "m", "engine_type": "unified", "tp_rank": "0", "pp_rank": "0"})
    page.add("sglang:num_running_reqs", seen.running[n])
    page.add("sglang:num_queue_reqs", seen.waiting[n])
    if seen.deferred is not None:
        page.add("sglang:num_grammar_queue_reqs", seen.deferred[n])
    if seen.usage is not None:
        page.add("sglang:token_usage", seen.usage[n])
        page.add("sglang:num_used_tokens", seen.usage[n] * 161_721)
    page.add("sglang:max_total_num_tokens", 161_721.0)
    page.add("sglang:prompt_tokens_total", seen.prompt * at_s)
    page.add("sglang:generation_tokens_total", seen.output * at_s)
    page.add("sglang:cached_tokens_total", seen.cached * at_s, cache_source="device")
    page.add("sglang:num_retracted_requests_total", seen.preempted * at_s)
    page.add("sglang:num_requests_total", seen.ended * at_s)
    page.add("sglang:num_aborted_requests_total", 0.0)
    page.histogram("sglang:inter_token_latency_seconds", seen.output * at_s, gaps_of(seen))
    count = seen.ended * at_s
    page.histogram("sglang:time_to_first_token_seconds", count, [(seen.ttft, 1.0)])
    page.histogram("sglang:queue_time_seconds", count, [(seen.queue, 1.0)])
    e2e = seen.queue + seen.prefill + seen.decode
    page.histogram("sglang:e2e_request_latency_seconds", count, [(e2e, 1.0)])
    return page.text() + seen.extra


def tgi(seen: Seen, n: int, at_s: float) -> str:
    page = Writer({})
    page.add("tgi_batch_current_size", seen.running[n])
    page.add("tgi_queue_size", seen.waiting[n])
    if seen.reserved is not None:
        page.add("tgi_batch_current_max_tokens", seen.reserved[n])
    count = seen.ended * at_s
    page.add("tgi_request_count", count)
    page.add("tgi_request_success", count)
    for name, value, bounds in (
        ("tgi_request_queue_duration", seen.queue, BOUNDS),
        ("tgi_request_duration", seen.queue + seen.prefill + seen.decode, BOUNDS),
        ("tgi_request_mean_time_per_token_duration", seen.gap, BOUNDS),
        ("tgi_request_input_length", seen.prompt_length, TOKEN_BOUNDS),
        ("tgi_request_generated_tokens", seen.output_length, TOKEN_BOUNDS),
        ("tgi_request_max_new_tokens", seen.declared, TOKEN_BOUNDS),
    ):
        page.histogram(name, count, [(value, 1.0)], bounds)
    for method, busy in (("prefill", seen.prefill_busy), ("decode", seen.decode_busy)):
        page.add("tgi_batch_inference_count", seen.steps * at_s / 2, method=method)
        page.add("tgi_batch_inference_duration_sum", busy * at_s, method=method)
        page.add("tgi_batch_inference_duration_count", seen.steps * at_s / 2, method=method)
    return page.text() + seen.extra


def llama_cpp(seen: Seen, n: int, at_s: float) -> str:
    page = Writer({})
    page.add("llamacpp:requests_processing", seen.running[n])
    page.add("llamacpp:requests_deferred", seen.waiting[n])
    if seen.usage is not None:
        page.add("llamacpp:kv_cache_usage_ratio", seen.usage[n])
    page.add("llamacpp:prompt_tokens_total", seen.prompt * at_s)
    page.add("llamacpp:prompt_seconds_total", seen.prefill_busy * at_s)
    page.add("llamacpp:tokens_predicted_total", seen.output * at_s)
    page.add("llamacpp:tokens_predicted_seconds_total", seen.decode_busy * at_s)
    page.add("llamacpp:n_decode_total", seen.steps * at_s)
    page.add("llamacpp:n_busy_slots_per_decode", 3.1)
    page.add("llamacpp:prompt_tokens_seconds", 410.0)
    page.add("llamacpp:predicted_tokens_seconds", 31.0)
    return page.text() + seen.extra
