"""An observation in, a diagnosis out."""

from __future__ import annotations

from headway.insight.doctor.advice import changes_for, inert_settings
from headway.insight.doctor.ailments import findings_of
from headway.insight.doctor.course import Course
from headway.insight.doctor.figures import figure_lines
from headway.insight.doctor.findings import Diagnosis, Severity, Wall
from headway.insight.doctor.readings import Observation
from headway.insight.doctor.verdict import Verdict
from headway.insight.doctor.walls import wall_of


def diagnose(observation: Observation) -> Diagnosis:
    """What the rules make of all readings together; a source's own findings come along."""
    course = Course(observation)
    verdict = wall_of(course)
    findings = (*observation.findings, *findings_of(course))
    trials = observation.trials
    return Diagnosis(
        wall=verdict.wall,
        severity=verdict.severity,
        confidence=verdict.confidence,
        title=_title(verdict),
        evidence=figure_lines(course),
        inert=trials.inert() if trials else inert_settings(course, verdict.wall),
        changes=trials.changes_for(verdict.wall) if trials else changes_for(course, verdict.wall),
        findings=tuple(sorted(findings, key=lambda finding: -finding.severity)),
        notes=observation.notes,
    )


def _title(verdict: Verdict) -> str:
    match verdict.wall:
        case Wall.UNKNOWN:
            return f"What binds is not known: {verdict.because}."
        case Wall.STUCK:
            return f"The engine is stuck: {verdict.because}."
        case Wall.NOTHING:
            return f"Nothing binds: {verdict.because}."
        case Wall.CLIENT:
            return f"Nothing binds here; the client side does: {verdict.because}."
    if verdict.severity is Severity.HEALTHY:
        return f"Nothing is short; what paces requests is {verdict.wall}: {verdict.because}."
    return f"What binds: {verdict.wall}. {verdict.because[0].upper()}{verdict.because[1:]}."
