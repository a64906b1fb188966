"""The machine that this runs on, where a broker of the cluster runs on it too: limits of the broker and the kernel.

A log directory that is here and has the ids of the cluster and the broker in its ``meta.properties`` tells that; the
lock on its ``.lock`` file tells the broker's process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sparklog.cli.doctor.finding import Finding, Severity
from sparklog.local.limits import MORE_FILES, shortage_of_files, shortages_of_host
from sparklog.structs import BrokerId

if TYPE_CHECKING:
    from sparklog.client.admin.log_dirs import LogDir

PROC = Path("/proc")
_NEAR = 0.8
"""The share of a limit from which on it is nearly reached."""
_SWAPPY = 10
_FEW_INODES = 0.05


class BrokerLimits(NamedTuple):
    """A broker's process here; None for what the system does not tell us of it."""

    broker: BrokerId
    pid: int
    max_files: int | None
    open_files: int | None
    maps: int | None


class Kernel(NamedTuple):
    """Settings of the kernel; None where there is no such."""

    max_map_count: int | None
    swappiness: int | None


def local_directories(found: Mapping[BrokerId, Sequence[LogDir]], cluster_id: str | None) -> dict[BrokerId, list[Path]]:
    """The log directories that are on this machine."""
    from sparklog.errors import SparklogError
    from sparklog.log.checkpoints import read_meta_properties

    here: dict[BrokerId, list[Path]] = {}
    for broker, directories in found.items():
        for each in directories:
            with suppress(SparklogError, OSError):
                owner = read_meta_properties(Path(each.path))
                if owner.get("broker.id") == str(broker) and owner.get("cluster.id") == cluster_id:
                    here.setdefault(broker, []).append(Path(each.path))
    return here


def broker_limits(broker: BrokerId, directory: Path, proc: Path = PROC) -> BrokerLimits | None:
    """What the process that holds the directory may do and does; None where none is seen."""
    from sparklog.log.inspection.locks import holder

    pid = holder(directory, proc / "locks")
    if not pid:
        return None
    process = proc / str(pid)
    limits = _read(process / "limits") or ""
    max_files = re.search(r"^Max open files +(\d+)", limits, re.MULTILINE)
    maps = _read(process / "maps")
    return BrokerLimits(
        broker, pid, int(max_files[1]) if max_files else None,
        _count(process / "fd"), None if maps is None else maps.count("\n"),
    )  # fmt: skip


def kernel(proc: Path = PROC) -> Kernel:
    """This machine's."""
    return Kernel(*(_number(proc / "sys" / "vm" / name) for name in ("max_map_count", "swappiness")))


def machine_findings(brokers: Sequence[BrokerLimits], system: Kernel) -> Iterator[Finding]:
    """Limits that are nearly reached, or lower than a broker should have."""
    for each in brokers:
        yield from _limit_findings(each, system)
    if brokers and system.swappiness is not None and system.swappiness > _SWAPPY:
        yield Finding(
            Severity.NOTE, f"vm.swappiness={system.swappiness}: brokers may be swapped out for the page cache",
            ("this machine",), "sysctl -w vm.swappiness=1, and in /etc/sysctl.d/sparklog.conf",
        )  # fmt: skip


def _limit_findings(each: BrokerLimits, system: Kernel) -> Iterator[Finding]:
    where = (f"broker {each.broker}, process {each.pid}",)
    if each.max_files is not None and each.open_files is not None and each.open_files > _NEAR * each.max_files:
        what = f"{each.open_files:,} files are open, and {each.max_files:,} may be"
        yield Finding(Severity.ERROR, what, where, MORE_FILES)
    elif few := shortage_of_files(each.max_files):
        yield Finding(Severity.NOTE, few.what, where, few.advice)
    if each.maps is not None and system.max_map_count is not None and each.maps > _NEAR * system.max_map_count:
        yield Finding(
            Severity.ERROR, f"{each.maps:,} regions are mapped, and vm.max_map_count={system.max_map_count:,}", where,
            "sysctl -w vm.max_map_count=1048576, and in /etc/sysctl.d/sparklog.conf",
        )  # fmt: skip


def inode_findings(directories: Sequence[Path]) -> Iterator[Finding]:
    """File systems that have room, and can hold few more files."""
    for each in directories:
        with suppress(OSError):
            found = os.statvfs(each)
            if found.f_files and found.f_favail < _FEW_INODES * found.f_files:
                yield Finding(
                    Severity.WARNING, f"the file system can hold {found.f_favail:,} more files only", (str(each),),
                    "have fewer and larger segments (segment.bytes), or a file system with more inodes",
                )  # fmt: skip


def host_findings(directories: Sequence[Path], proc: Path = PROC) -> Iterator[Finding]:
    """What a host with these log directories should have otherwise; nothing where there is none."""
    if directories:
        with suppress(OSError, ValueError):
            for what, advice in shortages_of_host(directories, proc):
                yield Finding(Severity.NOTE, what, ("this machine",), advice)


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = (_read(path) or "").strip()
    return int(text) if text.isdecimal() else None


def _count(directory: Path) -> int | None:
    try:
        return len(os.listdir(directory))
    except OSError:
        return None
