"""From raw numbers to tables: on the terminal, and in ``docs/performance.md``.

A section is one benchmark's rows, shown: what each row's columns are, what was aimed at, and whether it was reached.
A module a section.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.report.base import Rows as Rows
from benchmarks.report.base import Section
from benchmarks.report.broker import broker
from benchmarks.report.client import client
from benchmarks.report.codec import codec
from benchmarks.report.compaction import compaction
from benchmarks.report.delivery import delivery
from benchmarks.report.lake import lake
from benchmarks.report.log import log
from benchmarks.report.replication import replication
from benchmarks.report.scale import scale
from benchmarks.report.security import security
from benchmarks.report.spark import spark
from benchmarks.report.stalls import stalls

SECTIONS: dict[str, Callable[[Rows], Section]] = {
    "codec": codec,
    "log": log,
    "compaction": compaction,
    "broker": broker,
    "replication": replication,
    "scale": scale,
    "stalls": stalls,
    "delivery": delivery,
    "security": security,
    "client": client,
    "spark": spark,
    "lake": lake,
}
