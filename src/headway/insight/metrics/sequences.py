"""What sequences went through: counters and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.core.events import (
    Aborted,
    Admitted,
    Advanced,
    Event,
    Preempted,
    Queued,
    Rejected,
    Resumed,
    Retired,
)
from headway.core.request import FinishReason, Request
from headway.insight.arrivals import Arrival, Arrivals
from headway.insight.metrics import buckets
from headway.insight.metrics.families import Families
from headway.insight.metrics.tokens import TokenMetrics
from headway.simulator.bill import PreemptionBill

_NS = 1e9


@dataclass(slots=True, eq=False)
class _Siblings:
    """The sequences of one request: how many have not ended, and the longest output so far."""

    num_left: int
    max_output_tokens: int = 0


@dataclass(slots=True, eq=False)
class _Life:
    """What one sequence has been through; 0 ns: not yet."""

    request: Request
    siblings: _Siblings
    arrival_ns: int
    num_cached_tokens: int = 0
    admitted_ns: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0
    num_output_tokens: int = 0
    bill: PreemptionBill = field(default_factory=PreemptionBill)


class SequenceMetrics:
    """A fold over events. Sequences count, not requests: n of them for n choices."""

    def __init__(self, families: Families) -> None:
        self._arrivals = Arrivals()
        self._siblings: dict[str, _Siblings] = {}
        self._lives: dict[int, _Life] = {}
        self._num_new_tokens = 0  # of the turn that is being told
        self._tokens = TokenMetrics(families)
        self._make_times(families)
        self._make_sizes(families)
        self._preemptions = families.counter("vllm:num_preemptions", "Preemptions.")
        self._preempted_time = families.counter(
            "headway:preemption_seconds",
            "Time of sequences from an eviction to the next token, or to the end.",
        )
        self._success = families.counters(
            "vllm:request_success",
            "Sequences that ended, by reason; every accepted one does so once.",
            "finished_reason",
            [reason.value for reason in FinishReason],
        )

    def __len__(self) -> int:
        """What has not ended yet."""
        return len(self._arrivals) + len(self._lives) + len(self._siblings)

    def on_submitted(self, request: Request, now_ns: int) -> None:
        self._arrivals.submit(request, now_ns)
        self._params_n.observe(request.sampling.n)
        if request.sampling.max_tokens is not None:
            self._params_max_tokens.observe(request.sampling.max_tokens)

    def on_events(self, events: Sequence[Event], now_ns: int) -> int:
        """Returns the tokens that they complete: output tokens, and prompts at their first."""
        num_tokens = sum(self._fold(event, now_ns) for event in events)
        self._tokens.on_output(self._num_new_tokens)
        self._num_new_tokens = 0
        return num_tokens

    def _fold(self, event: Event, now_ns: int) -> int:
        match event:
            case Rejected():
                self._arrivals.answered(event.request_id)
            case Queued():
                self._on_queued(event)
            case _ if life := self._lives.get(event.sequence_id):
                return self._fold_life(life, event, now_ns)
        return 0

    def _fold_life(self, life: _Life, event: Event, now_ns: int) -> int:
        match event:
            case Admitted():
                self._on_admitted(life, event, now_ns)
            case Resumed():
                life.bill.resumed(event)
                self._tokens.on_resumed(event.num_recomputed_tokens, life.bill.num_lost_latest)
            case Preempted():
                life.bill.preempted(event, now_ns)
                self._preemptions.inc()
            case Advanced():
                return self._on_advanced(life, len(event.token_ids), now_ns)
            case Retired() | Aborted():
                self._on_ended(life, event, now_ns)
        return 0

    def _on_queued(self, event: Queued) -> None:
        arrival: Arrival | None = self._arrivals.queued(event)
        if arrival is None:
            return
        request = arrival.request
        if event.index == 0:
            self._siblings[event.request_id] = _Siblings(request.sampling.n)
        siblings = self._siblings[event.request_id]
        self._lives[event.sequence_id] = _Life(request, siblings, arrival.arrival_ns)

    def _on_admitted(self, life: _Life, event: Admitted, now_ns: int) -> None:
        life.admitted_ns = now_ns
        life.num_cached_tokens = event.num_cached_tokens
        self._queue_time.observe((now_ns - life.arrival_ns) / _NS)
        self._tokens.on_admitted(life.request.num_prompt_tokens, event.num_cached_tokens)

    def _on_advanced(self, life: _Life, num_tokens: int, now_ns: int) -> int:
        num_prompt_tokens = 0
        if life.first_token_ns == 0:
            life.first_token_ns = now_ns
            num_prompt_tokens = life.request.num_prompt_tokens
            self._ttft.observe((now_ns - life.arrival_ns) / _NS)
            self._tokens.on_prompt_done(num_prompt_tokens, life.num_cached_tokens)
        else:
            self._itl.observe((now_ns - life.last_token_ns) / _NS)
        life.last_token_ns = now_ns
        self._lost_time(life, now_ns)
        life.num_output_tokens += num_tokens
        self._num_new_tokens += num_tokens
        return num_prompt_tokens + num_tokens

    def _on_ended(self, life: _Life, event: Retired | Aborted, now_ns: int) -> None:
        del self._lives[event.sequence_id]
        self._lost_time(life, now_ns)
        self._success[event.reason.value].inc()
        self._e2e.observe((now_ns - life.arrival_ns) / _NS)
        self._prompt_length.observe(life.request.num_prompt_tokens)
        self._output_length.observe(life.num_output_tokens)
        self._preemptions_each.observe(life.bill.num_preemptions)
        if life.first_token_ns:
            self._observe_phases(life)
        self._leave_siblings(life, event.request_id)

    def _lost_time(self, life: _Life, now_ns: int) -> None:
        if life.bill.num_preemptions and (lost_ns := life.bill.got_on(now_ns)):
            self._preempted_time.inc(lost_ns / _NS)

    def _observe_phases(self, life: _Life) -> None:
        """Only of sequences that got a token, so that all these counts agree with TTFT's."""
        decode_s = (life.last_token_ns - life.first_token_ns) / _NS
        self._prefill_time.observe((life.first_token_ns - life.admitted_ns) / _NS)
        self._decode_time.observe(decode_s)
        self._inference_time.observe((life.last_token_ns - life.admitted_ns) / _NS)
        self._computed_length.observe(life.request.num_prompt_tokens - life.num_cached_tokens)
        if life.num_output_tokens > 1:
            self._tpot.observe(decode_s / (life.num_output_tokens - 1))

    def _leave_siblings(self, life: _Life, request_id: str) -> None:
        siblings = life.siblings
        siblings.max_output_tokens = max(siblings.max_output_tokens, life.num_output_tokens)
        siblings.num_left -= 1
        if siblings.num_left:
            return
        self._longest_output.observe(siblings.max_output_tokens)
        if self._siblings.get(request_id) is siblings:
            del self._siblings[request_id]

    def _make_times(self, families: Families) -> None:
        self._ttft = families.histogram(
            "vllm:time_to_first_token_seconds",
            "From arrival to the first token, once for every sequence that got one.",
            buckets.TIME_TO_FIRST_TOKEN,
        )
        self._itl = families.histogram(
            "vllm:inter_token_latency_seconds",
            "Between two tokens of a sequence, a preemption in between included.",
            buckets.INTER_TOKEN_LATENCY,
        )
        families.alias("vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds")
        self._tpot = families.histogram(
            "vllm:request_time_per_output_token_seconds",
            "Decode time per token after the first, once per sequence of two tokens or more.",
            buckets.INTER_TOKEN_LATENCY,
        )
        phase = buckets.REQUEST_LATENCY
        self._e2e = families.histogram(
            "vllm:e2e_request_latency_seconds", "Arrival to end, however it ended.", phase
        )
        self._queue_time = families.histogram(
            "vllm:request_queue_time_seconds", "Arrival to first admission.", phase
        )
        self._prefill_time = families.histogram(
            "vllm:request_prefill_time_seconds", "First admission to first token.", phase
        )
        self._decode_time = families.histogram(
            "vllm:request_decode_time_seconds", "First token to last token.", phase
        )
        self._inference_time = families.histogram(
            "vllm:request_inference_time_seconds", "First admission to last token.", phase
        )

    def _make_sizes(self, families: Families) -> None:
        lengths = buckets.REQUEST_TOKENS
        self._prompt_length = families.histogram(
            "vllm:request_prompt_tokens", "Prompt tokens of a sequence that ended.", lengths
        )
        self._output_length = families.histogram(
            "vllm:request_generation_tokens", "Output tokens of a sequence that ended.", lengths
        )
        self._computed_length = families.histogram(
            "vllm:request_prefill_kv_computed_tokens",
            "Prompt tokens that the prefix cache did not give, of an ended sequence that got a "
            "token.",
            lengths,
        )
        self._longest_output = families.histogram(
            "vllm:request_max_num_generation_tokens",
            "Output tokens of the longest of a request's n sequences, once all have ended.",
            lengths,
        )
        self._params_max_tokens = families.histogram(
            "vllm:request_params_max_tokens", "max_tokens of a request.", lengths
        )
        self._params_n = families.histogram(
            "vllm:request_params_n", "Choices asked for by a request.", buckets.REQUEST_PARAMS_N
        )
        self._preemptions_each = families.histogram(
            "vllm:request_num_preemptions",
            "Preemptions of a sequence that ended.",
            buckets.PREEMPTIONS,
        )
