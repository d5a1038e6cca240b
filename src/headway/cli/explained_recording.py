"""Explanations from a recording: decided once more, with the fold that a server has."""

from __future__ import annotations

import heapq

from headway.core.config import SchedulerConfig
from headway.drive.record import StepRecord
from headway.drive.recording import Recording
from headway.insight.explain.explain import explain, glance, names_of
from headway.insight.explain.fold import Account, Explainer
from headway.insight.explain.life import Pool
from headway.insight.explain.report import Explanation, Glance
from headway.replay.exact import replay_exactly
from headway.replay.files import load_recordings
from headway.replay.requests import recorded_config

_REMEMBERED = 10_000  # requests that are over, of which others may have to be told


def explain_recording(path: str, name: str | None, num_slowest: int) -> Explanation | list[Glance]:
    """Raises ValueError with a sentence."""
    wanted = _Wanted(name, num_slowest)
    for recording in load_recordings(path):
        _follow(recording, wanted, path)
    if name is None:
        return [glance(explanation) for explanation in wanted.slowest()]
    if wanted.found is None:
        raise ValueError(f"no request {name!r} is in {path}")
    return wanted.found


def _follow(recording: Recording, wanted: _Wanted, path: str) -> None:
    config = recorded_config(recording.header)
    explainer = Explainer(
        pool_of(config),
        buffer=_REMEMBERED,
        is_delivered_at_end=True,
        on_finished=lambda account: wanted.take(explainer, account, 0),
    )
    replayed = replay_exactly(recording, followers=(explainer,))
    if replayed.difference:
        raise ValueError(
            f"{path} cannot be explained: its decisions are not this scheduler's "
            f"({replayed.difference})"
        )
    ends_ns = (e.end_ns for e in reversed(recording.entries) if isinstance(e, StepRecord))
    end_ns = next(ends_ns, recording.header.start_ns)
    for account in explainer.under_way():
        wanted.take(explainer, account, end_ns)


def pool_of(config: SchedulerConfig) -> Pool:
    """What the fold must know of a scheduler that is set up so."""
    return Pool(
        block_size=config.block_size,
        max_model_len=config.max_model_len,
        reserves=config.kv_policy == "reserve",
        max_tenant_seqs=config.max_tenant_seqs,
    )


class _Wanted:
    """What was asked for, as far as it has been seen; of several of one name the latest."""

    def __init__(self, name: str | None, num_slowest: int) -> None:
        self._names = [] if name is None else names_of(name)
        self._most = num_slowest
        self._slowest: list[tuple[int, int, Explanation]] = []
        self._count = 0
        self.found: Explanation | None = None

    def take(self, explainer: Explainer, account: Account, now_ns: int) -> None:
        """A request that is over, or that the recording leaves as it is at `now_ns`."""
        if self._names:
            if account.request_id in self._names:
                self.found = explain(explainer, account, now_ns)
            return
        e2e_ns = account.e2e_ns(now_ns)
        if len(self._slowest) < self._most or e2e_ns > self._slowest[0][0]:
            self._count += 1
            row = (e2e_ns, -self._count, explain(explainer, account, now_ns))
            heapq.heappush(self._slowest, row)
            if len(self._slowest) > self._most:
                heapq.heappop(self._slowest)

    def slowest(self) -> list[Explanation]:
        return [explanation for _, _, explanation in sorted(self._slowest, reverse=True)]
