"""Where a streaming query is, as Spark keeps it in its checkpoint.

The JSON is that of Spark's Kafka source, ``{"topic": {"0": 12}}``, keys in order, since Spark compares offsets as text.
Beside each topic stands its id, as a topic without partitions whose name no topic can have:
``{"topic": {"0": 12}, "topic@b3f4…": {}}``. The Kafka source reads that as nothing, and so either can go on where the
other stopped; ours thereby knows after a restart too that a topic was deleted and created again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from sparklog.protocol.wire import ZERO_UUID
from sparklog.spark.offsets import Offsets, from_json, to_json

TopicIds = Mapping[str, UUID]


class StreamOffset(NamedTuple):
    """The next offset of each partition, and the id of each topic, where the brokers tell it."""

    offsets: Offsets
    topic_ids: TopicIds

    @classmethod
    def from_json(cls, tree: Mapping[str, Mapping[str, Any]]) -> StreamOffset:
        """What ``to_json`` made, or the Kafka source."""
        ids = dict(name.split("@") for name in tree if "@" in name)
        return cls(from_json(tree), {topic: UUID(text) for topic, text in ids.items()})

    def to_json(self) -> dict[str, dict[str, int]]:
        """What Spark keeps in the checkpoint."""
        ids = {topic: self.topic_ids.get(topic, ZERO_UUID) for topic in {tp.topic for tp in self.offsets}}
        names: dict[str, dict[str, int]] = {f"{topic}@{each}": {} for topic, each in ids.items() if each != ZERO_UUID}
        return dict(sorted({**to_json(self.offsets), **names}.items()))

    def is_same_topic(self, topic: str, other: StreamOffset) -> bool:
        """Whether a topic is the same one in both, as far as both know it."""
        ids = {
            each for each in (self.topic_ids.get(topic), other.topic_ids.get(topic)) if each not in (None, ZERO_UUID)
        }
        return len(ids) < 2
