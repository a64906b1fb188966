"""The runbook has a procedure for each alert."""

import re

from docs.markdown import ROOT, anchors

RUNBOOK = ROOT / "docs" / "runbook.md"
_ROW = re.compile(r"^\| \[(\w+)\]\(alerts\.md#(\w+)\) \|", re.MULTILINE)


def test_every_alert_leads_to_a_procedure():
    alerts = re.findall(r"^## (\w+)$", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE)
    assert _ROW.findall(RUNBOOK.read_text()) == [(name, name.lower()) for name in alerts]


def test_every_procedure_is_found_from_the_page_itself():
    text = RUNBOOK.read_text()
    unlinked = {each for each in anchors(RUNBOOK) if f"](#{each})" not in text}
    assert unlinked == {
        "runbook",
        "first-look",
        "a-certificate-has-expired",
        "restart-or-upgrade-all-brokers",
    }
