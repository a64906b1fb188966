"""The leader of each partition, as far as is known. Values only: the driver hands in the answers.

Metadata comes from any broker, and some brokers learn late: what an answer says of a partition counts only if its
leader epoch is not older than one that was heard before, under the same topic id. What is invalidated is not used
until the next answer about it, but its epoch is remembered.
"""

from __future__ import annotations

from collections.abc import Collection

from sparklog.cluster.info import ClusterInfo, PartitionInfo, TopicInfo, no_such_partition
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import NO_LEADER, BrokerId, Endpoint, TopicPartition


class Leaders:
    """The brokers, the topics that were asked for, and the leader of each of their partitions."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller: BrokerId | None = None
        self.brokers: dict[BrokerId, Endpoint] = {}
        self.generation = 0
        """Rises with every answer that is applied."""
        self._topics: dict[str, TopicInfo] = {}
        self._stale: set[str] = set()

    def apply(self, info: ClusterInfo) -> None:
        """Take an answer. A topic that it could not describe is known no more."""
        self.generation += 1
        self.cluster_id, self.brokers = info.cluster_id, info.brokers
        self.controller = info.controller if info.controller in info.brokers else None
        for name, topic in info.topics.items():
            self._topics[name] = _merged(self._topics.get(name), topic)
            self._stale.discard(name)
        for name in info.errors:
            self._topics.pop(name, None)
            self._stale.discard(name)

    def topic(self, name: str) -> TopicInfo | None:
        """What is known of a topic; None if nothing is, or if it was invalidated."""
        return None if name in self._stale else self._topics.get(name)

    def last_known(self, name: str) -> TopicInfo | None:
        """``topic``, even if it was invalidated: for what hardly changes, such as how many partitions there are."""
        return self._topics.get(name)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """What is known of a partition; None as for ``topic``, and if the topic has no such partition."""
        topic = self.topic(tp.topic)
        return topic.partition(tp.partition) if topic is not None else None

    def leader(self, tp: TopicPartition) -> BrokerId | None:
        """The broker that leads ``tp``; None while that is not known, or the leader not among the brokers."""
        info = self.partition(tp)
        return None if info is None or info.leader == NO_LEADER or info.leader not in self.brokers else info.leader

    def why_no_leader(self, tp: TopicPartition) -> str:
        """What is in the way of reading ``tp``, as of the last answer about it."""
        topic = self._topics.get(tp.topic)
        if topic is None:
            return f"topic {tp.topic!r} does not exist"
        if all(each.partition != tp.partition for each in topic.partitions):
            return no_such_partition(topic, tp.partition).reason
        return f"no broker leads partition {tp}"

    def invalidate(self, topic: str) -> None:
        """Ask again before the next use of ``topic``: its leaders have moved, or may have."""
        if topic in self._topics:
            self._stale.add(topic)

    @property
    def topics(self) -> Collection[str]:
        """Every topic that was heard of, what was invalidated included."""
        return self._topics.keys()


def _merged(known: TopicInfo | None, heard: TopicInfo) -> TopicInfo:
    if known is None or heard.topic_id == ZERO_UUID or known.topic_id != heard.topic_id:
        return heard
    before = {each.partition: each for each in known.partitions}
    newest = tuple(
        before[each.partition] if _is_older(each, before.get(each.partition)) else each for each in heard.partitions
    )
    return heard._replace(partitions=newest)


def _is_older(heard: PartitionInfo, known: PartitionInfo | None) -> bool:
    return known is not None and 0 <= heard.leader_epoch < known.leader_epoch
