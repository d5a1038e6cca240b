"""Reads a server's log, plain, .gz or .zst, however long: the last while of it, as readings."""

from __future__ import annotations

import dataclasses
from collections import deque
from itertools import islice
from pathlib import Path

from headway.insight.doctor.readings import Observation, Reading
from headway.insight.logs import preempted, sglang, start, vllm
from headway.insight.logs.clock import LogClock
from headway.simulator.workload.traces.text import lines

USUAL_LAST_S = 900.0
_LLAMA = ("print_timing", "update_slots")
_MARKS = tuple(
    mark.encode() for mark in (vllm.MARK, preempted.MARK, *sglang.MARKS, *start.MARKS, *_LLAMA)
)
_MOST_READINGS = 20_000
_LONGEST_SHOWN = 2000  # characters of a line that are looked at
_NUM_SNIFFED = 5000


def observe_log(path: Path | str, last_s: float = USUAL_LAST_S) -> Observation:
    """The last `last_s` seconds of the log's stat lines.

    Raises ValueError with one sentence for a file that cannot be read or has no such line.
    """
    log = _Log()
    for _, line in lines(Path(path)):
        log.take(line)
    log.end()
    if not log.readings:
        raise ValueError(f"{path}: {_why_nothing(log)}")
    return log.observation(str(path), last_s)


def looks_like_log(path: Path | str) -> bool:
    """Whether a line of statistics, or of a start, is among its first ones."""
    log = _Log()
    for _, line in islice(lines(Path(path)), _NUM_SNIFFED):
        log.take(line)
        if log.is_known:
            return True
    return log.is_llama


def _why_nothing(log: _Log) -> str:
    if log.is_llama:
        return (
            "llama.cpp's log does not say who waits for a slot: start it with --metrics and give "
            "its address"
        )
    return (
        "has no line of statistics of a server that is known (vLLM, SGLang, Headway): they come "
        "every few seconds while there is work, unless --disable-log-stats is given"
    )


class _Log:
    def __init__(self) -> None:
        self.readings: deque[Reading] = deque(maxlen=_MOST_READINGS)
        self.is_known = False  # a line has told something
        self.num_readings = 0
        self.num_starts = 0
        self.is_llama = False
        self.first_s: float | None = None
        self._clock = LogClock()
        self._settings = start.Settings()
        self._vllm, self._sglang = vllm.VllmLog(), sglang.SglangLog()
        self._server: str | None = None
        self._num_told = 0  # stat lines since the last start
        self._is_new = False  # nothing has been kept since then

    def take(self, line: bytes) -> None:
        if not any(mark in line for mark in _MARKS):
            return
        text = line[:_LONGEST_SHOWN].decode(errors="replace")
        if vllm.MARK in text:
            at_s = self._clock.read(text.partition("Avg ")[0])
            self._keep(self._vllm.take(text, at_s))
            self._server = "headway" if self._vllm.is_headway else "vllm"
            self._told()
        elif any(mark in text for mark in sglang.MARKS):
            self._keep(self._sglang.take(text, self._clock.read(text.partition("#")[0])))
            self._server = "sglang"
            self._told()
        elif preempted.MARK in text:
            self._vllm.take_preemption(text)
        elif any(mark in text for mark in _LLAMA):
            self.is_llama = True
        else:
            if start.is_start(text):
                self._start()
            self._settings.take(text)

    def end(self) -> None:
        """The readings under way are complete."""
        for part in (self._vllm, self._sglang):
            self._keep(part.end())

    def observation(self, path: str, last_s: float) -> Observation:
        kept, num_idle = self._last(last_s)
        span_s = sum(r.interval_s or 0.0 for r in kept)
        notes = []
        if num_idle:
            moments = "moment" if num_idle == 1 else "moments"
            notes.append(f"{num_idle:,} {moments} without work at its end left out")
        if len(kept) + num_idle < self.num_readings:
            notes.append(
                f"of {self.num_readings:,} moments in the log these are the last {len(kept):,}: "
                "--last takes other seconds"
            )
        if self.first_s is None:
            notes.append("the lines have no times: they are taken to be 10 s apart")
        if self.num_starts > 1:
            notes.append(f"the server was started {self.num_starts} times in this log")
        return Observation(
            source=f"{path}, {len(kept):,} moments, {span_s:,.0f} s",
            server=self._server,
            readings=tuple(dataclasses.replace(r, **self._settings.fields) for r in kept),
            notes=tuple(notes),
        )

    def _last(self, last_s: float) -> tuple[list[Reading], int]:
        """Up to the last moment with work; how many came after it."""
        newest = list(reversed(self.readings))
        num_idle = next((n for n, r in enumerate(newest) if r.num_running or r.num_waiting), 0)
        kept: list[Reading] = []
        for reading in newest[num_idle:]:
            if last_s <= 0 and kept:
                break
            last_s -= reading.interval_s or 0.0
            kept.append(self._with_preemptions(reading))
        return kept[::-1], num_idle

    def _with_preemptions(self, reading: Reading) -> Reading:
        """A count of none is left out by those who tell others."""
        if reading.num_preemptions is None and self._vllm.tells_preemptions:
            return dataclasses.replace(reading, num_preemptions=0.0)
        return reading

    def _keep(self, reading: Reading | None) -> None:
        if reading is None:
            return
        if self._is_new:  # what was before it ran under other settings
            self.readings.clear()
            self._is_new = False
        if self.first_s is None:
            self.first_s = reading.at_s
        at_s = reading.at_s
        if at_s is None:
            at_s = self.num_readings * (reading.interval_s or 0.0)
        self.readings.append(dataclasses.replace(reading, at_s=at_s))
        self.num_readings += 1

    def _told(self) -> None:
        self.is_known = True
        self._num_told += 1

    def _start(self) -> None:
        """Each engine says so once; after a stat line it is another start."""
        self.is_known = True
        if self._num_told or not self.num_starts:
            self.num_starts += 1
        if self._num_told:
            self.end()
            self._num_told = 0
            self._settings.begin_again()
            self._vllm, self._sglang = vllm.VllmLog(), sglang.SglangLog()
            self._is_new = True
