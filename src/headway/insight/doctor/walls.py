"""Which wall binds: the first rule that has something to say.

Whoever says himself what is lacking (Headway, llama.cpp) is believed; others are read as the field
reads them: slots, memory and prompts each leave their own trace in the states and counts.
"""

from __future__ import annotations

from collections.abc import Callable

from headway.core.step import Blocker
from headway.insight.doctor.course import Course
from headway.insight.doctor.findings import Confidence, Severity, Wall
from headway.insight.doctor.rest import at_rest
from headway.insight.doctor.verdict import Verdict, unknown
from headway.insight.figures import counted

_WALL_OF = {
    Blocker.SLOTS: Wall.SLOTS,
    Blocker.BLOCKS: Wall.KV_MEMORY,
    Blocker.EVICTION: Wall.KV_MEMORY,
    Blocker.BUDGET: Wall.PREFILL,
    Blocker.PREFILL: Wall.PREFILL,
    Blocker.ADAPTER: Wall.ADAPTERS,
    Blocker.GRAMMAR: Wall.GRAMMARS,
    Blocker.TENANT: Wall.TENANT,
    Blocker.STATIC_BATCH: Wall.STATIC_BATCH,
}
_FULL = 0.9  # of the KV cache
_FEW_EVICTIONS = 0.02  # of those who ended: fewer are no wall
_LEAST_STUCK_S = 8.0  # and so many gaps of the longest that used to be between tokens
_STUCK_GAPS = 5.0
_LONGEST_STEP_S = 60.0  # where nobody tells what is usual; one may hold thousands of tokens
_USUAL_CAPS = frozenset({1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 512, 1024})


def wall_of(course: Course) -> Verdict:
    """The first answer of the rules, in their order."""
    for rule in _RULES:
        if verdict := rule(course):
            return verdict
    return unknown("requests wait, and neither slots nor memory nor prompts explain it")


# ---- Nothing to go by, and nothing that moves ----


def _no_state(course: Course) -> Verdict | None:
    if course.moments:
        return None
    return unknown("the source says neither how many requests run nor how many wait")


def _stuck(course: Course) -> Verdict | None:
    if course.moments[-1].is_healthy is False:
        return Verdict(
            Wall.STUCK,
            Confidence.HIGH,
            "the server itself says it is not healthy",
            Severity.CRITICAL,
        )
    watched = course.watched
    if watched is None or not course.has_work_throughout or _may_be_a_long_step(course):
        return None
    nobody_runs = not any(course.running)
    moved = (watched.num_steps, watched.num_output_tokens, watched.num_prompt_tokens)
    known = [count for count in moved if count is not None]
    if not known or any(known):
        return None
    is_sure = nobody_runs or course.watched_s >= 30
    return Verdict(
        Wall.STUCK,
        Confidence.HIGH if is_sure else Confidence.MEDIUM,
        f"there is work, and no token was computed in {course.watched_s:.0f} s",
        Severity.CRITICAL,
    )


def _may_be_a_long_step(course: Course) -> bool:
    """Busy is not stuck: Headway's health tells the two apart, elsewhere its usual gaps do."""
    if course.server == "headway" and course.moments[-1].is_healthy:
        return True
    usual = course.life.itl_s.quantile(0.99) if course.life and course.life.itl_s else None
    if usual is None and any(course.running):
        return course.watched_s < _LONGEST_STEP_S
    return course.watched_s < max(_LEAST_STUCK_S, _STUCK_GAPS * (usual or 0.0))


# ---- Somebody waits ----


def _said_so(course: Course) -> Verdict | None:
    """The server names what each of the waiting lacks."""
    waiting_for = course.state.waiting_for
    if not course.is_queueing or not waiting_for or not sum(waiting_for.values()):
        return None
    amounts: dict[Wall, float] = {}
    for word, amount in waiting_for.items():
        wall = _WALL_OF[Blocker(word)] if word in _BLOCKER_WORDS else Wall.UNKNOWN
        amounts[wall] = amounts.get(wall, 0.0) + amount
    wall, amount = max(amounts.items(), key=lambda item: item[1])
    share = amount / sum(amounts.values())
    is_clear = share >= 0.6 and course.is_series
    return Verdict(
        wall,
        Confidence.HIGH if is_clear else Confidence.MEDIUM,
        f"{share:.0%} of the waiting lack just that, as the server says",
        Severity.WARNING,
    )


_BLOCKER_WORDS = frozenset(blocker.value for blocker in Blocker)


def _barred(course: Course) -> Verdict | None:
    """Some wait for something of their own, while there is room."""
    state = course.state
    if not course.is_queueing:
        return None
    running, waiting = (
        set(names or ()) for names in (state.adapters_running, state.adapters_waiting)
    )
    is_full = state.max_loras is not None and len(running) >= state.max_loras
    if is_full and waiting - running:
        named = ", ".join(sorted(waiting - running)[:4])
        because = f"all {state.max_loras} are taken while {named} wait for one"
        return Verdict(Wall.ADAPTERS, Confidence.HIGH, because, Severity.WARNING)
    if (state.num_deferred or 0.0) < 0.5 * (state.num_waiting or 0.0):
        return None
    if course.server == "sglang":
        because = "most of those who wait wait for theirs to be compiled"
        return Verdict(Wall.GRAMMARS, Confidence.MEDIUM, because, Severity.WARNING)
    return unknown("most of those who wait are deferred by something of their own")


