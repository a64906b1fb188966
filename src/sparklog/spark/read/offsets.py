"""Offsets of many partitions: their JSON in Spark's checkpoint, and how the ranges between two are split into tasks.

The JSON is that of Spark's Kafka source, ``{"topic": {"0": 12}}``, with sorted keys: Spark compares offsets as text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from sparklog.structs import TopicPartition

Offsets = dict[TopicPartition, int]

PACKED_OFFSETS = 100_000
"""The most offsets of ranges that share a task. A Python task costs about 45 ms, the time to read 50,000 records.

The number of cores would be a better measure, but the process that plans a Python data source knows neither the cores
nor Spark's settings."""


class OffsetRange(NamedTuple):
    """The offsets ``start`` ≤ o < ``end`` of one partition, of the topic that had ``topic_id`` when it was planned."""

    tp: TopicPartition
    start: int
    end: int
    topic_id: UUID | None = None

    @property
    def size(self) -> int:
        """The number of offsets; it may exceed that of records, since compaction and transactions leave gaps."""
        return self.end - self.start


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The JSON that Spark keeps in the checkpoint."""
    tree: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        tree.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return tree


def from_json(tree: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """The offsets in what ``to_json`` made."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in tree.items()
        for partition, offset in partitions.items()
    }


@dataclass(frozen=True)
class Split:
    """How ranges are split into tasks; None is no limit. ``weights``: bytes per offset; by default 1 each."""

    min_tasks: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    weights: Mapping[TopicPartition, float] = field(default_factory=dict)

    def weigh(self, each: OffsetRange) -> float:
        """The estimated bytes of a range, or its offsets."""
        return each.size * self.weights.get(each.tp, 1.0)


def into_tasks(ranges: Iterable[OffsetRange], split: Split | None = None) -> list[list[OffsetRange]]:
    """The ranges of each task; empty ranges are left out.

    Without limits a range is never split, so each partition's records stay in order in one task, and small ranges share
    a task. ``max_records`` and ``max_bytes`` split ranges and limit a task, but a task has one offset at least.
    ``min_tasks`` splits the heaviest ranges, evenly, until there are that many tasks, however skewed the partitions
    are; light ranges share tasks as long as enough tasks remain.
    """
    split = split or Split()
    whole = sorted((each for each in ranges if each.size > 0), key=lambda each: each.tp)
    pieces = [_least_pieces(each, split) for each in whole]
    if split.min_tasks:
        _add_pieces(whole, pieces, split)
    cut = [part for each, count in zip(whole, pieces, strict=True) for part in _cut(each, count)]
    tasks = _pack(cut, split)
    return tasks if len(tasks) >= (split.min_tasks or 0) else [[each] for each in cut]


def _least_pieces(each: OffsetRange, split: Split) -> int:
    by_records = -(-each.size // split.max_records) if split.max_records else 1
    by_bytes = math.ceil(split.weigh(each) / split.max_bytes) if split.max_bytes else 1
    return min(max(by_records, by_bytes), each.size)


def _add_pieces(ranges: list[OffsetRange], pieces: list[int], split: Split) -> None:
    """Raise the numbers of pieces, by weight, to a sum of ``min_tasks``; a piece has one offset at least."""
    least = split.min_tasks or 0
    total = sum(split.weigh(each) for each in ranges)
    for index, each in enumerate(ranges):
        pieces[index] = max(pieces[index], min(round(split.weigh(each) * least / total), each.size))
    while sum(pieces) < least:
        divisible = [index for index in range(len(ranges)) if ranges[index].size > pieces[index]]
        if not divisible:
            return
        pieces[max(divisible, key=lambda index: split.weigh(ranges[index]) / pieces[index])] += 1


def _cut(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.size * index // pieces for index in range(pieces + 1)]
    return [whole._replace(start=low, end=high) for low, high in pairwise(bounds)]


def _pack(ranges: list[OffsetRange], split: Split) -> list[list[OffsetRange]]:
    """Put ranges into one task, in order, until the next would exceed one of its limits."""
    records = min(PACKED_OFFSETS, split.max_records or PACKED_OFFSETS)
    weight = float(split.max_bytes) if split.max_bytes else math.inf
    if split.min_tasks:
        weight = min(weight, sum(split.weigh(each) for each in ranges) / split.min_tasks)
    tasks: list[list[OffsetRange]] = []
    offsets_left, weight_left = 0, 0.0
    for each in ranges:
        if not tasks or each.size > offsets_left or split.weigh(each) > weight_left:
            tasks.append([])
            offsets_left, weight_left = records, weight
        tasks[-1].append(each)
        offsets_left -= each.size
        weight_left -= split.weigh(each)
    return tasks


def limited(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    limit: int,
    weights: Mapping[TopicPartition, float] | None = None,
) -> Offsets:
    """``end`` lowered so that about ``limit`` offsets lie after ``start``; bytes, with ``weights`` as bytes per offset.

    Every partition with something to read gets one offset at least, so that large ones cannot starve a small one; the
    remaining limit is shared in proportion to size.
    """
    weights = weights or {}
    sizes = {tp: max(end[tp] - start.get(tp, end[tp]), 0) for tp in end}
    total = sum(size * weights.get(tp, 1) for tp, size in sizes.items())
    if total <= limit:
        return dict(end)
    waiting = [tp for tp in sorted(sizes) if sizes[tp]]
    firsts = sum(weights.get(tp, 1) for tp in waiting)
    spare = max(limit - firsts, 0)
    beyond = max(total - firsts, 1)
    bounded = dict(end)
    for tp in waiting:
        bounded[tp] = start[tp] + 1 + int((sizes[tp] - 1) * spare // beyond)
    return bounded
