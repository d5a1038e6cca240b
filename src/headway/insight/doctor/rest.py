"""What paces requests while nobody waits: by how busy the engine is, and with what."""

from __future__ import annotations

from headway.insight.doctor.course import Course
from headway.insight.doctor.findings import Confidence, Wall
from headway.insight.doctor.verdict import Verdict

_BUSY, _IDLE = 0.9, 0.5  # of the time


def at_rest(course: Course) -> Verdict | None:
    if course.is_queueing:
        return None
    busy = course.busy_share
    if not any(course.running) and not course.per_second("num_output_tokens"):
        sure = Confidence.HIGH if course.is_series else Confidence.MEDIUM
        return Verdict(Wall.CLIENT, sure, "no request runs and none waits: the server idles")
    if busy is None:
        return _by_moments(course)
    if busy < _IDLE:
        because = f"nothing waits, and the engine idles {1 - busy:.0%} of the time"
        sure = Confidence.HIGH if course.is_series else Confidence.MEDIUM
        return Verdict(Wall.CLIENT, sure, because)
    if busy < _BUSY:
        because = f"nothing waits, and the engine is busy {busy:.0%} of the time"
        return Verdict(Wall.NOTHING, Confidence.HIGH, because)
    return _computing(course, f"nothing waits, and the engine is busy {busy:.0%} of the time")


def _by_moments(course: Course) -> Verdict:
    """How busy the engine is is not told, only whether it had work when looked at."""
    running = course.running
    share = sum(n > 0 for n in running) / max(1, len(running))
    if not course.is_series:
        return Verdict(Wall.NOTHING, Confidence.MEDIUM, "nothing waits")
    if share < _IDLE:
        because = f"nothing waits, and nothing ran in {1 - share:.0%} of the samples"
        return Verdict(Wall.CLIENT, Confidence.MEDIUM, because)
    if share < 1:
        return Verdict(Wall.NOTHING, Confidence.MEDIUM, "nothing waits")
    return _computing(course, "nothing waits, and something ran in every sample")


def _computing(course: Course, because: str) -> Verdict:
    if course.watched is not None and course.watched.num_steps == 0:
        because = (
            f"no step ended in {course.watched_s:.0f} s: a long prompt is computed, or nothing is, "
            "and a longer --interval tells which"
        )
        return Verdict(Wall.PREFILL, Confidence.LOW, because)
    share, ratio = course.prefill_share, course.num_computed_per_output
    is_seen = course.is_prefill_share_watched
    if not is_seen and ratio is not None:
        share = 0.9 if ratio >= 20 else 0.1 if ratio <= 4 else 0.5
        is_seen = bool(course.per_second("num_output_tokens"))  # a prompt counts when it is whole
    if share is None:
        return Verdict(Wall.NOTHING, Confidence.MEDIUM, because)
    wall, part = (Wall.PREFILL, share) if share >= 0.5 else (Wall.DECODE, 1 - share)
    is_sure = is_seen and part >= 0.7 and course.is_series
    return Verdict(wall, Confidence.HIGH if is_sure else Confidence.MEDIUM, because)
