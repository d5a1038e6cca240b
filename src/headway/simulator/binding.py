"""What a run was short of: who waited in each step, and what for."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.step import Blocker
from headway.simulator.result import Result

# An admission that an eviction forbids waits for blocks as well.
_WALLS = {
    Blocker.SLOTS: "slots",
    Blocker.BLOCKS: "blocks",
    Blocker.EVICTION: "blocks",
    Blocker.BUDGET: "budget",
    Blocker.STATIC_BATCH: "static batch",
}
_WORDS = {
    "slots": "slots (max_num_seqs)",
    "blocks": "KV blocks",
    "budget": "tokens in a step (max_num_batched_tokens)",
    "static batch": "the end of the static batch (batching_unit)",
    "tenant": "slots of their tenant (max_tenant_seqs)",
    "prefill": "prompts under way (max_num_partial_prefills)",
}
_LEAST_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class Binding:
    """`waited`: of all steps, the share in which somebody waited for each thing, largest first."""

    waited: dict[str, float]
    peak_batch: int

    @staticmethod
    def of(result: Result) -> Binding:
        """From the reasons that the scheduler gave."""
        blockers = result.steps["blocker"]
        counts: dict[str, int] = {}
        for blocker in Blocker:
            wall = _WALLS.get(blocker, blocker.value)
            counts[wall] = counts.get(wall, 0) + int((blockers == blocker.value).sum())
        num_steps = max(1, len(blockers))
        ordered = sorted(counts.items(), key=lambda item: -item[1])
        waited = {wall: count / num_steps for wall, count in ordered if count}
        return Binding(waited, int(result.steps["num_running"].max(initial=0)))

    @property
    def nobody(self) -> float:
        """The share of steps in which nobody waited."""
        return 1.0 - sum(self.waited.values())

    @property
    def wall(self) -> str | None:
        """What was waited for most, in words; None where hardly anybody waited."""
        wall, share = next(iter(self.waited.items()), ("", 0.0))
        return _WORDS.get(wall, wall) if share >= _LEAST_SHARE else None

    def sentence(self) -> str:
        """What binds, for people: the end of a sentence that begins with that."""
        at_once = f"{self.peak_batch} ran at once at most"
        if self.wall is None:
            return f"nothing: hardly anybody waited, {at_once}"
        first, *others = (
            f"for {_WORDS.get(name, name)} in {share:.0%}" for name, share in self.waited.items()
        )
        waited = ", ".join((f"{first} of the steps", *others))
        return f"{self.wall}: {at_once}; somebody waited {waited}, nobody in {self.nobody:.0%}"
