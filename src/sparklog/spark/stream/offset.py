"""Where a streaming query is, as Spark keeps it in its checkpoint.

The JSON is that of Spark's Kafka source, ``{"topic": {"0": 12}}``, keys in order, since Spark compares offsets as text.
Beside each topic stands what else is known, as topics without partitions whose names no topic can have: its id,
``"topic@b3f4…": {}``, and under ``"topic@7:0-3,5": {}`` the leader epoch, 7, in which the offsets of partitions were an
end of the log. The Kafka source reads that as nothing, and so either can go on where the other stopped; ours thereby
knows after a restart too that a topic was deleted and created again, or a log cut off.
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


class StreamOffset(NamedTuple):
    """The next offset of each partition, and the id of each topic, where the brokers tell it.

    ``epochs``: for partitions of which it is known, a leader epoch that no record before the offset is later than.
    """

    offsets: Offsets
    topic_ids: TopicIds
    epochs: Epochs = {}  # noqa: RUF012 (never changed)

    @classmethod
    def from_json(cls, tree: Mapping[str, Mapping[str, Any]]) -> StreamOffset:
        """What ``to_json`` made, or the Kafka source."""
        ids: dict[str, UUID] = {}
        epochs: dict[TopicPartition, int] = {}
        for topic, _, said in (name.partition("@") for name in tree if "@" in name):
            epoch, colon, partitions = said.partition(":")
            if colon:
                epochs |= {TopicPartition(topic, each): int(epoch) for each in _numbers(partitions)}
            else:
                ids[topic] = UUID(said)
        return cls(from_json(tree), ids, epochs)

    def to_json(self) -> dict[str, dict[str, int]]:
        """What Spark keeps in the checkpoint."""
        ids = {topic: self.topic_ids.get(topic, ZERO_UUID) for topic in {tp.topic for tp in self.offsets}}
        names = {f"{topic}@{each}" for topic, each in ids.items() if each != ZERO_UUID}
        led: dict[tuple[str, int], list[int]] = {}
        for tp in sorted(self.offsets.keys() & self.epochs.keys()):
            led.setdefault((tp.topic, self.epochs[tp]), []).append(tp.partition)
        names |= {f"{topic}@{epoch}:{_ranges(partitions)}" for (topic, epoch), partitions in led.items()}
        return dict(sorted({**to_json(self.offsets), **{name: {} for name in names}}.items()))

    def is_same_topic(self, topic: str, other: StreamOffset) -> bool:
        """Whether a topic is the same one in both, as far as both know it."""
        ids = {
            each for each in (self.topic_ids.get(topic), other.topic_ids.get(topic)) if each not in (None, ZERO_UUID)
        }
        return len(ids) < 2


def _ranges(numbers: Iterable[int]) -> str:
    """Rising numbers as ``0-3,5``."""
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
