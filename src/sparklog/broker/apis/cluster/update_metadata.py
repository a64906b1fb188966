"""UpdateMetadata: the controller's picture of the cluster, to be told to clients.

Taken over whole or not at all: a request that cannot be what a controller means is refused before the cache is touched.
Groups lose their offsets of a topic that is told to be gone only where ZooKeeper says so too: a forged request takes
none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from uuid import UUID

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.broker.handling.forgetting import forget
from sparklog.broker.metadata_cache import TopicUpdate, describe
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.files import is_topic_name
from sparklog.net.tasks import to_its_end
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import UpdateMetadataRequest, UpdateMetadataResponse
from sparklog.protocol.slices import Steps
from sparklog.protocol.wire import ZERO_UUID
from sparklog.security.access import Operation

API = ApiKey.UPDATE_METADATA
VERSIONS = range(7, 9)
_logger = logging.getLogger(__name__)
_ASK_AGAIN_S = 0.2
_MAX_PORT = 65535
_PROTOCOLS = frozenset(SecurityProtocol)


def handle(
    broker: BrokerContext, request: ApiRequest[UpdateMetadataRequest]
) -> Steps[UpdateMetadataResponse | Awaitable[UpdateMetadataResponse]]:
    """It is looked into in steps, and taken over in one turn of the loop."""
    message, refused = request.message, refusal(broker, request, Operation.CLUSTER_ACTION)
    if refused is not ErrorCode.NONE:
        return UpdateMetadataResponse(error_code=refused)
    topics = (yield from describe(message.topic_states)) if _holds_together(message) else None
    return _take_over(broker, message, topics)


async def _take_over(
    broker: BrokerContext, message: UpdateMetadataRequest, topics: list[TopicUpdate] | None
) -> UpdateMetadataResponse:
    code = await broker.fence.admit(message)
    if code is ErrorCode.NONE and (topics is None or not all(topic.can_be for topic in topics)):
        code = ErrorCode.INVALID_REQUEST
    standing = frozenset[str]()
    if code is ErrorCode.NONE and topics is not None:
        standing = await _standing(broker, message, topics)
        code = broker.fence.check(message)
    if code is ErrorCode.NONE and topics is not None:
        before = broker.metadata.brokers.keys()
        deleted = [tp for tp in broker.metadata.update(message, topics) if tp.topic not in standing]
        if before - broker.metadata.brokers.keys():
            # What waits for one that is gone, as for one that was about to join an ISR, waits no longer.
            broker.in_background(_look_again(broker), "looking at what waits for a broker that is gone")
        broker.peers.retain({each.endpoint for each in broker.metadata.brokers.values()})
        if deleted:
            # To the end, though the controller has gone: the next one may know nothing of a topic that is gone already.
            steps = broker.groups.forget_topics(deleted)
            await to_its_end(broker.turns.drive(steps, lambda: "UPDATE_METADATA of deleted topics"))
    await forget(broker.turns, message.topic_states)
    return UpdateMetadataResponse(error_code=code)


async def _standing(broker: BrokerContext, message: UpdateMetadataRequest, topics: list[TopicUpdate]) -> frozenset[str]:
    """Those of which something is told to be gone, though ZooKeeper has them as they were here. It is waited for, for
    the controller says it once; no longer than its word counts.
    """
    found = []
    for topic in topics:
        before = broker.metadata.id_kept_for(topic.name) or topic.topic_id
        if (topic.deleted or before != topic.topic_id) and await _stands(broker, message, topic.name, before):
            _logger.warning("groups keep their offsets of %s, told to be gone: ZooKeeper has it", topic.name)
            found.append(topic.name)
    return frozenset(found)


async def _stands(broker: BrokerContext, message: UpdateMetadataRequest, name: str, topic_id: UUID) -> bool:
    while broker.fence.check(message) is ErrorCode.NONE:
        try:
            topic = await broker.run_zk(broker.zk.topics.standing, name)
        except ApiError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                return True  # its znode is there, and cannot be read
            await asyncio.sleep(_ASK_AGAIN_S)
        else:
            return topic is not None and (topic.topic_id or ZERO_UUID) == topic_id
    return True


async def _look_again(broker: BrokerContext) -> None:
    await broker.turns.drive(broker.replicas.leave_out_lagging(), lambda: "partitions that a broker that is gone held")


def _holds_together(message: UpdateMetadataRequest) -> bool:
    """Whether every broker has an address and every topic a name that can be."""
    brokers = all(
        each.id >= 0 and each.endpoints and all(map(_can_be, each.endpoints)) for each in message.live_brokers
    )
    return brokers and all(topic.topic_name and is_topic_name(topic.topic_name) for topic in message.topic_states)


def _can_be(listener: UpdateMetadataRequest.UpdateMetadataBroker.UpdateMetadataEndpoint) -> bool:
    return bool(listener.host and 0 < listener.port <= _MAX_PORT and listener.security_protocol in _PROTOCOLS)
