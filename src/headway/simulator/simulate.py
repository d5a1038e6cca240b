"""One run of the engine's scheduler over a workload, with no engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from typing import Protocol

from headway.core.config import SchedulerConfig
from headway.core.policies import Policies
from headway.core.scheduler import Scheduler
from headway.drive.clock import VirtualClock
from headway.drive.loop import EngineLoop
from headway.drive.ports import Follower, Inbox, StepListener
from headway.drive.recorder import RecordedInbox, Recorder
from headway.simulator.collector import Collector
from headway.simulator.executor import CostModelExecutor
from headway.simulator.inbox import Source, WorkloadInbox
from headway.simulator.result import Result
from headway.simulator.script import Script, SyntheticScript
from headway.simulator.step_time.base import StepTimeModel
from headway.simulator.workload.base import Workload


class Scripts(Protocol):
    """A workload whose requests bring their own tokens, as those of a recording do."""

    def scripts(self) -> Iterator[Script]:
        """In order of arrival."""
        ...


def simulate(
    config: SchedulerConfig,
    workload: Workload | Scripts,
    model: StepTimeModel,
    *,
    num_blocks: int,
    skip_ahead: bool = True,
    policies: Policies | None = None,
    step_listeners: Iterable[StepListener] = (),
    followers: Iterable[Follower] = (),
    recorder: Recorder | None = None,
) -> Result:
    """Serve the whole workload and say what happened.

    `num_blocks`: blocks of KV cache, of `config.block_size` tokens. Without `skip_ahead` every step
    is decided by itself, which takes longer and gives the same; so it is with `followers` or a
    `recorder`, who want to hear of each. `policies` replace those that `config` names. Raises
    ValueError for a workload that is malformed or out of order, and whatever the model raises.
    """
    clock = VirtualClock()
    scheduler = Scheduler(config, num_blocks, policies)
    inbox = WorkloadInbox(clock, _source(workload))
    collector = Collector(scheduler, inbox)
    executor = CostModelExecutor(clock, model, inbox, collector)
    followers, recorders = tuple(followers), (recorder,) if recorder else ()
    heard: Inbox = inbox
    for listener in (*followers, *recorders):
        heard = RecordedInbox(heard, listener, clock)
    loop = EngineLoop(
        scheduler,
        clock=clock,
        inbox=heard,
        executor=executor,
        listeners=(inbox, collector, executor, *followers, *recorders),
        step_listeners=(*step_listeners, *recorders),
        run_listeners=followers,
        strider=executor if skip_ahead and heard is inbox else None,
    )
    loop.run()
    return Result.of(config, num_blocks, collector)


def _source(workload: Workload | Scripts) -> Source:
    if hasattr(workload, "scripts"):
        return Source(workload.scripts(), _nothing_follows)
    traffic = workload.traffic()

    def follow_up(script: Script, now_ns: int) -> SequenceOf[Script]:
        assert isinstance(script, SyntheticScript)
        return [SyntheticScript(client) for client in traffic.follow_up(script.client, now_ns)]

    return Source(map(SyntheticScript, traffic.arrivals()), follow_up)


def _nothing_follows(script: Script, now_ns: int) -> SequenceOf[Script]:
    return ()
