"""Settings by which records may be lost that were acknowledged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sparklog.cli.doctor.finding import Finding, Severity
from sparklog.cluster.info import ClusterInfo
from sparklog.structs import TopicPartition

if TYPE_CHECKING:
    from sparklog.client.admin.reassignments import PartitionReassignment

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


def setting_findings(
    cluster: ClusterInfo,
    min_isr: Mapping[str, int],
    unclean: Mapping[str, str],
    moves: Mapping[TopicPartition, PartitionReassignment],
) -> Iterator[Finding]:
    """``min_isr`` and ``unclean`` are these settings by topic. A topic's replicas are those of its first partition,
    without those that a move takes away."""
    replicas = {
        name: len(topic.partitions[0].replicas) - len(move.removing if move else ())
        for name, topic in sorted(cluster.topics.items())
        if topic.partitions
        for move in [moves.get(TopicPartition(name, topic.partitions[0].partition))]
    }
    theirs = [name for name, topic in cluster.topics.items() if topic.internal]
    yield from _of_min_isr({name: replicas[name] for name in replicas if name not in theirs}, min_isr, cluster)
    yield from _told(
        [name for name in replicas if unclean.get(name) == "true"],
        Severity.WARNING,
        f"{UNCLEAN}=true: a replica that lacks records may lead, and they are lost",
        f"sparklog topic alter {{}} --config {UNCLEAN}=false",
    )
    if len(cluster.brokers) > 1:
        yield from _told(
            [name for name in replicas if replicas[name] == 1],
            Severity.WARNING,
            "one replica only: with that broker it is gone",
            f"sparklog cluster reassign --topic {{}} --replication {min(len(cluster.brokers), 3)}",
        )


def _of_min_isr(replicas: Mapping[str, int], min_isr: Mapping[str, int], cluster: ClusterInfo) -> Iterator[Finding]:
    """``replicas``: how many the partitions of each topic have."""
    yield from _told(
        [name for name in replicas if replicas[name] >= 3 and min_isr.get(name) == 1],
        Severity.WARNING,
        f"{MIN_ISR}=1 with three replicas or more: what was acknowledged may be on one broker alone",
        f"sparklog topic alter {{}} --config {MIN_ISR}=2",
    )
    yield from _told(
        [name for name in replicas if 1 < replicas[name] == min_isr.get(name)],
        Severity.NOTE,
        f"{MIN_ISR} is the number of replicas: one broker that is away stops acks=all",
        f"sparklog topic alter {{}} --config {MIN_ISR}=1, or sparklog cluster reassign --topic {{}} --replication 3",
    )
    too_great = [name for name in replicas if replicas[name] < min_isr.get(name, 1)]
    if too_great:
        first = too_great[0]
        yield from _told(
            too_great,
            Severity.WARNING,
            f"{MIN_ISR} is greater than the number of replicas: brokers ask for all of them, and one that is away stops"
            " acks=all",
            _advice_of_too_great(replicas[first], min_isr[first], len(cluster.brokers)),
        )


def _advice_of_too_great(replicas: int, min_isr: int, brokers: int) -> str:
    lower = f"sparklog topic alter {{}} --config {MIN_ISR}={max(replicas - 1, 1)}"
    if brokers < min_isr:
        return f"{lower}; more replicas need more brokers"
    return f"{lower}, or sparklog cluster reassign --topic {{}} --replication {min(min_isr + 1, brokers)}"


def _told(topics: list[str], severity: Severity, what: str, advice: str) -> Iterator[Finding]:
    if topics:
        yield Finding(severity, what, tuple(topics), advice.format(*[topics[0]] * 2))
