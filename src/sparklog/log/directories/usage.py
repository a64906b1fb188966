"""What lies in the log directories, and how much room is left on their disks."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from sparklog.log.files import disk_refused
from sparklog.log.log import Log
from sparklog.structs import TopicPartition

_SLICE = 50
"""So many logs are looked at in one step."""
_Logs = Mapping[TopicPartition, Log]


class LogUse(NamedTuple):
    """A log in a log directory."""

    size: int
    """Bytes."""
    lag: int = 0
    """Offsets that it is behind what is committed; a future copy: behind the partition's log, -1 if that is away."""
    is_future: bool = False


class DirectoryUse(NamedTuple):
    """One log directory, and what is in it unless it failed; sizes in bytes."""

    path: Path
    failure: str | None
    partitions: Mapping[TopicPartition, LogUse] = MappingProxyType({})
    total_bytes: int = -1
    usable_bytes: int = -1


class DirectoryRoom(NamedTuple):
    """The disk that a log directory is on; bytes."""

    path: Path
    total: int
    free: int
    """What the broker may still write: what is kept for root is not in it."""


def room_of(home: Path) -> DirectoryRoom | None:
    """None where the system cannot tell."""
    try:
        found = shutil.disk_usage(home)
    except OSError:
        return None
    return DirectoryRoom(home, found.total, found.free)


def usage_of(homes: Sequence[Path], logs: _Logs, futures: _Logs) -> Generator[None, None, list[DirectoryUse]]:
    """Of each log directory of ``homes``; some logs a step, between which they may change."""
    uses: dict[Path, dict[TopicPartition, LogUse]] = {home: {} for home in homes}
    for number, (tp, log) in enumerate([*logs.items(), *futures.items()]):
        if log in (logs.get(tp), futures.get(tp)):
            uses.get(log.directory.parent, {})[tp] = _use_of(log, logs.get(tp))
        if number % _SLICE == _SLICE - 1:
            yield
    return [_directory(home, uses[home]) for home in homes]


def _use_of(log: Log, current: Log | None) -> LogUse:
    """Source: Kafka 3.9, ``ReplicaManager.getLogEndOffsetLag``."""
    if log is current:
        return LogUse(log.size, max(log.high_watermark - log.log_end_offset, 0))
    return LogUse(log.size, -1 if current is None else current.log_end_offset - log.log_end_offset, is_future=True)


def _directory(home: Path, uses: Mapping[TopicPartition, LogUse]) -> DirectoryUse:
    try:
        room = shutil.disk_usage(home)
    except OSError as error:
        return DirectoryUse(home, str(disk_refused(f"cannot look at {home}", error)))
    return DirectoryUse(home, None, uses, room.total, room.free)
