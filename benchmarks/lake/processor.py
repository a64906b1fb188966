"""Processor time of a Spark session: the driver's Python, its JVM, and the Python workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def spent_cpu_s(spark: SparkSession) -> float:
    """Seconds so far, those of workers that have ended among them."""
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    own = sum(os.times()[:2])
    return own + sum(_ticks(pid) for pid in _tree(jvm)) / _TICKS_A_SECOND


def _tree(pid: int) -> Iterator[int]:
    """A process and all beneath it."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                yield from _tree(child)


def _ticks(pid: int) -> int:
    """User and system time, that of children that were waited for among it (``proc_pid_stat(5)``)."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15]))
    return 0
