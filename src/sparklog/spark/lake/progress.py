"""How far one partition of a log has come in the place that it is offloaded to."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from sparklog.structs import TopicPartition

APPLICATION = "sparklog"
EPOCH_APPLICATION = "sparklog-epoch"
"""What the leader epoch is kept under, in which the offset was found."""
COUNT_APPLICATION = "sparklog-partitions"
"""What the number of a topic's partitions is kept under."""

UPSERT_PROPERTY = "sparklog.upsert"
"""``true`` of a table that has the last record of each key. No other is upserted, and none such appended to."""


class Progress(NamedTuple):
    """Whose offset it is. A topic that is made again under its name has another id, and other offsets."""

    cluster_id: str
    tp: TopicPartition
    topic_id: UUID

    @property
    def of_topic(self) -> Progress:
        """What stands for all partitions of the topic: the first of them."""
        return self._replace(tp=TopicPartition(self.tp.topic, 0))

    def to_application(self, kind: str = APPLICATION) -> str:
        """The text that names it, of one line: ``sparklog:CLUSTER:TOPIC:TOPIC-ID:PARTITION``."""
        return ":".join([kind, self.cluster_id, self.tp.topic, str(self.topic_id), str(self.tp.partition)])

    @classmethod
    def from_application(cls, text: str, kind: str = APPLICATION) -> Progress | None:
        """None for an application of another kind, or of somebody else."""
        parts = text.split(":")
        if len(parts) != 5 or parts[0] != kind:
            return None
        _, cluster_id, topic, topic_id, partition = parts
        try:
            return cls(cluster_id, TopicPartition(topic, int(partition)), UUID(topic_id))
        except ValueError:
            return None
