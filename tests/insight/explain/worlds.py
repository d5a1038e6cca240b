"""Simulated runs that are explained, and the same runs recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from headway.core.config import SchedulerConfig
from headway.drive.recorder import Recorder
from headway.drive.recording import Recording, RecordingHeader, read_recordings, write_line
from headway.insight.explain.decode_time import ModelDecodeTimes
from headway.insight.explain.explain import explain
from headway.insight.explain.fold import Account, Explainer
from headway.insight.explain.life import Pool
from headway.insight.explain.report import PARTS, Explanation
from headway.replay.exact import replay_exactly
from headway.simulator.result import Result
from headway.simulator.simulate import simulate
from headway.simulator.workload.base import ClientRequest
from tests.simulator.worlds import Listed, Log, PerToken

MODEL = PerToken(step=1_000_000, token=20_000, attended=50)


@dataclass
class Explained:
    explanations: dict[str, Explanation]
    result: Result
    log: Log
    lines: list[str]

    def __getitem__(self, name: int | str) -> Explanation:
        return self.explanations[str(name)]

    @property
    def recording(self) -> Recording:
        [recording] = read_recordings(self.lines)
        return recording


def pool_of(config: SchedulerConfig) -> Pool:
    return Pool(
        block_size=config.block_size,
        max_model_len=config.max_model_len,
        reserves=config.kv_policy == "reserve",
        max_tenant_seqs=config.max_tenant_seqs,
    )


class Explaining:
    """An explainer that explains each request when it is over."""

    def __init__(self, config: SchedulerConfig, *, is_exact: bool) -> None:
        self.found: dict[str, Explanation] = {}
        times = ModelDecodeTimes(MODEL) if is_exact else None
        self.explainer = Explainer(
            pool_of(config),
            buffer=10_000,
            decode_times=times,
            is_delivered_at_end=True,
            on_finished=self.finished,
        )

    def finished(self, account: Account) -> None:
        explanation = explain(self.explainer, account, 0)
        check_sums(explanation)
        self.found[account.request_id] = explanation


def explained(
    config: SchedulerConfig,
    requests: Iterable[ClientRequest],
    num_blocks: int,
    *,
    is_exact: bool = True,
    is_recorded: bool = False,
) -> Explained:
    explaining, log = Explaining(config, is_exact=is_exact), Log()
    settings = {k: v for k, v in asdict(config).items() if k != "prefix_salt"}
    header = RecordingHeader(start_ns=0, num_blocks=num_blocks, scheduler=settings, model={})
    lines = [write_line(header)]
    recorder = Recorder(lines.append, salt=b"salt", block_size=config.block_size)
    result = simulate(
        config,
        Listed(requests),
        MODEL,
        num_blocks=num_blocks,
        step_listeners=(log,),
        followers=(explaining.explainer,),
        recorder=recorder if is_recorded else None,
    )
    recorder.write_steps()
    assert len(explaining.explainer) == 0
    return Explained(explaining.found, result, log, lines)


def explained_again(recording: Recording, config: SchedulerConfig) -> dict[str, Explanation]:
    """From the recording alone."""
    explaining = Explaining(config, is_exact=False)
    replayed = replay_exactly(recording, followers=(explaining.explainer,))
    assert replayed.difference is None
    return explaining.found


def check_sums(explanation: Explanation) -> None:
    """What must hold of every explanation, to the nanosecond."""
    for sequence in explanation.sequences:
        parts = sequence.parts_ns
        assert tuple(parts) == PARTS
        assert sum(parts.values()) == sequence.e2e_ns
        assert min(parts.values()) >= 0
        assert sum(wait.ns for wait in sequence.waits) == parts["queue"]
        assert sum(wait.ns for wait in sequence.waits_again) <= parts["preempted"]
        prefill, stall = sequence.prefill, sequence.stall
        assert prefill.computing_ns + prefill.between_ns == parts["prefill"]
        told = sum(one.ns for one in stall.by) + stall.others_ns + stall.unknown_ns
        assert told == parts["stall"]
        assert sum(segment.ns for segment in sequence.segments) <= sequence.e2e_ns
    assert sum(explanation.parts_ns.values()) == explanation.e2e_ns


def share(held: Sequence[bool]) -> float:
    assert held
    return sum(held) / len(held)
