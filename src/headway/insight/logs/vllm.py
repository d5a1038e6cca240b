"""The stat line that vLLM writes every ten seconds, of any age, and Headway's, which is like it.

    Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 812.4 tokens/s,
    Running: 83 reqs, Waiting: 41 reqs, Preemptions: 38, GPU KV cache usage: 99.8%, …

Early versions have Pending and Swapped where others have Waiting. Prompt tokens are those computed.
On a CPU vLLM says "CPU KV cache usage" as Headway does; it names its source file before the line.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from headway.insight.doctor.readings import Reading
from headway.insight.logs.preempted import victim_of

MARK = "Avg generation throughput"
_USUAL_INTERVAL_S = 10.0
_LONGEST_INTERVAL_S = 60.0  # beyond it nothing was written for want of work
_MOST_NAMES = 100
NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,6})?)"
_NUMBERS = {
    name: re.compile(pattern)
    for name, pattern in {
        "prompt": rf"Avg prompt throughput: {NUMBER}",
        "output": rf"Avg generation throughput: {NUMBER}",
        "running": rf"Running: {NUMBER} reqs",
        "waiting": rf"(?:Waiting|Pending): {NUMBER} reqs",
        "swapped": rf"Swapped: {NUMBER} reqs",
        "deferred": rf"Deferred: {NUMBER} reqs",
        "preemptions": rf"Preemptions: {NUMBER}",
        "gpu": rf"GPU KV cache usage: {NUMBER}%",
        "cpu": rf"CPU KV cache usage: {NUMBER}%",
        "hits": rf"(?<!External )Prefix cache hit rate: {NUMBER}%",
    }.items()
}
_SOURCE_FILE = re.compile(r"\b\w+\.py:[0-9]{1,6}\]")
_ENGINE = re.compile(r"Engine ([0-9]{1,6}):")


@dataclass(slots=True)
class _Round:
    """One line of each engine, told at about the same time."""

    at_s: float | None = None
    interval_s: float | None = None
    evicted: Counter[str] = field(default_factory=Counter)
    lines: dict[int, dict[str, float]] = field(default_factory=dict)


class VllmLog:
    """Stat lines as readings, one for each round of all engines."""

    def __init__(self) -> None:
        self.is_headway = False
        self.tells_preemptions = False  # a version that does leaves a count of none out
        self._evicted: Counter[str] = Counter()  # by lines since the last stat line
        self._round = _Round()
        self._last_s: dict[int, float] = {}

    def take(self, text: str, at_s: float | None) -> Reading | None:
        """The reading that this line completes."""
        line = {
            name: float(match[1])
            for name, pattern in _NUMBERS.items()
            if (match := pattern.search(text))
        }
        if "running" not in line or "output" not in line:
            return None
        is_named = _SOURCE_FILE.search(text.partition("Avg ")[0]) is not None
        self.is_headway = "cpu" in line and "gpu" not in line and not is_named
        self.tells_preemptions |= self.is_headway or "preemptions" in line
        match = _ENGINE.search(text)
        engine = int(match[1]) if match else 0
        whole = self.end() if engine in self._round.lines else None
        self._add(engine, line, at_s)
        return whole

    def take_preemption(self, text: str) -> None:
        """A line about one; it counts to the next stat line."""
        name = victim_of(text)
        if name is not None and (name in self._evicted or len(self._evicted) < _MOST_NAMES):
            self._evicted[name] += 1

    def end(self) -> Reading | None:
        """The reading of the round under way."""
        finished, self._round = self._round, _Round()
        return _reading(finished, self.is_headway) if finished.lines else None

    def _add(self, engine: int, line: dict[str, float], at_s: float | None) -> None:
        last_s = self._last_s.get(engine)
        interval_s = _USUAL_INTERVAL_S
        if at_s is not None and last_s is not None and 0 < at_s - last_s <= _LONGEST_INTERVAL_S:
            interval_s = at_s - last_s
        if at_s is not None:
            self._last_s[engine] = at_s
        if not self._round.lines:
            self._round.evicted, self._evicted = self._evicted, Counter()
        self._round.lines[engine] = line
        self._round.at_s = at_s
        self._round.interval_s = interval_s


def _reading(told: _Round, is_headway: bool) -> Reading:
    lines, interval_s = list(told.lines.values()), told.interval_s or _USUAL_INTERVAL_S
    computed = _sum(lines, "prompt") * interval_s
    cached = None
    if is_headway:  # whose hit rate is of this interval
        hits = sum(line.get("hits", 0.0) for line in lines) / len(lines) / 100
        cached = computed * hits / (1 - hits) if hits < 1 else None
    has_preemptions = is_headway or any("preemptions" in line for line in lines)
    return Reading(
        at_s=told.at_s,
        interval_s=interval_s,
        num_running=_sum(lines, "running"),
        num_waiting=_sum(lines, "waiting") + _sum(lines, "swapped"),
        num_deferred=_sum(lines, "deferred") if any("deferred" in x for x in lines) else None,
        kv_usage=sum(_usage(line) for line in lines) / len(lines) / 100,
        num_engines=len(lines),
        num_prompt_tokens=computed + (cached or 0.0),
        num_cached_tokens=cached,
        num_output_tokens=_sum(lines, "output") * interval_s,
        num_preemptions=_sum(lines, "preemptions") if has_preemptions else None,
        evicted=told.evicted or None,
    )


def _sum(lines: list[dict[str, float]], name: str) -> float:
    return sum(line.get(name, 0.0) for line in lines)


def _usage(line: dict[str, float]) -> float:
    """Where both are told, one is the swap space, or the device that is not used."""
    return max(line.get("gpu", 0.0), line.get("cpu", 0.0))
