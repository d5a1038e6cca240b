"""The published bound: two tenants that always have somebody waiting are served alike.

|W_f - W_g| <= 2 max(w_p L_input, w_q M) over any stretch of time, W by weight (Sheng et al., 2024,
theorem 4.4), where

- W: PROMPT_COST for each prompt token that was not cached, counted when its sequence is admitted,
  and OUTPUT_COST for each output token. What is computed again after a preemption is not service.
- L_input: the longest prompt.
- M: the most tokens, prompt and output, that sequences which run at the same time ever come to.
  The paper's pool is reserved, so there M is the pool; under `reserve` it is here, too. On demand a
  pool takes in more than it could hold to the end: M is what `max_num_seqs` sequences come to.

Whoever joins late may come in CREDIT below those that wait: for it the bound is wider by two of it.

Chunked prefill changes nothing, as a prompt counts when it is admitted; measured by what has been
computed at a time, each prompt under way adds what is left of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig, weights_of
from headway.core.events import Admitted, Advanced
from headway.core.policies import fair as fair_module
from headway.core.policies.fair import OUTPUT_COST, PROMPT_COST


@dataclass
class Asked:
    tenant: str
    prompt: list[int]
    max_tokens: int

    @property
    def size(self) -> int:
        return len(self.prompt) + self.max_tokens


class Race:
    """Each asks for all of it at once, g after `num_late` steps; from then on it runs until one of
    them has nobody waiting."""

    def __init__(
        self, config: SchedulerConfig, num_blocks: int, asked: list[Asked], num_late: int = 0
    ) -> None:
        self.world = World(config, num_blocks)
        self.weights = weights_of(config.tenant_weights)
        self.tenant_of: dict[str, str] = {}
        self.service = {"f": Fraction(0), "g": Fraction(0), "other": Fraction(0)}
        self.leads: list[Fraction] = [Fraction(0)]
        numbered = list(enumerate(asked))
        self._submit((number, one) for number, one in numbered if one.tenant != "g" or not num_late)
        for _ in range(num_late):
            self.world.turn()
        self._submit((number, one) for number, one in numbered if one.tenant == "g" and num_late)

    def _submit(self, asked: Iterable[tuple[int, Asked]]) -> None:
        for number, one in asked:
            self.tenant_of[f"{number}"] = one.tenant
            request = make_request(
                f"{number}", one.prompt, max_tokens=one.max_tokens, tenant=one.tenant
            )
            self.world.submit(request)

    def run(self) -> None:
        heard = len(self.world.events)
        while self._is_backlogged():
            self.world.turn()
            for event in self.world.events[heard:]:
                self._count(event)
            heard = len(self.world.events)
            self.leads.append(self.service["f"] - self.service["g"])

    def _is_backlogged(self) -> bool:
        waiting = {s.request.tenant for s in self.world.scheduler.waiting_sequences()}
        return {"f", "g"} <= waiting

    def _count(self, event: object) -> None:
        if isinstance(event, Admitted):
            prompt = self.world.sequences[event.sequence_id].num_prompt_tokens
            cost = PROMPT_COST * (prompt - event.num_cached_tokens)
        elif isinstance(event, Advanced):
            cost = OUTPUT_COST * len(event.token_ids)
        else:
            return
        tenant = self.tenant_of[event.request_id]
        self.service[tenant] += Fraction(cost, self.weights.get(tenant, 1))

    @property
    def widest(self) -> Fraction:
        """The largest difference over any stretch of time."""
        return max(self.leads) - min(self.leads)


def bound(config: SchedulerConfig, num_blocks: int, asked: list[Asked]) -> Fraction:
    """What one tenant may get ahead, of each of the two: at most twice the larger."""
    total = Fraction(0)
    for tenant in "fg":
        own = [one for one in asked if one.tenant == tenant]
        sizes = sorted((one.size for one in own), reverse=True)
        together = sum(sizes[: config.max_num_seqs])
        if config.kv_policy == "reserve" and not config.enable_prefix_caching:
            together = min(together, num_blocks * config.block_size)
        longest = max(len(one.prompt) for one in own)
        weight = weights_of(config.tenant_weights).get(tenant, 1)
        total += Fraction(max(PROMPT_COST * longest, OUTPUT_COST * together), weight)
    return total


@st.composite
def traffic(draw) -> list[Asked]:
    found = []
    for tenant in ("f", "g", "other"):
        longest, most = draw(st.integers(1, 20)), draw(st.integers(1, 20))
        for _ in range(draw(st.integers(8, 24)) if tenant != "other" else draw(st.integers(0, 6))):
            prompt = draw(st.lists(st.integers(1, 2), min_size=1, max_size=longest))
            found.append(Asked(tenant, prompt, draw(st.integers(1, most))))
    return draw(st.permutations(found))


@pytest.mark.parametrize(("num_late", "credit"), [(0, 8192), (9, 0), (9, 40)])
@settings(max_examples=30, deadline=None)
@given(
    asked=traffic(),
    weights=st.sampled_from(["", "", "f=3", "f=2,g=5"]),
    knobs=st.fixed_dictionaries(
        {
            "max_num_seqs": st.integers(1, 5),
            "max_num_batched_tokens": st.integers(1, 40),
            "long_prefill_token_threshold": st.integers(0, 4),
            "enable_prefix_caching": st.booleans(),
            "kv_policy": st.sampled_from(["on-demand", "reserve"]),
            "prefill": st.sampled_from(["mixed", "first"]),
            "unit": st.sampled_from(["step", "step", "request"]),
        }
    ),
    num_blocks=st.integers(11, 40),
)
def test_two_backlogged_tenants_are_served_alike(
    num_late, credit, asked, weights, knobs, num_blocks
):
    config = SchedulerConfig(
        ordering="fair", block_size=4, max_model_len=40, tenant_weights=weights, **knobs
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fair_module, "CREDIT", credit)
        race = Race(config, num_blocks, asked, num_late)
    race.run()
    assert race.widest <= bound(config, num_blocks, asked) + (2 * credit if num_late else 0)


@pytest.mark.parametrize(("ordering", "is_kept"), [("fair", True), ("fcfs", False)])
def test_first_come_first_served_has_no_such_bound(ordering, is_kept):
    asked = [Asked("f", [1] * 8, 8)] * 30 + [Asked("g", [2] * 8, 8)] * 30
    config = SchedulerConfig(
        ordering=ordering, block_size=4, max_model_len=40, max_num_seqs=3, kv_policy="reserve"
    )
    race = Race(config, 40, asked)
    race.run()
    assert (race.widest <= bound(config, 40, asked)) is is_kept
