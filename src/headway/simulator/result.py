"""What a run gave: columns of sequences and steps, and what people read off them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.core.config import SchedulerConfig
from headway.core.request import FinishReason
from headway.simulator.collector import BLOCKERS, NEVER, Collector

Column = npt.NDArray[Any]
_BY_THEMSELVES = [
    reason.value for reason in (FinishReason.STOP, FinishReason.LENGTH, FinishReason.REPETITION)
]
PERCENTILES = (50, 90, 95, 99)
NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one figure over all requests, or over all gaps; seconds. NaN where there are none."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float

    @staticmethod
    def of(values: Column, weights: Column | None = None) -> Spread:
        """Percentile p: the least value that p percent do not exceed. Weights are counts."""
        if weights is None:
            weights = np.ones(len(values), np.int64)
        counted = weights > 0
        values, weights = values[counted], weights[counted]
        if not len(values):
            return Spread(NAN, NAN, NAN, NAN, NAN, NAN)
        order = np.argsort(values, kind="stable")
        ordered, reached = values[order], np.cumsum(weights[order])
        total = reached[-1]
        ranks = [int(np.ceil(total * p / 100)) for p in PERCENTILES]
        p50, p90, p95, p99 = (float(ordered[np.searchsorted(reached, rank)]) for rank in ranks)
        mean = float((values * weights).sum() / total)
        return Spread(mean, p50, p90, p95, p99, float(ordered[-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of a run. Rates are per second of `duration_s`.

    Of the accepted requests each is finished, aborted, failed or unfinished: still open when the
    run, or the recording of it, broke off.
    """

    num_requests: int  # that were accepted; with n > 1 each sequence counts
    num_finished: int
    num_refused: int
    num_aborted: int
    num_failed: int
    num_unfinished: int
    duration_s: float  # first arrival to last end, of a request or of a step
    output_tokens_per_second: float
    prompt_tokens_per_second: float  # of prompts that were computed or found, whole
    requests_per_second: float
    num_steps: int
    busy_share: float  # of the time in which a step ran
    peak_batch: int
    mean_batch: float  # over steps
    slot_efficiency: float  # tokens given to taken slots, over steps
    num_preemptions: int
    num_preempted_requests: int
    num_recomputed_tokens: int
    num_recomputed_prompt_tokens: int
    refunded_share: float  # of the tokens that preemptions cost, that the prefix cache gave back
    preempted_s: float  # of all sequences together: from each eviction to the next token
    cache_hit_share: float  # of prompt tokens, at first admissions
    live_share: float  # of held cache that holds a token of a running sequence
    peak_held_share: float  # of all blocks
    ttft_s: Spread
    itl_s: Spread
    tpot_s: Spread
    e2e_s: Spread
    queue_s: Spread

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


