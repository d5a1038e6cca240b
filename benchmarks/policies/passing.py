"""What `--skip-blocked-ms` does to waiting: to those who pass, and to those who are passed.

    python -m benchmarks.policies.passing [WORLD ...]

Every world at 1.2 times what it serves, first come first served, five seeds: the mean over them ±
half the range. Of the passed: how many, the longest time between the first and the last that
passed one of them, and by how much one of them was admitted later, at most, than with 0.
"""

from __future__ import annotations

import sys
from statistics import mean
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from benchmarks.policies.ordering import spread
from benchmarks.policies.worlds import SEEDS, WORLDS

from headway.simulator.result import Result

LIMITS_MS = (0, 100, 1_000, 10_000)
Times = npt.NDArray[np.int64]


class Passed(NamedTuple):
    """Of all whom others that came later were admitted before, in order of arrival."""

    is_passed: npt.NDArray[np.bool_]
    span_ns: Times  # between the first who passed it and the last


def passed(admitted_ns: Times) -> Passed:
    """`admitted_ns`: of all requests, in order of arrival."""
    spans = np.zeros(len(admitted_ns), np.int64)
    is_passed = np.zeros(len(admitted_ns), bool)
    for place, admitted in enumerate(admitted_ns):
        later = admitted_ns[place + 1 :]
        passers = later[later < admitted]
        if len(passers):
            is_passed[place] = True
            spans[place] = passers.max() - passers.min()
    return Passed(is_passed, spans)


def main() -> None:
    print("seconds, mean over seeds ± half the range; of the passed the most of all seeds")
    print(
        f"{'world':20} {'ms':>6} {'TTFT p50':>14} {'TTFT p99':>14} {'tokens/s':>9} "
        f"{'passed':>7} {'for at most':>12} {'later by at most':>17}"
    )
    for name in sys.argv[1:] or WORLDS:
        without: list[Result] = []
        for limit_ms in LIMITS_MS:
            runs = [WORLDS[name].run(seed, skip_blocked_ms=limit_ms) for seed in SEEDS]
            without = without or runs
            print(f"{name:20} {limit_ms:6} {_row(runs, without, limit_ms)}", flush=True)


def _row(runs: list[Result], without: list[Result], limit_ms: int) -> str:
    found = [run.summary() for run in runs]
    num_passed, span_ns, later_s = 0, 0, 0.0
    for run, base in zip(runs, without, strict=True):
        is_passed, spans = passed(run.sequences["admitted_ns"])
        num_passed += int(is_passed.sum())
        span_ns = max(span_ns, int(spans.max()))
        later_s = max(later_s, (run.queue_s() - base.queue_s())[is_passed].max(initial=0))
    assert span_ns <= limit_ms * 1_000_000, f"passed for {span_ns} ns, the limit is {limit_ms} ms"
    return (
        f"{spread([s.ttft_s.p50 for s in found])} {spread([s.ttft_s.p99 for s in found])} "
        f"{mean(s.output_tokens_per_second for s in found):9,.0f} "
        f"{num_passed / len(runs):7,.0f} {span_ns / 1e9:10.2f} s {later_s:15.2f} s"
    )


if __name__ == "__main__":
    main()
