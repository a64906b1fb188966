"""What the controller knows of the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparklog.structs import TopicPartition
from sparklog.zk.znodes import BrokerInfo, PartitionState, TopicAssignment


@dataclass
class ControllerContext:
    """A mirror of ZooKeeper, for as long as this controller's ``epoch`` lasts."""

    epoch: int
    epoch_version: int
    """Version of the ``/controller_epoch`` znode; every write is conditional on it."""
    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    assignments: dict[str, TopicAssignment] = field(default_factory=dict)
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)

    def replicas(self, tp: TopicPartition) -> tuple[int, ...]:
        return self.assignments[tp.topic].partitions[tp.partition]

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in self.assignments[topic].partitions]

    def partitions_on(self, broker_id: int) -> list[TopicPartition]:
        """Every partition with a state that has a replica on the broker, those being deleted left out."""
        return [tp for tp in self.states if tp.topic not in self.deleting and broker_id in self.replicas(tp)]

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        for tp in self.partitions_of(topic):
            self.states.pop(tp, None)
        self.assignments.pop(topic, None)
        self.deleting.discard(topic)
