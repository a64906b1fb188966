"""Each warning and error of the log has what a person does about it, and ``docs/log-lines.md`` says it."""

import re

from docs.markdown import ROOT

from sparklog.cli.logbook.advice import SAID
from sparklog.cli.logbook.lines import log_lines
from sparklog.cli.logbook.page import _AREAS, ADVICE, advice_for, page

ORDERS = re.compile(
    r"\b(stop|remove|mend(ed)?|close|poll|look|see|set|give|type|delete|start it|decodes|did you mean)\b|'sparklog "
    r"|…; …|…: …$|quotas\.md",
    re.IGNORECASE,
)
"""What a line has that says itself what to do, or shows it; or all of it is a reason and an advice."""


def test_the_page_is_the_code():
    text = (ROOT / "docs" / "log-lines.md").read_text()
    assert text == page(), "stale: python -m sparklog.cli.logbook.page > docs/log-lines.md"


def test_every_line_has_its_advice():
    lacking = []
    for line in log_lines():
        if not any(line.text.startswith(each) for each in ADVICE.get(line.module, ())):
            lacking.append(f"{line.module}, line {line.number}: {line.text}")
    assert lacking == [], "say in cli/logbook/of_brokers.py or of_clients.py what a person does about it"


def test_no_advice_is_for_a_line_that_there_is_no_more():
    used = {(line.module, _beginning(line)) for line in log_lines()}
    assert {(module, each) for module, beginnings in ADVICE.items() for each in beginnings} == used


def _beginning(line):
    return max((each for each in ADVICE[line.module] if line.text.startswith(each)), key=len)


def test_a_line_that_is_said_to_say_it_does():
    assert [each.text for each in log_lines() if advice_for(each) == SAID and not ORDERS.search(each.text)] == []


def test_every_line_stands_under_a_heading():
    roots = [root for each in _AREAS.values() for root in each]
    assert {line.module.partition(".")[0] for line in log_lines()} == set(roots)
    assert len(roots) == len(set(roots))
    rows = {line for line in page().splitlines() if line.startswith(("| WARNING", "| ERROR", "| CRITICAL"))}
    assert len(rows) == len({(each.levels, each.text, each.logger, advice_for(each)) for each in log_lines()})
