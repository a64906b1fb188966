"""Brokers that are gone, controllers, and partitions that are not as they should be."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from sparklog.cli.doctor.finding import Finding, Severity
from sparklog.cluster.health import Ailment, ailments
from sparklog.cluster.info import ClusterInfo, PartitionInfo
from sparklog.errors import SparklogError
from sparklog.structs import BrokerId, TopicPartition

if TYPE_CHECKING:
    from sparklog.client.admin.reassignments import PartitionReassignment


class _State(Enum):
    """The worst that is the matter with a partition; a worse one hides the others."""

    OFFLINE = Severity.ERROR, "no broker leads it: nothing can be read or written"
    UNDER_MIN_ISR = Severity.ERROR, "fewer replicas are in sync than min.insync.replicas: acks=all is refused"
    UNDER_REPLICATED = Severity.WARNING, "a replica is not in sync"
    STUCK = Severity.WARNING, "a move of replicas does not go on: what it moves them to cannot be used"
    MOVING = Severity.NOTE, "replicas are being moved to other brokers"
    ELSEWHERE = Severity.WARNING, "its first replica is in sync, and another leads"


class _Judged(NamedTuple):
    """A partition of a topic, with its move, if it is on one."""

    topic: str
    partition: PartitionInfo
    move: PartitionReassignment | None

    @property
    def arriving(self) -> list[int]:
        """Replicas that the move adds, and that do not have everything yet."""
        return [] if self.move is None else [each for each in self.move.adding if each not in self.partition.isr]

    @property
    def behind(self) -> list[int]:
        """Replicas that are not in sync, without those that the move adds or takes away."""
        passing = () if self.move is None else {*self.move.adding, *self.move.removing}
        return [each for each in self.partition.replicas if each not in self.partition.isr and each not in passing]

    def unusable(self, cluster: ClusterInfo) -> list[int]:
        """Brokers to which the move copies that are gone, or cannot use the log directory of the replica."""
        return [each for each in self.arriving if each not in cluster.brokers or each in self.partition.offline]


def broker_findings(cluster: ClusterInfo, silent: Mapping[BrokerId, SparklogError]) -> Iterator[Finding]:
    """Brokers that have replicas and are not there; brokers that are there and do not answer."""
    holders = {
        BrokerId(replica) for topic in cluster.topics.values() for each in topic.partitions for replica in each.replicas
    }
    for broker in sorted(holders - cluster.brokers.keys()):
        yield Finding(
            Severity.ERROR, "a broker that has replicas is gone", (f"broker {broker}",),
            f"start it; if it will not come back: sparklog cluster drain {broker}",
        )  # fmt: skip
    for broker, error in sorted(silent.items()):
        yield Finding(
            Severity.ERROR, f"a broker is registered and does not answer: {error}", (f"broker {broker}",),
            "see its log, and whether its machine is reached; start it again if it is frozen",
        )  # fmt: skip


def zookeeper_findings(unread: Collection[BrokerId]) -> Iterator[Finding]:
    """Brokers that answer, and do not tell what only ZooKeeper knows."""
    if unread:
        yield Finding(
            Severity.ERROR,
            "brokers hear nothing from ZooKeeper: no topic is made, no leader chosen, no ISR or setting changed",
            tuple(f"broker {broker}" for broker in sorted(unread)),
            "start ZooKeeper, or see why these do not reach it (zookeeper.connect, their logs); start no broker again"
            " before it is there",
        )  # fmt: skip


def controller_findings(cluster: ClusterInfo, told: Mapping[BrokerId, BrokerId]) -> Iterator[Finding]:
    """No controller, or brokers that name different ones; ``told`` is whom each broker names."""
    if cluster.controller not in cluster.brokers:
        yield Finding(
            Severity.ERROR, "no broker is the controller: no topic can be made, and no leader chosen", (),
            'see the brokers\' logs for "controller"; start a broker, or start one again',
        )  # fmt: skip
    elif len(set(told.values())) > 1:
        where = tuple(f"broker {broker} says {each}" for broker, each in sorted(told.items()))
        yield Finding(
            Severity.ERROR, "brokers name different controllers", where,
            "wait a moment and look again; if it stays, start the brokers again that name the old one",
        )  # fmt: skip


def partition_findings(
    cluster: ClusterInfo, min_isr: Mapping[str, int], moves: Mapping[TopicPartition, PartitionReassignment]
) -> Iterator[Finding]:
    """One finding for each kind of trouble, with its partitions; ``min_isr`` is by topic."""
    found: dict[_State, list[_Judged]] = {}
    for topic in sorted(cluster.topics.values()):
        for each in topic.partitions:
            judged = _Judged(topic.name, each, moves.get(TopicPartition(topic.name, each.partition)))
            if state := _state(judged, cluster, min_isr.get(topic.name, 1)):
                found.setdefault(state, []).append(judged)
    for state in filter(found.__contains__, _State):
        severity, what = state.value
        where = tuple(f"{each.topic}-{each.partition.partition}" for each in found[state])
        yield Finding(severity, what, where, _advice(state, found[state][0], cluster))
    for name, code in sorted(cluster.errors.items()):
        yield Finding(Severity.WARNING, f"a topic cannot be described: {code.name}", (name,), "sparklog topic list")


def _state(judged: _Judged, cluster: ClusterInfo, min_isr: int) -> _State | None:
    partition = judged.partition
    # brokers ask for no more than there are (Kafka 3.9, Partition.effectiveMinIsr): settings.py tells of such topics
    found = ailments(partition, cluster.brokers, min(min_isr, len(partition.replicas)))
    if Ailment.UNAVAILABLE in found:
        return _State.OFFLINE
    if Ailment.UNDER_MIN_ISR in found:
        return _State.UNDER_MIN_ISR
    if judged.behind:
        return _State.UNDER_REPLICATED
    if judged.arriving:
        return _State.STUCK if judged.unusable(cluster) else _State.MOVING
    return _State.ELSEWHERE if partition.leader != partition.replicas[0] else None


def _advice(state: _State, judged: _Judged, cluster: ClusterInfo) -> str:
    """For the first partition of that state."""
    if state is _State.ELSEWHERE:
        return "sparklog cluster elect"
    if state in (_State.STUCK, _State.MOVING):
        return _advice_of_move(judged, cluster)
    topic, partition, _ = judged
    behind = judged.behind
    if state is not _State.UNDER_REPLICATED:
        behind = [each for each in partition.replicas if each not in partition.isr or state is _State.OFFLINE]
    gone = [each for each in behind if each not in cluster.brokers]
    start = f"start broker {_joined(gone)}" if gone else f"see the logs and disks of broker {_joined(behind)}"
    if state is _State.OFFLINE:
        unclean = f"sparklog cluster elect --unclean --topic {topic} --partition {partition.partition}"
        return f"{start}; if it will not come back, give up records that it alone has: {unclean}"
    return f"{start}; sparklog topic describe {topic}"


def _advice_of_move(judged: _Judged, cluster: ClusterInfo) -> str:
    cancel = f"sparklog cluster reassign --cancel --topic {judged.topic}"
    unusable = judged.unusable(cluster)
    if gone := [each for each in unusable if each not in cluster.brokers]:
        return f"start broker {_joined(gone)}; or give the move up: {cancel}"
    if unusable:
        return (
            f"mend the log directory of broker {_joined(unusable)} (sparklog log dirs); or give the move up: {cancel}"
        )
    copies_to = judged.arriving[0]
    return (
        f"sparklog cluster reassign --list; if it takes long, a throttle may be why: sparklog config describe"
        f" --broker {copies_to}; to give it up: {cancel}"
    )


def _joined(brokers: list[int]) -> str:
    return ", ".join(map(str, brokers))
