"""Partitions on this broker's disks that the cluster does not know: set aside, so that none is taken for another.

A stray is what a deleted topic left: its directory could not be removed, or was in a log directory out of service, or
came with a disk from elsewhere. It is never served under another topic's id. It is set aside (``TOPIC-N.UNIQUE-stray``)
and not removed, and only where ZooKeeper itself says that there is no such partition: no such topic, one of another id,
or one that has no replica of the partition here. What a controller leaves out of its request, or a forged request
names, moves nothing; where ZooKeeper cannot tell, all stays as it is and is not served.

Every LeaderAndIsr is looked through before it is applied: for partitions that it names under another id, and a full
one, which names all that this broker holds, for those that it does not name. A start looks through the partitions that
are in several log directories.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from uuid import UUID

from sparklog.broker import partition_changes
from sparklog.broker.context import BrokerContext
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.directories.departures import Departure
from sparklog.protocol.messages import FULL, LeaderAndIsrRequest
from sparklog.structs import TopicPartition, uuid_to_text
from sparklog.zk.znodes import TopicAssignment

_logger = logging.getLogger(__name__)


async def make_way(broker: BrokerContext, request: LeaderAndIsrRequest) -> None:
    """Set aside what stands in the way of the ``request``, and if it is a full one what it does not name."""
    found: dict[TopicPartition, UUID | None] = dict(_replaced(broker, request))
    if request.type == FULL:
        found |= broker.replicas.strays(list(_named(request)))
    assignments: dict[str, TopicAssignment | None] = {}
    doomed = list[partial[Departure | ErrorCode]]()
    for tp, topic_id in found.items():
        try:
            if tp.topic not in assignments:
                assignments[tp.topic] = await broker.run_zk(broker.zk.topics.assignment, tp.topic)
        except ApiError as error:
            _logger.error("%s is left as it is, and not served: %s", tp, error)
            continue
        why = why_stray(tp, topic_id, assignments[tp.topic], broker.config.broker_id)
        if why is None:
            _logger.warning("%s is left as it is: the controller does not name it, but ZooKeeper does", tp)
        else:
            doomed.append(partial(_set_aside, broker, request, tp, topic_id, why))
    for some in partition_changes.slices(doomed):
        await partition_changes.take_away(broker, some)


def _set_aside(
    broker: BrokerContext, request: LeaderAndIsrRequest, tp: TopicPartition, topic_id: UUID | None, why: str
) -> Departure | ErrorCode:
    """The fence is asked in the same turn of the loop: what ZooKeeper said is of the past once another controller, or
    another registration, may have given the partition back to this broker.
    """
    code = broker.fence.check(request)
    if code is not ErrorCode.NONE:
        return code
    if broker.replicas.topic_id(tp) != topic_id:  # it has been made anew meanwhile
        return ErrorCode.NONE
    if broker.replicas.leads(tp):
        broker.stop_coordinating(tp)
    broker.fetchers.leave(tp)
    return broker.replicas.depart(tp, why)


def _named(request: LeaderAndIsrRequest) -> Iterator[TopicPartition]:
    for topic in request.topic_states:
        for each in topic.partition_states:
            yield TopicPartition(topic.topic_name, each.partition_index)


def _replaced(broker: BrokerContext, request: LeaderAndIsrRequest) -> Iterator[tuple[TopicPartition, UUID]]:
    """The partitions that the request names under another topic id than the one that they bear here."""
    for topic in request.topic_states:
        if topic.topic_id is None:  # as the codec reads an id of zeros
            continue
        for each in topic.partition_states:
            tp = TopicPartition(topic.topic_name, each.partition_index)
            topic_id = broker.replicas.topic_id(tp)
            if topic_id and topic_id != topic.topic_id:
                yield tp, topic_id


def why_stray(
    tp: TopicPartition, topic_id: UUID | None, assignment: TopicAssignment | None, broker_id: int
) -> str | None:
    """Why the partition, of ``topic_id`` on the disk, is none of the cluster's; None if it is one, or may be."""
    belongs = "bears no topic id" if topic_id is None else f"belongs to topic id {uuid_to_text(topic_id)}"
    if assignment is None:
        return f"it {belongs}, and there is no topic of that name"
    if topic_id is not None and assignment.topic_id is not None and topic_id != assignment.topic_id:
        return f"it {belongs}, and the topic of that name has the id {uuid_to_text(assignment.topic_id)}"
    if broker_id not in assignment.partitions.get(tp.partition, ()):
        return f"it {belongs}, and this broker has no replica of the partition"
    return None
