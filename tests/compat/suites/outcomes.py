"""What became of each test of a foreign suite, here and on a Kafka, and where the two differ."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNENDED = "unended"
    """It had to be killed, or it took its runner with it."""


Outcomes = Mapping[str, Outcome]
_RUNNERS_WORDS = {"PASSED": Outcome.PASSED, "SKIPPED": Outcome.SKIPPED, "FAILED": Outcome.FAILED}


def of_junit(report: Path) -> dict[str, Outcome]:
    """The outcomes in a JUnit report as pytest writes it, by ``class::name``; none if there is no whole report."""
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return {}
    outcomes: dict[str, Outcome] = {}
    for case in cases:
        name = f"{case.get('classname')}::{case.get('name')}"
        # A test whose teardown breaks has two cases; the worse one is its outcome.
        if outcomes.get(name) is not Outcome.FAILED:
            outcomes[name] = _of_case(case)
    return outcomes


def _of_case(case: ElementTree.Element) -> Outcome:
    tags = {child.tag for child in case}
    if tags & {"failure", "error"}:
        return Outcome.FAILED
    return Outcome.SKIPPED if "skipped" in tags else Outcome.PASSED


def of_librdkafka(report: Path, test: str) -> Outcome:
    """What became of the one test that librdkafka's runner was asked for, by the report that it left."""
    try:
        # Its reasons are copied in as they are, tabs and newlines too.
        tests = json.loads(report.read_text(errors="replace"), strict=False)["tests"]
    except (OSError, ValueError, KeyError):
        return Outcome.UNENDED
    return _RUNNERS_WORDS.get(tests[test]["state"], Outcome.UNENDED) if test in tests else Outcome.SKIPPED


@dataclass(frozen=True)
class Comparison:
    """Two runs of one suite. ``named`` are the tests known to pass on Kafka only; the reasons are in FINDINGS.md."""

    on_kafka: Outcomes
    here: Outcomes
    named: frozenset[str]

    @property
    def passed_on_kafka(self) -> set[str]:
        return {test for test, outcome in self.on_kafka.items() if outcome is Outcome.PASSED}

    @property
    def passed_here(self) -> set[str]:
        return {test for test, outcome in self.here.items() if outcome is Outcome.PASSED}

    @property
    def broken(self) -> dict[str, str]:
        """What passes on Kafka, does not here, and is not named."""
        missing = self.passed_on_kafka - self.passed_here - self.named
        return {test: str(self.here.get(test, "not run")) for test in sorted(missing)}

    @property
    def mended(self) -> list[str]:
        """What is named and passes here."""
        return sorted(self.named & self.passed_here)

    @property
    def summary(self) -> str:
        return (
            f"{len(self.passed_on_kafka)} of {len(self.on_kafka)} pass on Kafka, "
            f"{len(self.passed_on_kafka & self.passed_here)} of these here; "
            f"passing here only: {len(self.passed_here - self.passed_on_kafka)}"
        )


def named_in(listing: Path) -> frozenset[str]:
    """The tests that a file names, one a line; a line that begins with ``#`` is a comment."""
    lines = (line.strip() for line in listing.read_text().splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))
