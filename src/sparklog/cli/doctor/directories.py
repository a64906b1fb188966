"""Log directories that cannot be used, or that are nearly full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sparklog.cli.doctor.finding import Finding, Severity
from sparklog.structs import BrokerId

if TYPE_CHECKING:
    from sparklog.client.admin.log_dirs import LogDir

FULL_PERCENT = 95
"""From here on it is an error, whatever is asked for."""


def directory_findings(found: Mapping[BrokerId, Sequence[LogDir]], full_percent: int) -> Iterator[Finding]:
    """``full_percent``: of the disk, from which on it is nearly full."""
    for broker, directories in sorted(found.items()):
        for each in sorted(directories):
            where = (f"broker {broker} {each.path}",)
            if each.error is not None:
                yield Finding(
                    Severity.ERROR, f"a log directory cannot be used: {each.error}", where,
                    "see the broker's log and the disk; when it is mended, start the broker again",
                )  # fmt: skip
            elif (used := _used_percent(each)) is not None and used >= min(full_percent, FULL_PERCENT):
                severity = Severity.ERROR if used >= FULL_PERCENT else Severity.WARNING
                yield Finding(severity, f"a log directory's disk is {used:.0f}% full", where, _advice(broker, each))


def _used_percent(directory: LogDir) -> float | None:
    if directory.total_bytes <= 0 or directory.usable_bytes < 0:
        return None
    return 100 * (1 - directory.usable_bytes / directory.total_bytes)


def _advice(broker: BrokerId, directory: LogDir) -> str:
    if not directory.sizes:
        return "free space there: other files take it; sparklog log dirs"
    (topic, partition) = max(directory.sizes, key=lambda tp: directory.sizes[tp])
    return (
        f"have the largest kept for less long: sparklog topic alter {topic} --config retention.ms=86400000;"
        f" or move it away: sparklog log move {topic} --partition {partition} --broker {broker} --to DIR"
    )