class Result:
    """`sequences` and `steps`: columns by name, of equal length, as `pandas.DataFrame` takes them.

    Times are nanoseconds from the start of the run, -1 for what never was.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        num_blocks: int,
        sequences: dict[str, Column],
        steps: dict[str, Column],
        gaps_ns: Column,
        refused: dict[str, str],
        num_refused: int,
    ) -> None:
        self.config = config
        self.num_blocks = num_blocks
        self.sequences = sequences
        self.steps = steps
        self.refused = refused  # request id: why
        self._num_refused = num_refused  # more where several had one id
        self._gaps_ns = gaps_ns

    @staticmethod
    def of(config: SchedulerConfig, num_blocks: int, collector: Collector) -> Result:
        """From what a collector has seen."""
        steps = _unrolled(_columns(collector.steps))
        names = np.array([None if b is None else b.value for b in BLOCKERS], object)
        steps["blocker"] = names[steps["blocker"]]
        refused = {event.request_id: event.reason for event in collector.refused}
        gaps_ns = np.array(collector.gaps_ns, np.int64)
        sequences, num_refused = _columns(collector.sequences), len(collector.refused)
        return Result(config, num_blocks, sequences, steps, gaps_ns, refused, num_refused)

    # ---- Times of requests, in seconds ----

    def ttft_s(self) -> Column:
        """Arrival to first token, of all that got one."""
        return self._between("arrival_ns", "first_token_ns")

    def queue_s(self) -> Column:
        """Arrival to first admission, of all that were admitted."""
        return self._between("arrival_ns", "admitted_ns")

    def e2e_s(self) -> Column:
        """Arrival to end, of all that ended by themselves."""
        return self._between("arrival_ns", "ended_ns", self._finished())

    def tpot_s(self) -> Column:
        """Mean time from token to token, of all that ended with more than one.

        In a static batch the last token comes before the end, which is when the batch has drained.
        """
        rows = self._finished() & (self.sequences["num_output_tokens"] > 1)
        gaps = self.sequences["num_output_tokens"][rows] - 1
        last_ns = self.steps["end_ns"][self.sequences["last_step"][rows]]
        return (last_ns - self.sequences["first_token_ns"][rows]) / 1e9 / gaps

    def itl_s(self) -> tuple[Column, Column]:
        """Times from token to token, and how often each was seen."""
        ends = self.steps["end_ns"]
        apart = np.diff(ends, prepend=ends[:1])
        values = np.concatenate([apart, self._gaps_ns]) / 1e9
        once = np.ones(len(self._gaps_ns), np.int64)
        return values, np.concatenate([self.steps["num_continuing"], once])

    def _finished(self) -> Column:
        return np.isin(self.sequences["reason"].astype(str), _BY_THEMSELVES)

    def _num_ended(self, reason: FinishReason) -> int:
        return int((self.sequences["reason"] == reason.value).sum())

    def _between(self, first: str, last: str, rows: Column | None = None) -> Column:
        rows = self.sequences[last] != NEVER if rows is None else rows
        return (self.sequences[last][rows] - self.sequences[first][rows]) / 1e9

    # ---- The figures ----

    def summary(self) -> Summary:
        """All at once."""
        sequences, steps = self.sequences, self.steps
        duration_s = self._duration_s()
        finished = self._finished()
        held = int(steps["num_held_blocks"].sum()) * self.config.block_size
        step_ns = int((steps["end_ns"] - steps["start_ns"]).sum())
        is_answered, is_admitted = (
            sequences[name] != NEVER for name in ("first_token_ns", "admitted_ns")
        )
        prompts = sequences["num_prompt_tokens"]
        return Summary(
            num_requests=len(finished),
            num_finished=int(finished.sum()),
            num_refused=self._num_refused,
            num_aborted=self._num_ended(FinishReason.ABORT),
            num_failed=self._num_ended(FinishReason.ERROR),
            num_unfinished=int((sequences["ended_ns"] == NEVER).sum()),
            duration_s=duration_s,
            output_tokens_per_second=_per(sequences["num_output_tokens"].sum(), duration_s),
            prompt_tokens_per_second=_per(prompts[is_answered].sum(), duration_s),
            requests_per_second=_per(finished.sum(), duration_s),
            num_steps=len(steps["end_ns"]),
            busy_share=_per(step_ns / 1e9, duration_s),
            peak_batch=int(steps["num_running"].max(initial=0)),
            mean_batch=_per(steps["num_running"].sum(), len(steps["num_running"])),
            slot_efficiency=_per(steps["num_samples"].sum(), steps["num_slots"].sum()),
            num_preemptions=int(sequences["num_preemptions"].sum()),
            num_preempted_requests=int((sequences["num_preemptions"] > 0).sum()),
            num_recomputed_tokens=int(sequences["num_recomputed_tokens"].sum()),
            num_recomputed_prompt_tokens=int(sequences["num_recomputed_prompt_tokens"].sum()),
            refunded_share=_refunded(sequences),
            preempted_s=float(sequences["preempted_ns"].sum()) / 1e9,
            cache_hit_share=_per(sequences["num_cached_tokens"].sum(), prompts[is_admitted].sum()),
            live_share=_per(steps["num_live_tokens"].sum(), held),
            peak_held_share=steps["num_held_blocks"].max(initial=0) / self.num_blocks,
            ttft_s=Spread.of(self.ttft_s()),
            itl_s=Spread.of(*self.itl_s()),
            tpot_s=Spread.of(self.tpot_s()),
            e2e_s=Spread.of(self.e2e_s()),
            queue_s=Spread.of(self.queue_s()),
        )

    def _duration_s(self) -> float:
        arrivals = self.sequences["arrival_ns"]
        if not len(arrivals):
            return 0.0
        first = arrivals.min()
        ends = (self.sequences["ended_ns"], self.steps["end_ns"])
        return float(max(column.max(initial=first) for column in ends) - first) / 1e9


def _columns(rows: object) -> dict[str, Column]:
    return {
        name: np.array(values, object) if isinstance(values, list) else np.asarray(values)
        for name, values in vars(rows).items()
    }


def _unrolled(rows: dict[str, Column]) -> dict[str, Column]:
    """One row for each step, of rows for runs of steps; see StepRows."""
    num_steps = rows.pop("num_steps")
    ends, held = rows.pop("end_ns"), rows.pop("num_held_blocks")
    firsts = np.cumsum(num_steps) - num_steps
    steps = {name: np.repeat(column, num_steps) for name, column in rows.items()}
    later = np.arange(len(ends)) - np.repeat(firsts, num_steps)  # how far into its row each is
    for name in ("decode_attended", "num_live_tokens"):
        steps[name] += later * steps["num_decode_tokens"]
    is_later = later > 0
    steps["start_ns"][is_later] = ends[:-1][is_later[1:]]
    steps["num_continuing"][is_later] = steps["num_decode_tokens"][is_later]
    return {"start_ns": steps.pop("start_ns"), "end_ns": ends, **steps, "num_held_blocks": held}


def _refunded(sequences: dict[str, Column]) -> float:
    lost = float(sequences["num_lost_tokens"].sum())
    return 1 - _per(sequences["num_recomputed_tokens"].sum(), lost) if lost else 0.0


def _per(amount: float, base: float) -> float:
    return float(amount) / float(base) if base else 0.0
