"""What a file of usage says about the server, its models and its clients."""

from __future__ import annotations

from headway.insight.doctor.findings import Finding
from headway.insight.usage.columns import Usage
from headway.insight.usage.endings import ending_findings
from headway.insight.usage.sizes import size_findings


def findings_of_usage(usage: Usage, baseline: Usage | None = None) -> tuple[Finding, ...]:
    """Worst first. `baseline`: answers of better days, to compare with."""
    findings = (*ending_findings(usage, baseline), *size_findings(usage))
    return tuple(sorted(findings, key=lambda finding: -finding.severity))
