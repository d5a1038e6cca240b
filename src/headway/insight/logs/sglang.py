"""SGLang's lines about its batches, of which there may be many in a second.

Decode batch, #running-req: 32, #token: 11179, token usage: 0.08, …, #queue-req: 0
Prefill batch, #new-seq: 1, #new-token: 158, #cached-token: 0, token usage: 0.08, …
KV cache pool is full. Retract requests. #retracted_reqs: 1, …
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from headway.insight.doctor.readings import Reading
from headway.insight.logs.vllm import NUMBER

MARKS = ("Decode batch", "Prefill batch", "#retracted_reqs")
_WINDOW_S = 10.0
_NUMBERS = {
    name: re.compile(pattern)
    for name, pattern in {
        "running": rf"#running-req: {NUMBER}",
        "waiting": rf"#queue-req: {NUMBER}",
        "tokens": rf"#token: {NUMBER}",
        "usage": rf"(?<!swa )token usage: {NUMBER}",
        "output": rf"gen throughput \(token/s\): {NUMBER}",
        "new": rf"#new-token: {NUMBER}",
        "cached": rf"#cached-token: {NUMBER}",
        "retracted": rf"#retracted_reqs: {NUMBER}",
    }.items()
}
_ENGINE = re.compile(r"\bDP([0-9]{1,6})\b")


@dataclass(slots=True)
class _Window:
    begin_s: float | None = None
    end_s: float | None = None
    states: dict[int, dict[str, float]] = field(default_factory=dict)  # the last of each engine
    rates: dict[int, list[float]] = field(default_factory=dict)  # output tokens per second
    num_new: float = 0.0
    num_cached: float = 0.0
    num_retracted: float = 0.0


class SglangLog:
    """Lines of at least ten seconds make a reading."""

    def __init__(self) -> None:
        self._window = _Window()

    def take(self, text: str, at_s: float | None) -> Reading | None:
        """The reading that this line completes."""
        line = {
            name: float(match[1])
            for name, pattern in _NUMBERS.items()
            if (match := pattern.search(text))
        }
        whole = self._turn(at_s)
        self._add(text, line)
        return whole

    def end(self) -> Reading | None:
        """Of the window under way, if anything in it has a length."""
        window = self._window
        self._window = _Window(begin_s=window.end_s, end_s=window.end_s)
        return _reading(window) if window.states else None

    def _turn(self, at_s: float | None) -> Reading | None:
        window = self._window
        if at_s is None:
            return None
        if window.begin_s is None:
            window.begin_s = at_s
        window.end_s = at_s
        return self.end() if at_s - window.begin_s >= _WINDOW_S else None

    def _add(self, text: str, line: dict[str, float]) -> None:
        window = self._window
        match = _ENGINE.search(text)
        engine = int(match[1]) if match else 0
        window.num_new += line.get("new", 0.0)
        window.num_cached += line.get("cached", 0.0)
        window.num_retracted += line.get("retracted", 0.0)
        if "running" in line:
            window.states[engine] = {**window.states.get(engine, {}), **line}
        if "output" in line:
            window.rates.setdefault(engine, []).append(line["output"])


def _reading(window: _Window) -> Reading:
    states = list(window.states.values())
    interval_s = None
    if window.begin_s is not None and window.end_s is not None and window.end_s > window.begin_s:
        interval_s = window.end_s - window.begin_s
    rate = sum(sum(rates) / len(rates) for rates in window.rates.values())
    usages = [state["usage"] for state in states if "usage" in state]
    tokens = [state["tokens"] for state in states if "tokens" in state]
    is_counted = interval_s is not None
    return Reading(
        at_s=window.end_s,
        interval_s=interval_s,
        num_running=sum(state["running"] for state in states),
        num_waiting=sum(state.get("waiting", 0.0) for state in states),
        kv_usage=sum(usages) / len(usages) if usages else None,
        num_resident_tokens=sum(tokens) if tokens else None,
        num_engines=len(states),
        num_prompt_tokens=window.num_new + window.num_cached if is_counted else None,
        num_cached_tokens=window.num_cached if is_counted else None,
        num_output_tokens=rate * interval_s if interval_s is not None else None,
        num_preemptions=window.num_retracted if is_counted else None,
    )
