"""Log directories that cannot be used, or that are nearly full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
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
                yield Finding(
                    severity,
                    f"a log directory's disk is {used:.0f}% full",
                    where,
                    _advice(broker, each, directories, full_percent),
                )


def _used_percent(directory: LogDir, more_bytes: int = 0) -> float | None:
    """Also with ``more_bytes`` written there; None where the broker does not tell."""
    if directory.total_bytes <= 0 or directory.usable_bytes < 0:
        return None
    return 100 * (1 - (directory.usable_bytes - more_bytes) / directory.total_bytes)


def _advice(broker: BrokerId, directory: LogDir, theirs: Sequence[LogDir], full_percent: int) -> str:
    return "; or ".join([*_other_files(directory), *_largest_partition(broker, directory, theirs, full_percent)])


def _other_files(directory: LogDir) -> Iterator[str]:
    """Where they take more than the broker's."""
    taken = directory.total_bytes - directory.usable_bytes
    others = taken - sum(directory.sizes.values())
    if 2 * others > taken:
        yield (
            f"{others:,} of {directory.total_bytes:,} bytes are taken by other files than the broker's: see on its host"
            f" du -xh {quote(f'{directory.path}/..')}"
        )


def _largest_partition(
    broker: BrokerId, directory: LogDir, theirs: Sequence[LogDir], full_percent: int
) -> Iterator[str]:
    """To be kept for less long, or moved: to a log directory of the broker that is not full with it, or else away."""
    if not directory.sizes:
        return
    largest = max(directory.sizes, key=lambda tp: directory.sizes[tp])
    yield f"have the largest kept for less long: sparklog topic alter {largest.topic} --config retention.ms=86400000"
    size = directory.sizes[largest]
    roomy = {
        each.path: used
        for each in theirs
        if each.error is None and (used := _used_percent(each, size)) is not None and used < full_percent
    }
    if roomy:
        target = quote(min(roomy, key=lambda path: roomy[path]))
        place = f"{largest.topic} --partition {largest.partition} --broker {broker}"
        yield f"move it: sparklog log move {place} --to {target}"
    else:
        yield f"move it to other brokers: sparklog cluster reassign --topic {largest.topic} --brokers ID,ID"
