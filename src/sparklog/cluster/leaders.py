"""The leader of each partition, as far as is known. Values only: the driver hands in the answers.

Metadata comes from any broker, and some brokers learn late: what an answer says of a partition counts only if its
leader epoch is not older than one that was heard before, under the same topic id. Nothing but another topic id has an
epoch forgotten: not that the topic is invalidated, nor an answer that could not describe it, nor one that tells no
epoch or no topic id, which is believed all the same, for there is nothing to judge it by.
"""

from __future__ import annotations

from collections.abc import Collection

from sparklog.cluster.info import ClusterInfo, PartitionInfo, TopicInfo, no_such_partition
from sparklog.errors import ApiError, ErrorCode
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
        self._newest: dict[str, TopicInfo] = {}
        """The newest epoch that was heard of each partition, with its leader; of topics that have an id."""
        self._stale: set[str] = set()

    def apply(self, info: ClusterInfo) -> None:
        """Take an answer. A topic that it could not describe is known no more."""
        self.generation += 1
        self.cluster_id, self.brokers = info.cluster_id, info.brokers
        self.controller = info.controller if info.controller in info.brokers else None
        for name, topic in info.topics.items():
            self._topics[name] = self._believed(topic)
            self._stale.discard(name)
        for name in info.errors:
            self._topics.pop(name, None)
            self._stale.discard(name)

    def _believed(self, heard: TopicInfo) -> TopicInfo:
        """What is heard, with what is known in place of what is older than that."""
        if heard.topic_id == ZERO_UUID:
            return heard
        known = self._newest.get(heard.name)
        newest = {}
        if known is not None and known.topic_id == heard.topic_id:
            newest = {each.partition: each for each in known.partitions}
        partitions = tuple(
            newest[each.partition] if _is_older(each, newest.get(each.partition)) else each for each in heard.partitions
        )
        newest |= {each.partition: each for each in partitions if each.leader_epoch >= 0}
        self._newest[heard.name] = heard._replace(partitions=tuple(newest[number] for number in sorted(newest)))
        return heard._replace(partitions=partitions)

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

    def leaderless(self, partitions: Collection[TopicPartition]) -> ApiError:
        """Why these have no leader, of the first few; it may pass by itself if each of them exists."""
        exist = all(self.partition(tp) is not None for tp in partitions)
        code = ErrorCode.LEADER_NOT_AVAILABLE if exist else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ApiError(code, "; ".join(list(dict.fromkeys(map(self.why_no_leader, partitions)))[:5]))

    def invalidate(self, topic: str) -> None:
        """Ask again before the next use of ``topic``: its leaders have moved, or may have."""
        if topic in self._topics:
            self._stale.add(topic)

    def invalidate_led_by(self, broker: BrokerId) -> None:
        """``invalidate`` each topic of which ``broker`` leads a partition."""
        for name, topic in self._topics.items():
            if any(each.leader == broker for each in topic.partitions):
                self._stale.add(name)

    @property
    def topics(self) -> Collection[str]:
        """Every topic that was heard of, what was invalidated included."""
        return self._topics.keys()


def _is_older(heard: PartitionInfo, known: PartitionInfo | None) -> bool:
    return known is not None and 0 <= heard.leader_epoch < known.leader_epoch
