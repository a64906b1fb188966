"""Before a broker stops, others lead what it leads: the controller is asked, and what it decides is waited for.

The wait has an end: a broker that nobody can relieve stops all the same, and what it leads has no leader until then.
Source: Kafka 3.9, ``KafkaServer.controlledShutdown``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sparklog.broker.metadata_cache import MetadataCache
from sparklog.errors import ErrorCode, SparklogError
from sparklog.net.peers import Peers
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ControlledShutdownRequest
from sparklog.replica.manager import ReplicaManager
from sparklog.zk.znodes import BrokerInfo

_logger = logging.getLogger(__name__)
_LANE = "departure"
_ASK_AGAIN_S = 0.1
_LOOK_AGAIN_S = 0.02


async def hand_over(
    replicas: ReplicaManager,
    metadata: MetadataCache,
    peers: Peers,
    broker_epoch: Callable[[], int | None],
    timeout: float,
) -> None:
    """Return when this broker leads nothing that another could, or after ``timeout`` seconds."""
    if not replicas.leads_replicated:
        return
    try:
        async with asyncio.timeout(timeout):
            await _ask_until_done(replicas, metadata, peers, broker_epoch)
            while replicas.leads_replicated:
                await asyncio.sleep(_LOOK_AGAIN_S)
    except TimeoutError:
        _logger.warning("the partitions led here could not be handed over in %.0f s; stopping without", timeout)


async def _ask_until_done(
    replicas: ReplicaManager, metadata: MetadataCache, peers: Peers, broker_epoch: Callable[[], int | None]
) -> None:
    while True:
        controller, epoch = metadata.brokers.get(metadata.controller_id), broker_epoch()
        try:
            if controller is not None and epoch is not None and await _is_relieved(replicas, controller, peers, epoch):
                return
        except SparklogError as error:
            _logger.info("the controller did not take notice of the stop, asking again: %s", error)
        await asyncio.sleep(_ASK_AGAIN_S)


async def _is_relieved(replicas: ReplicaManager, controller: BrokerInfo, peers: Peers, epoch: int) -> bool:
    """Whether the controller has found other leaders for all that others can lead. Raises SparklogError."""
    request = ControlledShutdownRequest(broker_id=replicas.broker_id, broker_epoch=epoch)
    answer = await peers.request(controller.endpoint, _LANE, ApiKey.CONTROLLED_SHUTDOWN, lambda _: request)
    return answer.error_code == ErrorCode.NONE and not answer.remaining_partitions
