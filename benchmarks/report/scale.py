"""``benchmarks.scale``."""

from __future__ import annotations

from benchmarks.report.base import Rows, Section
from benchmarks.report.compared import HEADER, compared_rows, judgement

_TEXT = """\
The same two clusters while they grow: three replicas a partition, so each broker holds as many replicas as there are
partitions, and leads a third of them. All figures but the time to make partitions and the memory are of a cluster of
which one partition is written to; *idle* is without any. Processor time and memory are of the three brokers together.
One round; how it is measured: `benchmarks/scale.py`, what follows from it: `docs/scale.md`."""


def scale(rows: Rows) -> Section:
    """``benchmarks.scale``."""
    return Section("Many partitions", _TEXT, HEADER, compared_rows(rows), [judgement(rows)])
