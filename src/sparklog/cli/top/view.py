"""What happened between two samples: rows of brokers, topics and groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from sparklog.cli.internal import is_internal_topic
from sparklog.cli.top.sample import Sample
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import BrokerId, TopicPartition


class BrokerRow(NamedTuple):
    """Rates are of the partitions that it leads; bytes and disk are of its log directories, None where it does not tell
    them. ``state``: up; silent; or gone, of one that is not registered and has replicas."""

    broker: int
    state: str
    leads: int
    replicas: int
    records_per_s: float
    bytes_per_s: float | None
    bytes: int | None
    disk_percent: float | None


class TopicRow(NamedTuple):
    """``bytes`` are those of all replicas; ``read_per_s``: by all groups together."""

    topic: str
    partitions: int
    records_per_s: float
    bytes_per_s: float
    read_per_s: float
    bytes: int


class GroupRow(NamedTuple):
    """``lag``: records that are not committed; ``lag_per_s``: by how much that grows. None where its coordinator did
    not tell what is committed."""

    group: str
    state: str
    read_per_s: float | None
    lag: int | None
    lag_per_s: float | None


class View(NamedTuple):
    """What is shown; ``seconds`` is the time between the samples."""

    seconds: float
    brokers: list[BrokerRow]
    topics: list[TopicRow]
    groups: list[GroupRow]


SORTS = {
    "records": ("records_per_s", "read_per_s"),
    "bytes": ("bytes_per_s", "lag"),
    "read": ("read_per_s", "read_per_s"),
    "size": ("bytes", "lag"),
    "lag": ("records_per_s", "lag"),
    "name": (None, None),
}
"""By what topics are sorted, and groups: the highest first, or by name."""

Row = TypeVar("Row", TopicRow, GroupRow)


def compare(before: Sample, after: Sample, *, internal: bool = False) -> View:
    """What came between them. A topic that is new, or was made again, has come with all that it has; a partition or a
    broker that could not be asked the last time has no rate."""
    seconds = max(after.at_s - before.at_s, 1e-9)
    shown = {name for name, topic in after.cluster.topics.items() if internal or not is_internal_topic(topic)}
    before = _without_former_topics(before, after)
    written = {
        tp: max(end - before.ends.get(tp, end if tp.topic in before.cluster.topics else 0), 0) / seconds
        for tp, end in after.ends.items()
    }
    return View(
        seconds,
        _brokers(before, after, seconds, written),
        _topics(before, after, seconds, written, shown),
        _groups(before, after, seconds),
    )


def _without_former_topics(before: Sample, after: Sample) -> Sample:
    """``before`` as if it had not known the topics that were deleted, and made again under their names."""
    now = after.cluster.topics
    former = {
        name
        for name, topic in before.cluster.topics.items()
        if name in now
        and ZERO_UUID not in (topic.topic_id, now[name].topic_id)
        and topic.topic_id != now[name].topic_id
    }
    if not former:
        return before
    cluster = before.cluster._replace(
        topics={name: topic for name, topic in before.cluster.topics.items() if name not in former}
    )
    return before._replace(
        cluster=cluster,
        ends=_of_others(before.ends, former),
        directories={
            broker: [each._replace(sizes=_of_others(each.sizes, former)) for each in directories]
            for broker, directories in before.directories.items()
        },
        committed={group: _of_others(committed, former) for group, committed in before.committed.items()},
    )


def _of_others(found: Mapping[TopicPartition, int], topics: set[str]) -> dict[TopicPartition, int]:
    return {tp: number for tp, number in found.items() if tp.topic not in topics}


def sorted_rows(rows: Sequence[Row], sort: str) -> list[Row]:
    """By one of SORTS; equal ones by name."""
    field = SORTS[sort][isinstance(rows[0], GroupRow)] if rows else None
    by_name = sorted(rows)
    return by_name if field is None else sorted(by_name, key=lambda row: -(getattr(row, field) or 0))


def _brokers(before: Sample, after: Sample, seconds: float, written: Mapping[TopicPartition, float]) -> list[BrokerRow]:
    leads, replicas, rates = defaultdict[int, int](int), defaultdict[int, int](int), defaultdict[int, float](float)
    for topic in after.cluster.topics.values():
        for each in topic.partitions:
            leads[each.leader] += 1
            rates[each.leader] += written.get(TopicPartition(topic.name, each.partition), 0.0)
            for replica in each.replicas:
                replicas[replica] += 1
    rows = []
    for broker in sorted({*after.cluster.brokers, *map(BrokerId, replicas)}):
        size, was = _bytes_of(after, broker), _bytes_of(before, broker)
        growth = None if size is None or was is None else max(size - was, 0) / seconds
        counts = leads[broker], replicas[broker], rates[broker]
        rows.append(BrokerRow(broker, _state(after, broker), *counts, growth, size, _disk_percent(after, broker)))
    return rows


def _state(sample: Sample, broker: BrokerId) -> str:
    if broker not in sample.cluster.brokers:
        return "gone"
    return "silent" if broker in sample.silent else "up"


def _bytes_of(sample: Sample, broker: BrokerId) -> int | None:
    directories = sample.directories.get(broker)
    return None if directories is None else sum(sum(each.sizes.values()) for each in directories)


def _disk_percent(sample: Sample, broker: BrokerId) -> float | None:
    """The fullest of its disks."""
    told = [each for each in sample.directories.get(broker, ()) if each.total_bytes > 0 and each.usable_bytes >= 0]
    return max((100 * (1 - each.usable_bytes / each.total_bytes) for each in told), default=None)


def _topics(
    before: Sample, after: Sample, seconds: float, written: Mapping[TopicPartition, float], shown: set[str]
) -> list[TopicRow]:
    records, read = _by_topic(written), _by_topic(_read(before, after, seconds))
    sizes = _sizes(after, after.directories)
    both = after.directories.keys() & before.directories.keys()
    now, were = _sizes(after, both), _sizes(before, both)
    return [
        TopicRow(
            name,
            len(after.cluster.topics[name].partitions),
            records[name],
            max(now[name] - were[name], 0) / seconds,
            read[name],
            int(sizes[name]),
        )
        for name in sorted(shown)
    ]


def _sizes(sample: Sample, brokers: Collection[BrokerId]) -> defaultdict[str, float]:
    """Bytes of all replicas of each topic on these brokers."""
    return _by_topic(*(each.sizes for broker in brokers for each in sample.directories[broker]))


def _by_topic(*amounts: Mapping[TopicPartition, float]) -> defaultdict[str, float]:
    found = defaultdict[str, float](float)
    for each in amounts:
        for tp, amount in each.items():
            found[tp.topic] += amount
    return found


def _read(before: Sample, after: Sample, seconds: float) -> dict[TopicPartition, float]:
    """Records that groups committed, a second."""
    found = defaultdict[TopicPartition, float](float)
    for group, committed in after.committed.items():
        for tp, at in committed.items():
            found[tp] += max(at - before.committed.get(group, {}).get(tp, at), 0) / seconds
    return found


def _groups(before: Sample, after: Sample, seconds: float) -> list[GroupRow]:
    rows = []
    for name, state in sorted(after.states.items()):
        if name not in after.committed:
            rows.append(GroupRow(name, state, None, None, None))
            continue
        committed, was = after.committed[name], before.committed.get(name, {})
        read = sum(max(at - was.get(tp, at), 0) for tp, at in committed.items()) / seconds
        lag = _lag(after, name, after.ends)
        both = after.ends.keys() & before.ends.keys()
        growth = (_lag(after, name, both) - _lag(before, name, both)) / seconds if name in before.committed else 0.0
        rows.append(GroupRow(name, state, read, lag, growth))
    return rows


def _lag(sample: Sample, group: str, known: Collection[TopicPartition]) -> int:
    """In the partitions of which it is ``known`` where they end."""
    return sum(max(sample.ends[tp] - at, 0) for tp, at in sample.committed[group].items() if tp in known)
