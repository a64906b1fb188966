"""Offsets of many partitions: their JSON in Spark's checkpoint, and the ranges between two of them cut into tasks.

The JSON is that of Spark's Kafka source, ``{"topic": {"0": 12}}``, keys in order: Spark compares offsets as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from sparklog.structs import TopicPartition

Offsets = dict[TopicPartition, int]

PACKED_OFFSETS = 100_000
"""Offsets up to which ranges share a task: a Python task costs about 45 ms, as reading 50,000 records does."""


class OffsetRange(NamedTuple):
    """The offsets ``start`` ≤ o < ``end`` of one partition, of the topic that had ``topic_id`` when it was planned."""

    tp: TopicPartition
    start: int
    end: int
    topic_id: UUID | None = None

    @property
    def size(self) -> int:
        """Offsets, which may be more than records: compaction and transactions leave gaps."""
        return self.end - self.start


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """What Spark keeps in the checkpoint."""
    tree: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        tree.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return tree


def from_json(tree: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """What ``to_json`` made."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in tree.items()
        for partition, offset in partitions.items()
    }


def into_tasks(
    ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[list[OffsetRange]]:
    """The ranges of each task; empty ranges are left out.

    Without limits a range is never cut, so each partition's records stay in order in one task, and small ranges share
    a task. ``max_records`` cuts and bounds a task; ``min_partitions`` cuts the largest ranges until there are so many,
    evenly, however skewed the partitions are.
    """
    whole = sorted((each for each in ranges if each.size > 0), key=lambda each: each.tp)
    pieces = [-(-each.size // max_records) if max_records else 1 for each in whole]
    if min_partitions:
        _raise_to(whole, pieces, min_partitions)
    cut = [part for each, count in zip(whole, pieces, strict=True) for part in _cut(each, count)]
    if min_partitions:
        return [[each] for each in cut]
    return _pack(cut, min(PACKED_OFFSETS, max_records or PACKED_OFFSETS))


def _raise_to(ranges: list[OffsetRange], pieces: list[int], least: int) -> None:
    """Cut more, in proportion to size, until there are ``least`` pieces; a piece has at least one offset."""
    total = sum(each.size for each in ranges)
    for index, each in enumerate(ranges):
        pieces[index] = max(pieces[index], each.size * least // total)
    while sum(pieces) < least:
        index = max(range(len(ranges)), key=lambda i: ranges[i].size / pieces[i], default=-1)
        if index < 0 or ranges[index].size <= pieces[index]:
            return
        pieces[index] += 1


def _cut(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.size * index // pieces for index in range(pieces + 1)]
    return [whole._replace(start=low, end=high) for low, high in pairwise(bounds)]


def _pack(ranges: list[OffsetRange], limit: int) -> list[list[OffsetRange]]:
    tasks: list[list[OffsetRange]] = []
    filled = limit + 1
    for each in ranges:
        if filled + each.size > limit:
            tasks.append([])
            filled = 0
        tasks[-1].append(each)
        filled += each.size
    return tasks


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int) -> Offsets:
    """``end`` brought back so that about ``limit`` offsets lie after ``start``.

    Every partition with something to read gets at least one offset, so that a small one is not starved by large ones;
    what is left is shared in proportion.
    """
    sizes = {tp: max(end[tp] - start.get(tp, end[tp]), 0) for tp in end}
    total = sum(sizes.values())
    if total <= limit:
        return dict(end)
    waiting = [tp for tp in sorted(sizes) if sizes[tp]]
    spare = max(limit - len(waiting), 0)
    beyond = max(total - len(waiting), 1)
    bounded = dict(end)
    for tp in waiting:
        bounded[tp] = start[tp] + 1 + (sizes[tp] - 1) * spare // beyond
    return bounded
