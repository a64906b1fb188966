"""Where a read starts or ends in each partition: at an edge, at offsets, or at timestamps (ms)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from sparklog.spark.options.definition import Kind, invalid
from sparklog.spark.options.json_objects import json_object, once, whole
from sparklog.spark.options.kinds import parsed
from sparklog.structs import TopicPartition

LATEST_OFFSET = -1
EARLIEST_OFFSET = -2
_NEGATIVES = "only -2 (earliest) and -1 (latest) may be negative"
_OFFSETS_EXAMPLE = '{"topicA": {"0": 23, "1": -1}}'
_TIMESTAMPS_EXAMPLE = '{"topicA": {"0": 1700000000000, "1": -1}}'


class Edge(Enum):
    """The first offset of a partition, or its end, at the time of the request."""

    EARLIEST = EARLIEST_OFFSET
    LATEST = LATEST_OFFSET


@dataclass(frozen=True)
class SpecificOffsets:
    """An offset for every partition; -2 and -1 mean its edges."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class SpecificTimestamps:
    """A timestamp (ms) for every partition: the first record at or after it; -2 and -1 mean its edges."""

    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class GlobalTimestamp:
    """One timestamp (ms) for all partitions; -2 and -1 mean their edges."""

    timestamp: int


Limit = Edge | SpecificOffsets | SpecificTimestamps | GlobalTimestamp


def _timestamp(name: str, text: str) -> GlobalTimestamp:
    time = parsed(name, text, lambda number: whole(int(number)), "a timestamp in milliseconds")
    if time < EARLIEST_OFFSET:
        raise invalid(name, text, _NEGATIVES)
    return GlobalTimestamp(time)


def _timestamps(name: str, text: str) -> SpecificTimestamps:
    return SpecificTimestamps(_by_partition(name, text, _TIMESTAMPS_EXAMPLE))


def _offsets(name: str, text: str) -> Edge | SpecificOffsets:
    if text.strip().upper() in Edge.__members__:
        return Edge[text.strip().upper()]
    return SpecificOffsets(_by_partition(name, text, f"earliest, latest or {_OFFSETS_EXAMPLE}"))


def _by_partition(name: str, text: str, example: str) -> dict[TopicPartition, int]:
    topics = json_object(name, text, example)
    try:
        found = [
            (TopicPartition(topic, int(partition)), whole(value))
            for topic, partitions in topics.items()
            for partition, value in partitions.items()
        ]
    except (TypeError, ValueError, AttributeError):
        raise invalid(name, text, f"write it like {example}") from None
    for tp, value in found:
        if value < EARLIEST_OFFSET:
            raise invalid(name, text, f"partition {tp} has {value}; {_NEGATIVES}")
    return once(name, text, "partition", found)


TIMESTAMP = Kind(_timestamp, "milliseconds since 1970")
TIMESTAMPS = Kind(_timestamps, f"JSON: `{_TIMESTAMPS_EXAMPLE}`")
OFFSETS = Kind(_offsets, f"`earliest`, `latest`, or JSON: `{_OFFSETS_EXAMPLE}`", lambda edge: str(edge.name).lower())
