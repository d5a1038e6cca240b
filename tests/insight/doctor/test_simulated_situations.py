"""A planted cause in a simulated server is what the doctor names, from its pages and its steps."""

from __future__ import annotations

import pytest

from headway.insight.doctor.diagnose import diagnose
from headway.insight.doctor.findings import Confidence, Diagnosis, Severity, Wall
from headway.insight.doctor.pages import observe_pages
from headway.insight.doctor.runs import observe_run
from tests.insight.doctor.situations import HELD_OUT, TUNED, Situation, served


@pytest.mark.parametrize("situation", [*TUNED, *HELD_OUT], ids=str)
def test_the_planted_cause_is_named(situation: Situation) -> None:
    server = served(situation)
    of_pages = diagnose(observe_pages(server.pages, "pages"))
    check(of_pages, situation, situation.also)
    if situation.wall not in (Wall.CLIENT, Wall.NOTHING):  # of which a run has no record
        also = situation.also - {"max-tokens-above-use"}  # nor of what was declared
        check(diagnose(observe_run(server.result, "steps")), situation, also)


def check(diagnosis: Diagnosis, situation: Situation, also: frozenset[str]) -> None:
    assert diagnosis.wall is situation.wall, diagnosis.evidence
    assert diagnosis.confidence is not Confidence.LOW
    assert also <= {finding.kind for finding in diagnosis.findings}
    if situation.is_clean:
        assert diagnosis.worst is Severity.HEALTHY
    else:
        assert diagnosis.worst > Severity.HEALTHY
        assert diagnosis.evidence
