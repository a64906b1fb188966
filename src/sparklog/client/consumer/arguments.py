"""What users hand a consumer, checked before anything is done with it: TypeError and LocalProtocolError say what fits.

A wrong type that passes breaks something later, far from the line that wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import SupportsIndex

from sparklog.client.cluster.arguments import as_timestamp
from sparklog.client.consumer.group.committed import OffsetAndMetadata, Offsets
from sparklog.errors import LocalProtocolError
from sparklog.record import layout
from sparklog.structs import NO_EPOCH, TopicPartition


def check_topics(topics: Iterable[str]) -> tuple[str, ...]:
    """Names of topics. Raises LocalProtocolError for one text in place of a list, TypeError for what is no name."""
    if isinstance(topics, str):
        raise LocalProtocolError(f"subscribe takes a list of topics, not the text {topics!r}: write [{topics!r}]")
    given = tuple(topics) if isinstance(topics, Iterable) else (topics,)
    for topic in given:
        if not isinstance(topic, str):
            raise TypeError(f"subscribe takes a list of topics' names, and {topic!r} is not a str")
    return given


def check_partitions(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Partitions, each a TopicPartition. Raises TypeError."""
    if isinstance(partitions, TopicPartition) or not isinstance(partitions, Iterable):
        raise TypeError(f"this takes a list of TopicPartition, not {partitions!r}: write [TopicPartition('t', 0)]")
    given = tuple(partitions)
    for tp in given:
        check_partition(tp)
    return given


def check_partition(tp: TopicPartition) -> None:
    """A topic's name and a number. Raises TypeError."""
    fits = isinstance(tp, TopicPartition) and isinstance(tp.topic, str) and _is_whole(tp.partition)
    if not fits:
        raise TypeError(f"this takes a TopicPartition of a str and an int, such as TopicPartition('t', 0), not {tp!r}")


def check_offset(offset: int | OffsetAndMetadata) -> OffsetAndMetadata:
    """An offset, bare or with what is stored beside it.

    Raises TypeError, LocalProtocolError for one that is too large.
    """
    at = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
    if not (_is_whole(at.offset) and _is_whole(at.leader_epoch) and isinstance(at.metadata, str)):
        raise TypeError(f"an offset is an int or OffsetAndMetadata(int, int, str), not {offset!r}")
    if at.offset > layout.MAX_INT64:
        raise LocalProtocolError(f"an offset is at most {layout.MAX_INT64}, not {at.offset}")
    if not NO_EPOCH <= at.leader_epoch <= layout.MAX_INT32:
        raise LocalProtocolError(f"a leader epoch is from {NO_EPOCH} to {layout.MAX_INT32}, not {at.leader_epoch}")
    return at


def check_offsets(offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> Offsets:
    """Offsets to be committed. Raises TypeError, LocalProtocolError for one that no log can have."""
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets are a mapping such as {{TopicPartition('t', 0): 5}}, not {offsets!r}")
    found = {}
    for tp, offset in offsets.items():
        check_partition(tp)
        found[tp] = check_offset(offset)
        if found[tp].offset < 0:
            raise LocalProtocolError(f"cannot commit the offset {found[tp].offset} for partition {tp}")
    return found


def check_timestamps(timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Times (ms) that records may have: to a broker a negative one means an end of the partition, or nothing.

    Raises TypeError, ValueError for a time that no record can have.
    """
    if not isinstance(timestamps, Mapping):
        raise TypeError(f"timestamps are a mapping such as {{TopicPartition('t', 0): 5}}, not {timestamps!r}")
    found = {}
    for tp, timestamp in timestamps.items():
        check_partition(tp)
        found[tp] = as_timestamp(timestamp)
    return found


def check_seconds(timeout: float) -> None:
    """A time to wait. Raises TypeError."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"a timeout is a number of seconds, not {timeout!r}")


def _is_whole(number: object) -> bool:
    """NumPy's integers count too."""
    return isinstance(number, SupportsIndex) and not isinstance(number, bool)
