"""Names in a coordinator's log that are looked for in others: groups and transactional ids, after their topic was given
another number of partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

from sparklog.record.partitioning import coordinator_partition

_LOOK_S = 0.5
"""Between two looks whether it is known by now how many partitions there are."""
_SLICE = 200
"""Names that are looked at in one turn of the loop."""
_NAMED = 3


class CoordinatorsTopic(Protocol):
    """The topic of a kind of coordinator, as far as this broker leads it."""

    @property
    def partition_count(self) -> int: ...

    def is_leader(self, partition: int) -> bool:
        """Not before it is known how many partitions there are."""


class MisplacedNames:
    """The names, in a partition of a coordinator's topic, that are looked for in others: its count was changed since.

    The first of them are remembered. ``add`` is asked of each name.
    """

    def __init__(self, partition: int, partition_count: int) -> None:
        self._partition = partition
        self.partition_count = partition_count
        self.number = 0
        self._first: list[str] = []

    def add(self, name: str) -> None:
        """Take note of ``name`` if it is looked for elsewhere."""
        if coordinator_partition(name, self.partition_count) != self._partition:
            self.number += 1
            if len(self._first) < _NAMED:
                self._first.append(name)

    def __str__(self) -> str:
        return ", ".join(self._first) + (", ..." if self.number > len(self._first) else "")


async def misplaced_in(
    topic: CoordinatorsTopic, partition: int, names: Collection[str], is_current: Callable[[], bool]
) -> MisplacedNames | None:
    """Of ``names``, which the partition holds, those that are looked for in others, once that is known. None where
    there are none, or where the partition is coordinated here no more.
    """
    while is_current() and not topic.is_leader(partition):
        await asyncio.sleep(_LOOK_S)
    if not is_current():
        return None
    misplaced = MisplacedNames(partition, topic.partition_count)
    for number, name in enumerate([*names]):
        misplaced.add(name)
        if number % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
    return misplaced if misplaced.number else None
