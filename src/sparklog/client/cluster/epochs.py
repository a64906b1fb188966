"""Where leader epochs ended: OffsetForLeaderEpoch, for a reader that must know whether what it has read is still there.

A leader that lacks committed records, as after an unclean election, begins its own epoch before their offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import ask_leaders, keep_found
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from sparklog.structs import NO_EPOCH, Endpoint, LeaderEpoch, TopicPartition, by_topic

_Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
UNKNOWN = -1
"""An end that the leader does not know."""


def ends_of_epochs(cluster: ClusterMetadata, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Where, as its leader has it, each partition's records of this leader epoch and of earlier ones end.

    UNKNOWN where the leader knows of no such epoch. Retries moved leaders; raises ApiError naming the partition
    otherwise. One that led before, and has not heard of the leader epoch that is known, is no leader.
    """
    found: dict[TopicPartition, int] = {}

    def ask(endpoint: Endpoint, partitions: list[TopicPartition]) -> None:
        request = epoch_request({tp: (_present_epoch(cluster, tp), wanted[tp]) for tp in partitions})
        ends = epoch_ends(cluster.request(endpoint, ApiKey.OFFSET_FOR_LEADER_EPOCH, request))
        answers = ((tp, code, end) for tp, code, _, end in ends)
        keep_found(found, answers, f"leader epochs of partition {{}} from broker {endpoint}")

    ask_leaders(cluster, wanted, found, ask)
    return found


def _present_epoch(cluster: ClusterMetadata, tp: TopicPartition) -> LeaderEpoch:
    info = cluster.topic(tp.topic).partition(tp.partition)
    return NO_EPOCH if info is None else info.leader_epoch


def epoch_request(wanted: Mapping[TopicPartition, tuple[int, int]]) -> Callable[[int], OffsetForLeaderEpochRequest]:
    """Ask, for each partition, with the leader's epoch now (or NO_EPOCH), about the other epoch."""
    topics = [
        _Topic(
            topic=topic,
            partitions=[_asked(number, *wanted[TopicPartition(topic, number)]) for number in partitions],
        )
        for topic, partitions in by_topic(wanted).items()
    ]
    return lambda version: OffsetForLeaderEpochRequest(version=version, replica_id=-1, topics=topics)


def _asked(number: int, current: int, epoch: int) -> _Topic.OffsetForLeaderPartition:
    return _Topic.OffsetForLeaderPartition(partition=number, current_leader_epoch=current, leader_epoch=epoch)


def epoch_ends(answer: OffsetForLeaderEpochResponse) -> Iterator[tuple[TopicPartition, ErrorCode, int, int]]:
    """For each partition the error, and the largest epoch up to that asked about with its end; -1 for none."""
    for topic in answer.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.topic, each.partition)
            yield tp, ErrorCode(each.error_code), each.leader_epoch, each.end_offset
