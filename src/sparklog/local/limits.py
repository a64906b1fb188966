"""What the system lets a broker have: open files, waiting connections, a file system that keeps what it was told to."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

PROC = Path("/proc")
ENOUGH_FILES: Final = 100_000
"""So many open files are right for 20,000 segments, of which each keeps up to five."""
ENOUGH_WAITING: Final = 512
"""Connections that a broker asks the kernel to keep until it takes them."""
MORE_FILES: Final = "LimitNOFILE=1048576 in its systemd unit, or ulimit -n 1048576; then start it again"
_UNFIT: Final = {
    "tmpfs": "keeps its files in memory: they are gone when the machine stops",
    "ramfs": "keeps its files in memory: they are gone when the machine stops",
    "overlay": "is a container's own: its files are gone with the container",
    **dict.fromkeys(
        ("nfs", "nfs4", "cifs", "smb3", "9p"), "is another machine's: a broker waits for the network at each fsync"
    ),
}
"""File systems for no log directory, and why."""


class Shortage(NamedTuple):
    """A limit that is lower than a broker should have: what it is, and what to do."""

    what: str
    advice: str


def allow_many_files() -> int | None:
    """Raise the number of files that this process may open as far as it may; that number, None for any number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return None if hard == resource.RLIM_INFINITY else hard


def shortage_of_files(most: int | None) -> Shortage | None:
    """Whether ``most`` open files, None for any number, are too few."""
    if most is None or most >= ENOUGH_FILES:
        return None
    return Shortage(f"only {most:,} files may be open; a segment takes up to five", MORE_FILES)


def shortages_of_host(directories: Sequence[Path], proc: Path = PROC) -> Iterator[Shortage]:
    """What is wrong with the kernel's queue of connections, and with the file systems of ``directories``."""
    waiting = (proc / "sys" / "net" / "core" / "somaxconn").read_text().strip()
    if int(waiting) < ENOUGH_WAITING:
        yield Shortage(
            f"net.core.somaxconn={waiting}: when many clients connect at once, some are turned away",
            "sysctl -w net.core.somaxconn=4096, and in /etc/sysctl.d/sparklog.conf",
        )
    mounts = _mounts(proc)
    for each in directories:
        kind = _file_system(each.resolve(), mounts)
        if kind in _UNFIT:
            yield Shortage(
                f"the file system of {each}, {kind}, {_UNFIT[kind]}", "put log.dirs on a local disk, with XFS or ext4"
            )


def _mounts(proc: Path) -> dict[Path, str]:
    """The kind of file system by where it is mounted; a later mount hides an earlier one."""
    found = {}
    for line in (proc / "self" / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        place = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split()[4])
        found[Path(place)] = after.split()[0]
    return found


def _file_system(directory: Path, mounts: dict[Path, str]) -> str:
    place = next((each for each in (directory, *directory.parents) if each in mounts), Path(os.sep))
    return mounts.get(place, "")
