"""What an API handler may reach: the parts of one broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparklog.broker.fence import ControllerFence
from sparklog.broker.metadata_cache import MetadataCache
from sparklog.broker.producer_ids import ProducerIds
from sparklog.broker.settings import Settings
from sparklog.broker.topics import OFFSETS_TOPIC, TopicMaker
from sparklog.clock import Clock
from sparklog.config.broker import BrokerConfig
from sparklog.config.topic import TopicConfig, parse_stored
from sparklog.controller.runtime import Controller
from sparklog.errors import ApiError, ErrorCode
from sparklog.group.runtime import GroupCoordinator
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Message
from sparklog.replica.manager import ReplicaManager
from sparklog.replica.partition import Partition
from sparklog.structs import TopicPartition
from sparklog.zk.client import ZkClient

_logger = logging.getLogger(__name__)
_GROUP_KEY = 0


class ApiRequest(NamedTuple):
    """One request, decoded."""

    api: ApiKey
    version: int
    client_id: str | None
    client_host: str
    message: Message


@dataclass
class BrokerContext:
    """Handed to every handler. All of it lives on the broker's one loop."""

    config: BrokerConfig
    """As the broker was started; topics' defaults, which may change, are in ``settings``."""
    settings: Settings
    cluster_id: str
    clock: Clock
    loop: asyncio.AbstractEventLoop
    metadata: MetadataCache
    replicas: ReplicaManager
    groups: GroupCoordinator
    topics: TopicMaker
    controller: Controller
    zk: ZkClient
    run_zk: Callable[..., Awaitable[Any]]
    """Runs a call of ``zk`` off the loop; raises ApiError(REQUEST_TIMED_OUT) if ZooKeeper does not answer."""
    fence: ControllerFence
    producer_ids: ProducerIds
    offered: dict[ApiKey, range]
    """What ApiVersions tells."""

    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def in_background(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Let ``work`` run beside the requests; if it fails, the log says so."""
        task = self.loop.create_task(work, name=what)
        self._tasks.add(task)
        task.add_done_callback(self._background_done)

    def _background_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _logger.error("%s failed", task.get_name(), exc_info=error)

    async def topic_config(self, topic: str) -> TopicConfig:
        """The topic's settings over the broker's defaults."""
        properties = await self.run_zk(self.zk.topic_config, topic)
        return parse_stored(topic, properties, self.settings.topic_defaults)

    def held(self, tp: TopicPartition) -> Partition:
        """The partition, if it is here. Raises ApiError, NOT_LEADER_OR_FOLLOWER if it exists elsewhere."""
        try:
            return self.replicas.partition(tp)
        except ApiError as error:
            topic = self.metadata.topic(tp.topic)
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic and tp.partition in topic.partitions:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.reason) from error
            raise

    async def find_coordinator(self, key_type: int, key: str) -> tuple[ErrorCode, int, str, int]:
        """The broker that coordinates a group: error, node id, host, port. Transactions have no coordinator yet."""
        if key_type != _GROUP_KEY:
            return ErrorCode.INVALID_REQUEST, -1, "", -1
        if self.metadata.topic(OFFSETS_TOPIC) is None:
            error = await self.topics.ensure(OFFSETS_TOPIC)
            if error is not ErrorCode.NONE:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1
        leader = self.metadata.leader(TopicPartition(OFFSETS_TOPIC, self.groups.partition_for(key)))
        if leader is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1
        return ErrorCode.NONE, leader.id, leader.endpoint.host, leader.endpoint.port
