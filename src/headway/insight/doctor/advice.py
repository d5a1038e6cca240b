"""What to change against a wall, from what to what, and what does nothing there."""

from __future__ import annotations

from headway.insight.doctor.course import Course
from headway.insight.doctor.findings import Change, Wall

# What a setting is called by each server; vLLM's names where it is one of ours.
_SLOTS = {
    "sglang": "--max-running-requests",
    "tgi": "--max-batch-size",
    "llama.cpp": "--parallel",
}
_MEMORY = {
    "headway": "--kv-cache-memory-bytes",
    "vllm": "--gpu-memory-utilization",
    "sglang": "--mem-fraction-static",
    "tgi": "--max-batch-total-tokens",
    "llama.cpp": "--ctx-size",
}
_BUDGET = {
    "sglang": "--chunked-prefill-size",
    "tgi": "--max-batch-prefill-tokens",
    "llama.cpp": "--batch-size",
}
_SPARE = 0.85  # of the KV cache, that a larger batch may fill


def changes_for(course: Course, wall: Wall) -> tuple[Change, ...]:
    """None where there is nothing to change, or nothing that a figure speaks for."""
    match wall:
        case Wall.SLOTS:
            return _more_slots(course)
        case Wall.KV_MEMORY:
            return (*_more_memory(course), *_fewer_slots(course))
        case Wall.PREFILL if course.is_queueing:
            return _larger_steps(course)
        case Wall.ADAPTERS:
            return _more_adapters(course)
        case Wall.TENANT:
            return (Change(what="--max-tenant-seqs", after="more, or none"),)
    return ()


def inert_settings(course: Course, wall: Wall) -> tuple[str, ...]:
    """By what the figures show: room that is left is not looked for."""
    return tuple(
        sentence
        for binding, sentence in (
            (Wall.SLOTS, _spare_slots(course)),
            (Wall.KV_MEMORY, _spare_memory(course)),
            (Wall.PREFILL, _spare_budget(course)),
        )
        if sentence and binding is not wall and wall not in (Wall.UNKNOWN, Wall.STUCK)
    )


def _slots(course: Course) -> str:
    return _SLOTS.get(course.server or "", "--max-num-seqs")


def _more_slots(course: Course) -> tuple[Change, ...]:
    state = course.state
    running, waiting = max(course.running, default=0.0), state.num_waiting or 0.0
    before = state.max_num_seqs or round(running)
    wanted = round(running + waiting)
    usage = state.kv_usage
    fit = int(before * _SPARE / usage) if usage and usage > 0.01 else wanted
    after = max(before, min(wanted, fit))
    if after <= before:
        why = f"the KV cache is {usage:.0%} full at {running:.0f}" if usage else ""
        return (Change(what=_memory(course), after="more, before more slots", basis=why),)
    within = f"{usage:.0%} of the KV cache serves {running:.0f}" if usage else "memory is not told"
    if course.server == "llama.cpp":
        within = "--ctx-size is divided among them"
    return (
        Change(
            what=_slots(course),
            before=f"{before:,}",
            after=f"{after:,}",
            gain=f"at most {after / before:.3g} times the output tokens/s",
            basis=f"{within}; reached only if a step of {after:,} takes no longer than one of "
            f"{before:,}",
        ),
    )


def _memory(course: Course) -> str:
    usual = _MEMORY.get(course.server or "", "memory for the KV cache")
    return course.state.memory_flag or usual


def _more_memory(course: Course) -> tuple[Change, ...]:
    state = course.state
    size, running = state.num_kv_tokens, state.num_running or 0.0
    waiting = state.num_waiting or 0.0
    if not running:
        return (Change(what=_memory(course), after="more"),)
    times = min(4.0, (running + waiting) / running)
    grown = f"{size * times:,.0f} tokens" if size else f"{times:.2g} times"
    gain, basis = "not predicted", "all who run and wait would fit, at the size that they have now"
    if times < (running + waiting) / running:
        basis = f"{running * times:.0f} would fit at the size that they have now"
    if again := _saved(course):
        gain = again
    return (
        Change(
            what=_memory(course),
            before=f"{size:,} tokens" if size else None,
            after=grown,
            gain=gain,
            basis=basis,
        ),
    )


def _saved(course: Course) -> str:
    again = course.per_second("num_recomputed_tokens")
    if not again:
        return ""
    computed = again + max(
        0.0,
        (course.per_second("num_prompt_tokens") or 0.0)
        - (course.per_second("num_cached_tokens") or 0.0),
    )
    return f"{again:,.0f} tokens/s less to compute again ({again / computed:.0%} of all prefill)"


def _fewer_slots(course: Course) -> tuple[Change, ...]:
    """No more at once than memory carries to the end, where it evicts."""
    if not course.num_preempted or not course.running:
        return ()
    carried = max(1, int(min(course.running)))
    cap = course.state.max_num_seqs
    return (
        Change(
            what=_slots(course),
            before=f"{cap:,}" if cap else None,
            after=f"{carried:,}",
            gain=_saved(course) or "no preemptions",
            basis="so many ran when it had just evicted",
        ),
    )


def _larger_steps(course: Course) -> tuple[Change, ...]:
    budget = course.state.max_num_batched_tokens
    what = _BUDGET.get(course.server or "", "--max-num-batched-tokens")
    per_step = course.num_tokens_per_step
    if budget is None or per_step is None or per_step < 0.6 * budget:
        return (
            Change(
                what="prompts",
                after="shorter, or with beginnings in common that the prefix cache finds",
                basis="the time goes into computing them, whatever the settings",
            ),
        )
    return (
        Change(
            what=what,
            before=f"{budget:,}",
            after=f"{2 * budget:,}",
            basis="helps as far as twice the tokens take less than twice the time; gaps between "
            "tokens grow",
        ),
    )


def _more_adapters(course: Course) -> tuple[Change, ...]:
    state = course.state
    names = {*(state.adapters_running or ()), *(state.adapters_waiting or ())}
    return (
        Change(
            what="--max-loras",
            before=str(state.max_loras) if state.max_loras else None,
            after=str(max(len(names), (state.max_loras or 0) + 1)),
            gain="requests for all of them run side by side",
            basis=f"{len(names)} adapters run or wait",
        ),
    )


def _spare_slots(course: Course) -> str:
    cap, running = course.state.max_num_seqs, course.running
    if cap is None or not running or max(running) >= 0.97 * cap:
        return ""
    top = max(running)
    return f"{_slots(course)} {cap:,}: {top:,.0f} ran at most; any value above that does the same"


def _spare_memory(course: Course) -> str:
    usages = [r.kv_usage for r in course.moments if r.kv_usage is not None]
    if not usages or max(usages) >= 0.8 or course.num_preempted:
        return ""
    return f"{_memory(course)}: {max(usages):.0%} in use at most; more would stay empty"


def _spare_budget(course: Course) -> str:
    budget, per_step = course.state.max_num_batched_tokens, course.num_tokens_per_step
    if budget is None or per_step is None or per_step >= 0.3 * budget:
        return ""
    return f"--max-num-batched-tokens {budget:,}: a step computes {per_step:,.0f} on average"
