"""Moving replicas from broker to broker: asked of the controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sparklog.client.admin.base import AdminBase, error_of
from sparklog.client.cluster.arguments import checked_partitions
from sparklog.errors import ApiError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest
from sparklog.structs import TopicPartition, by_topic

_Topic = AlterPartitionReassignmentsRequest.ReassignableTopic
_ListedTopic = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics


class PartitionReassignment(NamedTuple):
    """A partition on the move: brokers' ids, the preferred leader first."""

    replicas: tuple[int, ...]
    """Those that it is to have, and behind them the rest of those that it had."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ReassignmentAdmin(AdminBase):
    """Which brokers hold a partition, and the change of that."""

    async def alter_partition_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ApiError | None]:
        """Begin to move each partition to these brokers, the preferred leader first; with None give up its move.

        What became of each: None for begun, or why not. A move is over when it is listed no more.
        """
        asked = by_topic(checked_partitions(wanted))
        topics = [
            _Topic(
                name=name,
                partitions=[
                    _Topic.ReassignablePartition(partition_index=number, replicas=_listed(wanted, name, number))
                    for number in numbers
                ],
            )
            for name, numbers in asked.items()
        ]
        answer = await self._session.controller_request(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            lambda version: AlterPartitionReassignmentsRequest(
                version=version, timeout_ms=self._timeout_ms, topics=topics
            ),
        )
        return {
            TopicPartition(topic.name, each.partition_index): error_of(each, f"{topic.name}-{each.partition_index}")
            for topic in answer.responses
            for each in topic.partitions
        }

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Those of the partitions that are on the move; None stands for all partitions."""
        asked = None if partitions is None else by_topic(checked_partitions(partitions))
        topics = None
        if asked is not None:
            topics = [_ListedTopic(name=name, partition_indexes=numbers) for name, numbers in asked.items()]
        answer = await self._session.controller_request(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            lambda version: ListPartitionReassignmentsRequest(
                version=version, timeout_ms=self._timeout_ms, topics=topics
            ),
        )
        return {
            TopicPartition(topic.name, each.partition_index): PartitionReassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in answer.topics
            for each in topic.partitions
        }


def _listed(wanted: Mapping[TopicPartition, Sequence[int] | None], name: str, number: int) -> list[int] | None:
    replicas = wanted[TopicPartition(name, number)]
    return None if replicas is None else list(replicas)
