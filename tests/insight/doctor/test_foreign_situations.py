"""Other servers' pages: the right wall, nothing wrong with confidence, a clean bill if healthy."""

from __future__ import annotations

import pytest

from headway.insight.doctor.diagnose import diagnose
from headway.insight.doctor.findings import Confidence, Severity
from headway.insight.doctor.pages import observe_pages
from tests.insight.doctor.foreign_situations import HELD_OUT, TUNED, Shown
from tests.insight.doctor.recorded import RECORDED, Recorded


@pytest.mark.parametrize("shown", [*TUNED, *HELD_OUT], ids=str)
def test_the_wall_that_a_page_shows_is_named(shown: Shown) -> None:
    diagnosis = diagnose(observe_pages(shown.seen.looks(shown.write), "pages"))
    assert diagnosis.wall is shown.wall, diagnosis.evidence
    assert diagnosis.confidence is not Confidence.LOW
    assert shown.also <= {finding.kind for finding in diagnosis.findings}
    assert (diagnosis.worst is Severity.HEALTHY) == shown.is_clean, diagnosis.findings


@pytest.mark.parametrize("recorded", RECORDED, ids=str)
def test_the_wall_that_a_real_server_was_driven_into_is_named(recorded: Recorded) -> None:
    diagnosis = diagnose(observe_pages(recorded.looks(), "pages"))
    assert diagnosis.wall is recorded.wall, diagnosis.evidence
    assert (diagnosis.confidence is Confidence.LOW) == recorded.is_guess
    assert recorded.also <= {finding.kind for finding in diagnosis.findings}
    assert (diagnosis.worst is Severity.HEALTHY) == recorded.is_clean, diagnosis.findings
