"""Waves of tasks that write, so large that what all of them write finds room beside each other.

A task sees for itself, before each group of segments, whether the disk has room for that group. It does not see what
those beside it are about to write: without waves that fit they would fill a disk on which a broker writes too.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from sparklog.clock import Clock
from sparklog.compaction.split import RewriteStretch, Target
from sparklog.spark.batch.tasks import Runner

T = TypeVar("T")
_PLENTY = 10


class Room(NamedTuple):
    """What is left on a disk."""

    device: int
    left: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class LookForRoom:
    """See what room there is beside the files of a log."""

    target: Target

    def run(self, clock: Clock) -> Room:  # noqa: ARG002 (it needs no time)
        """Raises OSError."""
        directory = self.target.task.directory
        status = os.statvfs(directory)
        return Room(os.stat(directory).st_dev, status.f_bavail * status.f_frsize)


def log_dir_of(target: Target) -> str:
    """The broker's log directory."""
    return str(Path(target.task.directory).parent)


def size_of(task: RewriteStretch) -> int:
    """Bytes that it writes at most, but for delete horizons."""
    bases = {base for group in task.groups for base in group}
    return sum(each.size for each in task.target.task.segments if each.base_offset in bases)


def ask_for_room(runner: Runner, tasks: Sequence[RewriteStretch], known: Mapping[str, Room]) -> dict[str, Room]:
    """What room there is now, by log directory, where that may count for these tasks; it takes a task for each.

    Of what is ``known`` it is asked again only where the tasks together would take a large part of it.
    """
    size = sum(map(size_of, tasks))
    places = {log_dir_of(each.target): each.target for each in tasks}
    asked = {at: target for at, target in places.items() if at not in known or known[at].left < _PLENTY * size}
    rooms = runner.run([LookForRoom(each) for each in asked.values()])
    return {at: room for at, room in zip(asked, rooms, strict=True) if isinstance(room, Room)}


def next_wave(
    waiting: deque[T], most: int, task_of: Callable[[T], RewriteStretch], rooms: Mapping[str, Room]
) -> list[T]:
    """Take at most ``most`` from the left of ``waiting``: those that find room beside each other.

    The first is always taken: it sees for itself, and fails where it finds none.
    """
    left = {each.device: each.left for each in rooms.values()}
    wave: list[T] = []
    while waiting and len(wave) < most:
        task = task_of(waiting[0])
        room = rooms.get(log_dir_of(task.target))
        if room is not None:
            if wave and left[room.device] < size_of(task):
                break
            left[room.device] -= size_of(task)
        wave.append(waiting.popleft())
    return wave
