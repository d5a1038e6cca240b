"""A planted cause in a simulated server is what the doctor names, from its pages and its steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.insight.doctor.diagnose import diagnose
from headway.insight.doctor.findings import Confidence, Diagnosis, Severity, Wall
from headway.insight.doctor.pages import observe_pages
from headway.insight.doctor.runs import observe_run
from headway.insight.logs.read import observe_log
from tests.insight.doctor.situations import HELD_OUT, TUNED, Situation, served


@pytest.mark.parametrize("situation", [*TUNED, *HELD_OUT], ids=str)
def test_the_planted_cause_is_named(situation: Situation, tmp_path: Path) -> None:
    server = served(situation)
    of_pages = diagnose(observe_pages(server.pages, "pages"))
    check(of_pages, situation, situation.also)
    if situation.wall not in (Wall.CLIENT, Wall.NOTHING):  # of which a run has no record
        also = situation.also - {"max-tokens-above-use"}  # nor of what was declared
        check(diagnose(observe_run(server.result, "steps")), situation, also)
    if "preemption-thrash" in situation.also:
        path = tmp_path / "server.log"
        path.write_text("\n".join(server.log.lines))
        of_log = diagnose(observe_log(path))
        check(of_log, situation, situation.also)
        [thrash] = [f for f in of_log.findings if f.kind == "preemption-thrash"]
        named = f"evicted, of those that have a line: {server.log.first_three}"
        assert thrash.evidence[-1] == named


def check(diagnosis: Diagnosis, situation: Situation, also: frozenset[str]) -> None:
    assert diagnosis.wall is situation.wall, diagnosis.evidence
    assert diagnosis.confidence is not Confidence.LOW
    assert also <= {finding.kind for finding in diagnosis.findings}
    if situation.is_clean:
        assert diagnosis.worst is Severity.HEALTHY
    else:
        assert diagnosis.worst > Severity.HEALTHY
        assert diagnosis.evidence