def _memory(course: Course) -> Verdict | None:
    usage = course.state.kv_usage
    preempting = course.num_preempted > _FEW_EVICTIONS * (course.num_ended or 0.0)
    if not preempting and not course.is_queueing:
        return None
    if preempting:
        because = f"{counted(course.num_preempted, 'preemption')} in {course.watched_s:.0f} s"
        is_full = usage is not None and usage >= 0.8
        sure = Confidence.HIGH if is_full else Confidence.MEDIUM
        return Verdict(Wall.KV_MEMORY, sure, because, Severity.WARNING)
    if course.server == "tgi":
        return _reserved(course)
    if usage is None or (course.is_at_slot_cap and usage < 0.97):
        return None
    if usage < _FULL and usage + _next_prompt_share(course) < 0.97:
        return None
    sure = (
        Confidence.HIGH if course.is_at_slot_cap is False and usage >= _FULL else Confidence.MEDIUM
    )
    return Verdict(
        Wall.KV_MEMORY, sure, f"the cache is {usage:.0%} full while requests wait", Severity.WARNING
    )


def _reserved(course: Course) -> Verdict | None:
    """Of what a batch may hold, the part that is set aside stays at its top, and its size moves."""
    reserved = [r.num_reserved_tokens for r in course.moments if r.num_reserved_tokens is not None]
    top = max(reserved, default=0.0)
    is_near = len(reserved) >= 3 and top > 0 and min(reserved) >= 0.85 * top
    if not is_near or course.is_pinned(course.running):
        return None
    because = f"max_tokens of all that run add up to about {top:,.0f}, at every look"
    return Verdict(Wall.KV_MEMORY, Confidence.MEDIUM, because, Severity.WARNING)


def _next_prompt_share(course: Course) -> float:
    """Of the KV cache, what the mean prompt takes: nobody comes in with less than that free."""
    size, reading = course.state.num_kv_tokens, course.watched or course.life
    if not size or reading is None or reading.prompt_tokens is None:
        return 0.0
    return (reading.prompt_tokens.mean or 0.0) / size * (course.state.num_engines or 1)


def _slots(course: Course) -> Verdict | None:
    if not course.is_queueing or not course.is_at_slot_cap:
        return None
    return Verdict(
        Wall.SLOTS,
        Confidence.HIGH if course.is_series else Confidence.MEDIUM,
        f"all {course.state.max_num_seqs} are taken while requests wait",
        Severity.WARNING,
    )


def _full_steps(course: Course) -> Verdict | None:
    """Requests wait, slots and blocks are free or not known, and steps are full of prompts."""
    if not course.is_queueing:
        return None
    budget, per_step = course.state.max_num_batched_tokens, course.num_tokens_per_step
    if budget is not None and per_step is not None and per_step >= 0.6 * budget:
        because = f"a step computes {per_step:,.0f} tokens of {budget:,} on average"
        sure = Confidence.HIGH if course.is_at_slot_cap is False else Confidence.MEDIUM
        return Verdict(Wall.PREFILL, sure, because, Severity.WARNING)
    share, ratio = course.prefill_share, course.num_computed_per_output
    is_prompts = (ratio or 0.0) >= 8 or (share or 0.0) >= 0.6
    if is_prompts and (per_step is None or per_step >= 256 or (share or 0.0) >= 0.6):
        return Verdict(Wall.PREFILL, Confidence.MEDIUM, _of_prompts(course), Severity.WARNING)
    return None


def _pinned(course: Course) -> Verdict | None:
    """The cap is not known, and as many as ever run all the time."""
    running = course.running
    if not course.is_queueing or not running or course.is_at_slot_cap is False:
        return None
    top = max(running)
    if course.is_pinned(running):
        often = "all" if min(running) == top else "nearly all"
        because = f"{top:.0f} run {often} the time while requests wait and memory is free"
        return Verdict(Wall.SLOTS, Confidence.MEDIUM, because, Severity.WARNING)
    if len(running) < 3 and top in _USUAL_CAPS:
        because = f"{top:.0f} run, which many set as the cap, while requests wait"
        return Verdict(Wall.SLOTS, Confidence.LOW, because, Severity.WARNING)
    return None


def _prompts_queue(course: Course) -> Verdict | None:
    """Neither slots nor memory: what is left is the room in a step, if prompts fill it."""
    if not course.is_queueing:
        return None
    share, ratio = course.prefill_share, course.num_computed_per_output
    if (share or 0.0) < 0.4 and (ratio or 0.0) < 4:
        return None
    return Verdict(Wall.PREFILL, Confidence.MEDIUM, _of_prompts(course), Severity.WARNING)


def _of_prompts(course: Course) -> str:
    parts = []
    if course.num_computed_per_output is not None:
        parts.append(f"{course.num_computed_per_output:,.0f} prompt tokens for each output token")
    if course.prefill_share is not None:
        parts.append(f"{course.prefill_share:.0%} of the computing time is prefill")
    return ", ".join(parts) or "prompts fill the steps"


_RULES: tuple[Callable[[Course], Verdict | None], ...] = (
    *(_no_state, _stuck, _said_so, _barred, _memory, _slots),
    *(_full_steps, _pinned, _prompts_queue, at_rest),
)
