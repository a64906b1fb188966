"""Before a broker stops, others lead what it leads: the controller is asked, and what it decides is waited for.

What no other can lead, because all others are stopping too or are not in sync, is not waited for. The wait has an end:
a broker stops also where it cannot be relieved, and what it leads has no leader until then.
Source: Kafka 3.9, ``KafkaServer.controlledShutdown``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sparklog.broker.metadata_cache import MetadataCache
from sparklog.errors import ConnectionFailed, ErrorCode, SparklogError
from sparklog.net.peers import Peers
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ControlledShutdownRequest
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import TopicPartition
from sparklog.zk.znodes import BrokerInfo

_logger = logging.getLogger(__name__)
_LANE = "departure"
_ASK_AGAIN_S = 0.1
_LOOK_AGAIN_S = 0.02
_REDIRECT_S = 0.3
"""While clients are told who leads now. To find the connection closed instead costs some of them a second."""


async def hand_over(
    replicas: ReplicaManager,
    metadata: MetadataCache,
    peers: Peers,
    broker_epoch: Callable[[], int | None],
    timeout: float,
) -> None:
    """Return when this broker leads nothing that another could and clients had time to hear of it, or after ``timeout``
    seconds.
    """
    if not replicas.led_with_others:
        return
    try:
        async with asyncio.timeout(timeout):
            kept = await _ask(replicas, metadata, peers, broker_epoch)
            while not replicas.led_with_others <= kept:
                await asyncio.sleep(_LOOK_AGAIN_S)
    except TimeoutError:
        _logger.warning("the partitions led here could not be handed over in %.0f s; stopping without", timeout)
    else:
        await asyncio.sleep(_REDIRECT_S)


async def _ask(
    replicas: ReplicaManager, metadata: MetadataCache, peers: Peers, broker_epoch: Callable[[], int | None]
) -> set[TopicPartition]:
    """What no other can lead, as soon as there is a controller that says so."""
    while True:
        controller, epoch = metadata.brokers.get(metadata.controller_id), broker_epoch()
        try:
            if controller is not None and epoch is not None:
                request = ControlledShutdownRequest(broker_id=replicas.broker_id, broker_epoch=epoch)
                return await _remaining(peers, controller, request)
        except SparklogError as error:
            _logger.info("the controller did not take notice of the stop, asking again: %s", error)
        await asyncio.sleep(_ASK_AGAIN_S)


async def _remaining(peers: Peers, controller: BrokerInfo, request: ControlledShutdownRequest) -> set[TopicPartition]:
    """Raises SparklogError."""
    answer = await peers.request(controller.endpoint, _LANE, ApiKey.CONTROLLED_SHUTDOWN, lambda _: request)
    if answer.error_code != ErrorCode.NONE:
        raise ConnectionFailed(f"broker {controller.id} answered {ErrorCode(answer.error_code).name}")
    return {TopicPartition(each.topic_name, each.partition_index) for each in answer.remaining_partitions}
