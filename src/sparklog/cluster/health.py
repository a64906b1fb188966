"""How the partitions of a cluster do, and what each broker has of them: counts over one description of the cluster.

Source: Kafka 3.9, ``TopicCommand.PartitionDescription``, ``KafkaController.checkAndTriggerAutoLeaderRebalance``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sparklog.cluster.info import ClusterInfo, PartitionInfo
from sparklog.structs import BrokerId


class Ailment(StrEnum):
    """What may be the matter with a partition, by the names of Kafka's ``kafka-topics`` options."""

    UNDER_REPLICATED = "under-replicated"
    UNAVAILABLE = "unavailable"
    UNDER_MIN_ISR = "under-min-isr"
    AT_MIN_ISR = "at-min-isr"


def ailments(partition: PartitionInfo, live: Collection[int], min_isr: int) -> set[Ailment]:
    """What is the matter with it; ``min_isr`` is the topic's ``min.insync.replicas``, ``live`` the brokers' ids.

    A partition without a leader takes no records at all, so it counts as under ``min_isr`` too.
    """
    in_sync, led = len(partition.isr), partition.leader in live
    found = {
        Ailment.UNDER_REPLICATED: in_sync < len(partition.replicas),
        Ailment.UNAVAILABLE: not led,
        Ailment.UNDER_MIN_ISR: not led or in_sync < min_isr,
        Ailment.AT_MIN_ISR: in_sync == min_isr,
    }
    return {ailment for ailment, is_so in found.items() if is_so}


@dataclass
class BrokerShare:
    """How many partitions one broker leads, is to lead first, and has a replica of.

    ``under_replicated``: it leads them, and a replica is not in the ISR, as its metric of Kafka's name counts.
    ``elsewhere``: it is to lead them first, and does not. ``out_of_sync``: its replica is not in the ISR. ``offline``:
    the broker is gone, or the log directory of the replica is.
    """

    leads: int = 0
    under_replicated: int = 0
    preferred: int = 0
    elsewhere: int = 0
    replicas: int = 0
    out_of_sync: int = 0
    offline: int = 0

    @property
    def imbalance_percent(self) -> float:
        """What ``leader.imbalance.per.broker.percentage`` is compared with."""
        return 100 * self.elsewhere / self.preferred if self.preferred else 0.0


@dataclass
class Health:
    """The counts of a whole cluster. ``shares`` also has brokers that are gone, if replicas are theirs."""

    partitions: int
    ailing: Counter[Ailment]
    elsewhere: int
    shares: dict[BrokerId, BrokerShare]


def health_of(cluster: ClusterInfo, min_isr: Mapping[str, int]) -> Health:
    """Count; ``min_isr`` has the ``min.insync.replicas`` of every topic, 1 where it is left out."""
    health = Health(0, Counter(), 0, {broker: BrokerShare() for broker in cluster.brokers})
    for topic in cluster.topics.values():
        for partition in topic.partitions:
            health.partitions += 1
            health.ailing.update(ailments(partition, cluster.brokers, min_isr.get(topic.name, 1)))
            _share_out(partition, health.shares)
    health.elsewhere = sum(share.elsewhere for share in health.shares.values())
    return health


def _share_out(partition: PartitionInfo, shares: dict[BrokerId, BrokerShare]) -> None:
    for place, broker in enumerate(partition.replicas):
        share = shares.setdefault(BrokerId(broker), BrokerShare())
        share.replicas += 1
        leads = broker == partition.leader
        share.leads += leads
        share.under_replicated += leads and len(partition.isr) < len(partition.replicas)
        share.out_of_sync += broker not in partition.isr
        share.offline += broker in partition.offline
        if place == 0:
            share.preferred += 1
            share.elsewhere += broker != partition.leader
