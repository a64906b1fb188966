"""Retention: what partitions hold back until it is offloaded, and where nothing is deleted. Each broker is asked."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sparklog.client.admin.base import AdminBase
from sparklog.client.admin.log_dirs import Replica
from sparklog.client.cluster.arguments import checked_names
from sparklog.client.cluster.session import raise_error_code
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeRetentionRequest, DescribeRetentionResponse
from sparklog.structs import TopicPartition

_Described = DescribeRetentionResponse.DescribedTopic.DescribedPartition


class RetentionState(NamedTuple):
    """How retention does with a replica, as of the last look of its broker (``log.retention.check.interval.ms``)."""

    group: str | None
    """Whose committed offsets it waits for; None of a replica that does not wait, which has only a refusal."""
    offloaded: int | None
    """All below is offloaded; None where that is not known."""
    held_bytes: int
    """What its policies give up and what is kept until it is offloaded; -1 before the first look."""
    held_records: int
    """The same in offsets; -1 before the first look."""
    limit_bytes: int
    """Its ``sparklog.offload.max.bytes``; -1 without one."""
    lost_records: int
    """So many were deleted before they were known to be offloaded, since its broker leads it."""
    lost_until: int | None
    """The offset behind the last of them."""
    checked_ms: int | None
    """When its broker looked, by that broker's clock; None before the first time."""
    refusal: str | None
    """Why its policies delete nothing; None where they work."""


class RetentionAdmin(AdminBase):
    """Brokers delete old segments, each for itself."""

    async def describe_retention(self, topics: Collection[str] | None = None) -> dict[Replica, RetentionState]:
        """The replicas of these topics, or of all, that wait for their offload or whose policies fail; others are left
        out. Raises ApiError for a topic that there is not.
        """
        names = None if topics is None else checked_names(topics, "topics")
        for name in names or ():
            await self._session.topic(name)
        answers = await self._ask_every_broker(
            ApiKey.DESCRIBE_RETENTION, lambda version: DescribeRetentionRequest(version=version, topics=names)
        )
        for each in answers.values():
            raise_error_code(each)
        found = {
            Replica(TopicPartition(topic.name, each.partition_index), broker): _state(each)
            for broker, answer in answers.items()
            for topic in answer.topics
            for each in topic.partitions
        }
        return dict(sorted(found.items()))


def _state(each: _Described) -> RetentionState:
    return RetentionState(
        each.offload_group,
        _known(each.offloaded_offset),
        int(each.held_bytes),
        int(each.held_records),
        int(each.limit_bytes),
        max(int(each.lost_records), 0),
        _known(each.lost_until),
        _known(each.checked_ms),
        each.refusal,
    )


def _known(number: int) -> int | None:
    return int(number) if number >= 0 else None
