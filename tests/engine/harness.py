"""Run requests through a real engine on a small model and compare what comes out, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from headway.core.events import Aborted, Admitted, Advanced, Event, Preempted, Rejected, Retired
from headway.core.request import Request, SamplingParams
from headway.drive.ports import Command, Submit
from headway.engine.build import Engine, assemble
from headway.engine.config import EngineConfig
from headway.model.loader import LoadedModel
from headway.model.source import ModelSource
from headway.ops.interface import Ops
from headway.wire import TokenLogprobs


@dataclass(slots=True)
class Outcome:
    """Everything a client could see of a sequence, without times."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    reason: str | None = None
    detail: str = ""

    def visible(self) -> tuple[object, ...]:
        return (self.token_ids, self.logprobs, self.prompt_logprobs, self.reason)


class Bench:
    """An engine, its inbox, and the outcomes by (request_id, index of sequence)."""

    def __init__(
        self, source: ModelSource, model: LoadedModel, ops: Ops, **settings: object
    ) -> None:
        config = EngineConfig(**({"num_gpu_blocks_override": 256, "max_num_seqs": 64} | settings))  # type: ignore[arg-type]
        self.commands: list[Command] = []
        self.outcomes: dict[str, Outcome] = {}
        self.rejected: dict[str, str] = {}
        self.num_preemptions = 0
        self.num_cached_tokens: dict[str, int] = {}
        self._name_of: dict[int, str] = {}
        self.engine: Engine = assemble(config, source, model, ops, self, (self,))

    def take(self) -> list[Command]:
        taken, self.commands = self.commands, []
        return taken

    def wait(self, until_ns: int | None = None) -> bool:
        return bool(self.commands)

    def on_events(self, events: Iterable[Event], now_ns: int) -> None:
        for event in events:
            self._fold(event)
        for item in self.engine.executor.logprobs.take():
            outcome = self.outcomes[self._name_of[item.sequence_id]]
            outcome.logprobs += item.output
            outcome.prompt_logprobs += item.prompt

    def _fold(self, event: Event) -> None:
        if isinstance(event, Rejected):
            self.rejected[event.request_id] = event.reason
            return
        name = self._name_of.setdefault(event.sequence_id, self._name(event))
        outcome = self.outcomes.setdefault(name, Outcome())
        match event:
            case Advanced():
                outcome.token_ids += event.token_ids
            case Retired() | Aborted():
                assert outcome.reason is None, f"{name} ended twice"
                outcome.reason = event.reason.value
                outcome.detail = event.detail
            case Preempted():
                self.num_preemptions += 1
            case Admitted():
                self.num_cached_tokens[name] = event.num_cached_tokens

    def _name(self, event: Event) -> str:
        index = getattr(event, "index", 0)
        return f"{event.request_id}/{index}"

    def run(
        self,
        arrivals: Mapping[int, Iterable[Request]],
        before_turn: Callable[[int], None] = lambda turn: None,
    ) -> dict[str, Outcome]:
        """Turn the loop until all is done; `arrivals` by turn, `before_turn` may interfere."""
        turn = 0
        while turn <= max(arrivals) or self.engine.scheduler.has_unfinished():
            self.commands += [Submit(request) for request in arrivals.get(turn, ())]
            before_turn(turn)
            self.engine.loop.turn()
            turn += 1
            assert turn < 20_000, "the engine does not finish"
        return self.outcomes


def ask(name: str, prompt: Iterable[int], **sampling: object) -> Request:
    """A greedy request with logprobs, unless told otherwise."""
    settings = {"temperature": 0.0, "max_tokens": 8, "logprobs": 3} | sampling
    params = SamplingParams(**settings)  # type: ignore[arg-type]
    return Request(
        request_id=name, prompt_token_ids=tuple(prompt), sampling=params, seed=params.seed or 0
    )
