"""Article 1's simulator written again from its description, sharing nothing with the product."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

BLOCK = 16


@dataclass(eq=False, slots=True)
class Member:
    number: int
    prompt: int
    wanted: int
    computed: int = 0
    made: int = 0
    blocks: int = 0


@dataclass(eq=False, slots=True)
class Pass:
    chunks: list[tuple[int, int, int]]  # number, tokens computed before, tokens
    preempted: list[int]
    num_running: int = 0
    num_held: int = 0
    num_live: int = 0
    num_recomputed: int = 0
    seconds: float = 0.0


@dataclass(eq=False)
class Machine:
    """`multiple`: what is declared over what is wanted, for reserve; None: on demand."""

    queue: deque[Member]
    free: int
    slots: int
    budget: int
    multiple: int | None = None
    is_static: bool = False
    running: list[Member] = field(default_factory=list)
    num_parked: int = 0
    parked_blocks: int = 0
    is_sealed: bool = False

    def passes(self) -> Iterator[Pass]:
        while self.queue or self.running:
            yield self._pass()

    def _pass(self) -> Pass:
        self.left, self.now = self.budget, Pass([], [])
        scheduled = self._continue()
        if not self.now.preempted:
            scheduled += self._admit()
        self.now.num_running = len(self.running)
        self.now.num_held = sum(member.blocks for member in self.running) + self.parked_blocks
        self._execute(scheduled)
        return self.now

    def _continue(self) -> list[tuple[Member, int]]:
        scheduled = []
        filling = self.is_static and not self.is_sealed
        for member in list(self.running):
            missing = member.prompt - member.computed
            want = min(missing if missing > 0 else 1, self.left)
            if not want or member not in self.running or (filling and missing <= 0):
                continue
            if self.multiple is None and not self._grow(member, want):
                break
            scheduled.append((member, want))
            self.left -= want
        return scheduled

    def _grow(self, member: Member, want: int) -> bool:
        need = -(-(member.computed + want) // BLOCK) - member.blocks
        while need > self.free:
            victim = self.running.pop()
            self.free += victim.blocks
            self.now.preempted.append(victim.number)
            self.now.num_recomputed += min(victim.computed, victim.prompt)
            victim.computed = victim.made = victim.blocks = 0
            self.queue.appendleft(victim)
            if victim is member:
                return False
        self.free -= max(0, need)
        member.blocks += max(0, need)
        return True

    def _admit(self) -> list[tuple[Member, int]]:
        scheduled: list[tuple[Member, int]] = []
        if self.is_sealed:
            return scheduled
        stopped_by_budget = False
        while self.queue and len(self.running) + self.num_parked < self.slots:
            member = self.queue[0]
            want = min(member.prompt, self.left)
            held = want if self.multiple is None else member.prompt + self.multiple * member.wanted
            need = -(-held // BLOCK)
            stopped_by_budget = not self.left
            if stopped_by_budget or need > self.free:
                break
            self.running.append(self.queue.popleft())
            self.free -= need
            member.blocks = need
            self.left -= want
            scheduled.append((member, want))
        self.is_sealed = self.is_static and bool(self.running) and not stopped_by_budget
        return scheduled

    def _execute(self, scheduled: list[tuple[Member, int]]) -> None:
        prefill = decodes = attended = 0
        for member, want in scheduled:
            self.now.chunks.append((member.number, member.computed, want))
            if member.computed >= member.prompt:
                decodes += 1
                attended += member.computed + 1
            else:
                prefill += want
            member.computed += want
            member.made += member.computed >= member.prompt
        weights = 15.26 * 2**30
        memory = (weights + 147_456 * attended) / (0.8 * 3.35e12)
        self.now.seconds = max(memory, weights * (prefill + decodes) / (0.7 * 989e12))
        self.now.num_live = sum(member.computed for member in self.running)
        for member in [m for m in self.running if m.made == m.wanted]:
            self._leave(member)

    def _leave(self, member: Member) -> None:
        self.running.remove(member)
        self.num_parked += 1
        self.parked_blocks += member.blocks
        if not self.is_static or not self.running:
            self.free += self.parked_blocks
            self.num_parked = self.parked_blocks = 0
            self.is_sealed = False


def reconstruct(
    prompts: tuple[int, ...],
    outputs: tuple[int, ...],
    *,
    num_blocks: int,
    slots: int,
    budget: int,
    multiple: int | None,
    is_static: bool,
) -> list[Pass]:
    pairs = enumerate(zip(prompts, outputs, strict=True))
    queue = deque(Member(number, prompt, wanted) for number, (prompt, wanted) in pairs)
    return list(Machine(queue, num_blocks, slots, budget, multiple, is_static).passes())
