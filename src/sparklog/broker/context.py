"""What an API handler may reach: the parts of one broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.expressions import Expressions
from sparklog.broker.fence import ControllerFence
from sparklog.broker.fetch_sessions import FetchSessions
from sparklog.broker.leases import Leases
from sparklog.broker.metadata_cache import MetadataCache
from sparklog.broker.preparation import Preparation
from sparklog.broker.replication.fetchers import Fetchers
from sparklog.broker.replication.isr_changes import IsrChanges
from sparklog.broker.security.acls import Acls
from sparklog.broker.security.tokens import DelegationTokens
from sparklog.broker.settings import Settings
from sparklog.broker.topics import TopicMaker
from sparklog.broker.txn.coordinators import TransactionCoordinators
from sparklog.broker.txn.entry import TransactionEntry
from sparklog.broker.txn.markers import TransactionMarkers
from sparklog.broker.txn.producer_ids import ProducerIds
from sparklog.clock import Clock
from sparklog.config.broker import BrokerConfig
from sparklog.config.topic import TopicConfig, parse_stored
from sparklog.controller.runtime import Controller
from sparklog.errors import ApiError, ErrorCode
from sparklog.group.runtime import GroupCoordinator
from sparklog.net.peers import Peers
from sparklog.net.tasks import Tasks
from sparklog.net.turns import Turns
from sparklog.net.vigil import Looks
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot.fetch import LeaderHint
from sparklog.replica.adopting import SegmentAdopter
from sparklog.replica.cleaning import LogCleaner
from sparklog.replica.cleaning_grants import CleaningGrants
from sparklog.replica.erasing import LogEraser
from sparklog.replica.manager import ReplicaManager
from sparklog.replica.partition import Partition
from sparklog.security.access import Authorizer
from sparklog.security.caller import Caller
from sparklog.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from sparklog.txn.runtime import TransactionCoordinator
from sparklog.zk.client import ZkClient
from sparklog.zk.znodes import BrokerInfo

_logger = logging.getLogger(__name__)
M = TypeVar("M")


_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
"""Between two attempts to load what a coordinator's partition holds."""


class KeyType(IntEnum):
    """What a coordinator is asked for."""

    GROUP = 0
    TRANSACTION = 1


_COORDINATED = {KeyType.GROUP: OFFSETS_TOPIC, KeyType.TRANSACTION: TRANSACTIONS_TOPIC}


class ApiRequest(NamedTuple, Generic[M]):
    """One request, decoded: ``M`` is its class, as the API's handler wants it."""

    api: ApiKey
    version: int
    client_id: str | None
    caller: Caller
    message: M
    after: asyncio.Future[Any] | None = None
    """Done when the requests of this API that came before on the connection have their places."""

    @property
    def client_host(self) -> str:
        """The address that it comes from."""
        return self.caller.host


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
    cleaner: LogCleaner
    cleaning_grants: CleaningGrants
    eraser: LogEraser
    adopter: SegmentAdopter
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    txn_markers: TransactionMarkers
    fetch_sessions: FetchSessions
    leases: Leases
    quotas: ClientQuotas
    fetchers: Fetchers
    isr_changes: IsrChanges
    txn_coordinators: TransactionCoordinators
    peers: Peers
    looks: Looks
    txn_entry: TransactionEntry
    preparation: Preparation
    expressions: Expressions
    """Of strangers, as groups and requests bring them."""
    topics: TopicMaker
    controller: Controller
    zk: ZkClient
    run_zk: Callable[..., Awaitable[Any]]
    """Runs a call of ``zk`` off the loop; raises ApiError(REQUEST_TIMED_OUT) if ZooKeeper does not answer."""
    run_disk: Callable[..., asyncio.Future[Any]]
    """Runs a call that waits for the disk off the loop, after those before it."""
    turns: Turns
    authorizer: Authorizer
    acls: Acls | None
    """The lists by which ``authorizer`` decides; None where it lets everybody do everything."""
    tokens: DelegationTokens | None
    """None where delegation tokens are not enabled."""
    fence: ControllerFence
    producer_ids: ProducerIds
    offered: dict[ApiKey, range]
    """What ApiVersions tells."""

    _tasks: Tasks = field(init=False)
    _takeovers: dict[TopicPartition, asyncio.Task[None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tasks = Tasks(self.loop, lambda what, error: _logger.error("%s failed", what, exc_info=error))

    def in_background(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """Let ``work`` run beside the requests; if it fails, the log says so."""
        return self._tasks.spawn(work, what)

    async def topic_config(self, topic: str) -> TopicConfig:
        """The topic's settings over the broker's defaults."""
        properties = await self.run_zk(self.zk.configs.of_topic, topic)
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

    def leader_hint(self, tp: TopicPartition, listener: str) -> LeaderHint | None:
        """Where a client that asked this broker by ``listener`` finds the partition, which it does not lead."""
        return self.metadata.leader_hint(tp, self.replicas.epoch_and_leader(tp), listener)

    async def has_coordinators(self, key_type: KeyType) -> bool:
        """Whether there is the topic in which they keep what they know; it is made where it is missing."""
        topic = _COORDINATED[key_type]
        return self.metadata.topic(topic) is not None or await self.topics.ensure(topic) is ErrorCode.NONE

    def coordinator_of(self, key_type: KeyType, key: str) -> BrokerInfo | None:
        """The broker that coordinates a group or a transactional id; None if there is none now."""
        coordinator = self.groups if key_type is KeyType.GROUP else self.transactions
        return self.metadata.leader(TopicPartition(_COORDINATED[key_type], coordinator.partition_for(key)))

    def coordinate(self, tp: TopicPartition) -> None:
        """This broker leads ``tp`` now: if it is a coordinator's, take over what it holds."""
        coordinator = self._coordinator_of(tp)
        if coordinator is not None:
            self._takeovers[tp] = self.in_background(self._take_over(coordinator, tp), f"loading {tp}")

    async def _take_over(self, coordinator: GroupCoordinator | TransactionCoordinator, tp: TopicPartition) -> None:
        """Until it has succeeded, all that is asked of the partition is told that it is being loaded."""
        pause = _FIRST_PAUSE_S
        while True:
            try:
                await coordinator.load(tp.partition)
                return
            except Exception:
                _logger.exception("%s cannot be loaded, so what it holds is not coordinated; trying again", tp)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def stop_coordinating(self, tp: TopicPartition) -> None:
        """This broker leads ``tp`` no longer."""
        coordinator = self._coordinator_of(tp)
        if coordinator is not None:
            takeover = self._takeovers.pop(tp, None)
            if takeover is not None:
                takeover.cancel()
            coordinator.unload(tp.partition)

    def _coordinator_of(self, tp: TopicPartition) -> GroupCoordinator | TransactionCoordinator | None:
        if tp.topic == OFFSETS_TOPIC:
            return self.groups
        return self.transactions if tp.topic == TRANSACTIONS_TOPIC else None
