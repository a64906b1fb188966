"""The offset of a streaming query, as Spark keeps it in its checkpoint.

The JSON is that of Spark's Kafka source, ``{"topic": {"0": 12}}``, with sorted keys, since Spark compares offsets as
text. It also has topics without partitions, under names that no topic can have: ``"topic@b3f4…": {}`` is the topic's
id, and ``"topic@7:0-3,5": {}`` says that the offsets of partitions 0 to 3 and 5 were an end of the log in leader epoch
7. The Kafka source ignores these, so either source can continue where the other stopped. With them this source detects
after a restart, too, that a topic was deleted and created again, or that a log was truncated.

In the end of a query's first batch ``"topic@from:0=5,1=7": {}`` says at which offset each partition begins. Spark keeps
the start of every other batch as the end of the one before. For the first it asks again after a restart, and would be
told another "latest".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from sparklog.protocol.wire import ZERO_UUID
from sparklog.spark.read.offsets import Offsets, from_json, to_json
from sparklog.structs import TopicPartition

TopicIds = Mapping[str, UUID]
Epochs = Mapping[TopicPartition, int]
_FROM = "from"


class StreamOffset(NamedTuple):
    """The next offset of each partition, and the id of each topic that has one.

    ``epochs``: a leader epoch of each partition of which it is known; no record before the offset has a later one.
    ``begins``: of the end of a query's first batch, where each partition begins in it; empty for any other offset.
    """

    offsets: Offsets
    topic_ids: TopicIds
    epochs: Epochs = {}  # noqa: RUF012 (never changed)
    begins: Mapping[TopicPartition, int] = {}

    @classmethod
    def from_json(cls, tree: Mapping[str, Mapping[str, Any]]) -> StreamOffset:
        """The offset in what ``to_json`` or the Kafka source made."""
        ids: dict[str, UUID] = {}
        epochs: dict[TopicPartition, int] = {}
        begins: Offsets = {}
        for topic, _, suffix in (name.partition("@") for name in tree if "@" in name):
            kind, colon, partitions = suffix.partition(":")
            if kind == _FROM:
                begins |= {TopicPartition(topic, each): offset for each, offset in _pairs(partitions)}
            elif colon:
                epochs |= {TopicPartition(topic, each): int(kind) for each in _numbers(partitions)}
            else:
                ids[topic] = UUID(suffix)
        return cls(from_json(tree), ids, epochs, begins)

    def to_json(self) -> dict[str, dict[str, int]]:
        """The JSON that Spark keeps in the checkpoint."""
        ids = {topic: self.topic_ids.get(topic, ZERO_UUID) for topic in {tp.topic for tp in self.offsets}}
        names = {f"{topic}@{each}" for topic, each in ids.items() if each != ZERO_UUID}
        by_epoch: dict[tuple[str, int], list[int]] = {}
        for tp in sorted(self.offsets.keys() & self.epochs.keys()):
            by_epoch.setdefault((tp.topic, self.epochs[tp]), []).append(tp.partition)
        names |= {f"{topic}@{epoch}:{_ranges(partitions)}" for (topic, epoch), partitions in by_epoch.items()}
        begins: dict[str, list[str]] = {}
        for tp in sorted(self.begins):
            begins.setdefault(tp.topic, []).append(f"{tp.partition}={self.begins[tp]}")
        names |= {f"{topic}@{_FROM}:{','.join(pairs)}" for topic, pairs in begins.items()}
        return dict(sorted({**to_json(self.offsets), **{name: {} for name in names}}.items()))

    def is_same_topic(self, topic: str, other: StreamOffset) -> bool:
        """Whether both offsets mean the same topic; true if either does not know its id."""
        ids = {
            each for each in (self.topic_ids.get(topic), other.topic_ids.get(topic)) if each not in (None, ZERO_UUID)
        }
        return len(ids) < 2


def _ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as ``0-3,5``."""
    runs: list[list[int]] = []
    for each in numbers:
        if runs and runs[-1][-1] == each - 1:
            runs[-1][1:] = [each]
        else:
            runs.append([each])
    return ",".join("-".join(map(str, run)) for run in runs)


def _numbers(ranges: str) -> Iterator[int]:
    for run in ranges.split(","):
        first, _, last = run.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _pairs(text: str) -> Iterator[tuple[int, int]]:
    for pair in text.split(","):
        partition, _, offset = pair.partition("=")
        yield int(partition), int(offset)
