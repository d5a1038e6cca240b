"""The figures behind a verdict, a line for each: what was seen, and nothing that was not."""

from __future__ import annotations

from collections.abc import Callable

from headway.insight.doctor.course import Course
from headway.insight.doctor.readings import Distribution


def figure_lines(course: Course) -> tuple[str, ...]:
    """In the order in which they are read: the queue, memory, steps, tokens, times."""
    lines = (line(course) for line in _LINES)
    return tuple(line for line in lines if line)


def _running(course: Course) -> str | None:
    state = course.state
    if state.num_running is None:
        return None
    cap = f" of {state.max_num_seqs:,} slots" if state.max_num_seqs else ""
    return f"running: {_mean_of(course.running)}{cap}"


def _waiting(course: Course) -> str | None:
    waiting = course.waiting
    if not waiting:
        return None
    seen = sum(n >= 1 for n in waiting)
    often = f", somebody in {seen} of {len(waiting)} samples" if len(waiting) > 1 else ""
    causes = course.state.waiting_for or {}
    listed = ", ".join(
        f"{word} {amount:.3g}"
        for word, amount in sorted(causes.items(), key=lambda item: -item[1])
        if amount
    )
    return f"waiting: {_mean_of(waiting)}{often}" + (f"; for {listed}" if listed else "")


def _adapters(course: Course) -> str | None:
    state = course.state
    if state.max_loras is None or not (state.adapters_running or state.adapters_waiting):
        return None
    parts = (
        f"{words} {', '.join(names) or 'none'}"
        for words, names in (
            ("running", state.adapters_running or ()),
            ("waiting", state.adapters_waiting or ()),
        )
    )
    return f"adapters: {state.max_loras} at once; {', '.join(parts)}"


def _cache(course: Course) -> str | None:
    state = course.state
    if state.kv_usage is None:
        if state.num_reserved_tokens is None:
            return None
        return f"set aside for those that run: {state.num_reserved_tokens:,.0f} tokens"
    size = f" of {state.num_kv_tokens:,} tokens" if state.num_kv_tokens else ""
    resident = ""
    if state.num_resident_tokens is not None:
        resident = f", {state.num_resident_tokens:,.0f} tokens resident"
    return f"KV cache: {state.kv_usage:.1%}{size} held by running requests{resident}"


def _preemptions(course: Course) -> str | None:
    watched = course.watched
    if watched is None or watched.num_preemptions is None:
        return None
    again = ""
    if watched.num_preemptions and watched.num_recomputed_tokens is not None:
        again = f", {watched.num_recomputed_tokens:,.0f} tokens computed again"
    return f"preemptions: {watched.num_preemptions:,.0f} in {course.watched_s:.0f} s{again}"


def _steps(course: Course) -> str | None:
    per_step, budget = course.num_tokens_per_step, course.state.max_num_batched_tokens
    if per_step is None:
        return None
    of_budget = f" of {budget:,}" if budget else ""
    return f"a step computes {per_step:,.1f} tokens{of_budget} on average{_since(course)}"


def _busy(course: Course) -> str | None:
    if course.busy_share is None:
        return None
    phases = ""
    if course.prefill_share is not None:
        phases = f"; {course.prefill_share:.0%} of requests' computing time is prefill"
    return f"engine: busy {course.busy_share:.0%} of the time{phases}"


def _tokens(course: Course) -> str | None:
    output = course.per_second("num_output_tokens")
    prompt, cached = course.per_second("num_prompt_tokens"), course.per_second("num_cached_tokens")
    of_cache = f" ({cached / prompt:.0%} from the cache)" if cached and prompt else ""
    parts = [f"{output:,.1f} output tokens/s"] if output is not None else []
    parts += [f"{prompt:,.1f} prompt tokens/s{of_cache}"] if prompt is not None else []
    return f"tokens: {', '.join(parts)}" if parts else None


def _ended(course: Course) -> str | None:
    if course.num_ended is None or course.watched is None:
        return None
    reasons = {word: n for word, n in (course.watched.ended or {}).items() if n}
    listed = ", ".join(f"{word} {n:,.0f}" for word, n in reasons.items())
    return f"ended: {course.num_ended:,.0f} in {course.watched_s:.0f} s" + (
        f" ({listed})" if listed else ""
    )


def _times(course: Course) -> str | None:
    reading = course.watched or course.life
    if reading is None:
        return None
    parts = [
        f"{name} {_spread(part)}"
        for name, part in (
            ("queue", reading.queue_s),
            ("first token", reading.ttft_s),
            ("between tokens", reading.itl_s),
            ("whole request", reading.e2e_s),
        )
        if part is not None and part.count > 0
    ]
    return f"times{_since(course)}: {'; '.join(parts)}" if parts else None


_LINES: tuple[Callable[[Course], str | None], ...] = (
    *(_running, _waiting, _adapters, _cache, _preemptions, _steps, _busy),
    *(_tokens, _ended, _times),
)


def _since(course: Course) -> str:
    return "" if course.watched else " since the server's start"


def _mean_of(values: list[float]) -> str:
    low, high = min(values), max(values)
    average = f"{sum(values) / len(values):,.4g}"
    return average if low == high else f"{average} on average ({low:,.0f} to {high:,.0f})"


def _spread(part: Distribution) -> str:
    middle, high = part.quantile(0.5), part.quantile(0.99)
    if middle is None or high is None:
        return f"{_seconds(part.mean or 0.0)} on average"
    return f"p50 {_seconds(middle)}, p99 {_seconds(high)}"


def _seconds(value: float) -> str:
    return f"{value * 1e3:,.3g} ms" if value < 1 else f"{value:,.3g} s"
