"""What ZooKeeper and the leaders tell of every partition, written down and kept for whoever waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from histories.drill import _AWAY, END_S
from histories.history import Recorder, now

from sparklog.config.zookeeper_security import OPEN, ZooKeeperSecurity
from sparklog.errors import CoordinationError
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeLogDirsRequest, ListOffsetsRequest
from sparklog.structs import TopicPartition
from sparklog.zk.client import ZkClient
from sparklog.zk.znodes import PartitionState, ReplicaAssignment

LOOK_S = 0.2
_LATEST = -1
States = Mapping[TopicPartition, PartitionState]


def described(states: States) -> dict[str, list[Any]]:
    """The field of a ``states`` event."""
    return {
        f"{tp.topic}/{tp.partition}": [each.leader, each.leader_epoch, list(each.isr), each.version]
        for tp, each in states.items()
    }


class Place(NamedTuple):
    """Where a broker is asked."""

    broker_id: int
    life: int
    """How often it was started."""
    address: str


class Places(NamedTuple):
    """Where everybody is, and how to connect."""

    open_zookeeper: Callable[[], ZkClient]
    brokers: Callable[[], Sequence[Place]]
    connect: Callable[[str, float], BlockingConnection]
    """To an address, with a time for requests in seconds."""


def open_zookeeper(connect: str, security: ZooKeeperSecurity = OPEN) -> ZkClient:
    """A client that stays if its session ends. Raises CoordinationError."""
    return ZkClient(connect, session_timeout=10.0, on_session=lambda _: None, security=security)


class Watcher:
    """Looks again and again; what it saw last is in ``states`` and ``replicas``. ``partitions``: those that there are,
    or will be."""

    def __init__(
        self,
        history: Path,
        places: Places,
        partitions: Sequence[TopicPartition],
    ) -> None:
        self._places = places
        self._partitions = partitions
        self._record = Recorder(history, "watcher")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.states: States = {}
        self.replicas: dict[TopicPartition, ReplicaAssignment] = {}
        self._crippled: dict[int, int] = {}
        self._asked = 0

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(END_S)

    def is_whole(self, since: int) -> bool:
        """Whether nothing moved, all replicas of all partitions were in sync, and no log directory was out of service,
        when it looked last, which was after ``since``."""
        return self._asked > since and not self._crippled and self._in_sync()

    def _in_sync(self) -> bool:
        return bool(self.replicas) and all(
            tp in self.states and not each.is_moving and {*each.replicas} == {*self.states[tp].isr}
            for tp, each in self.replicas.items()
        )

    def is_crippled(self, broker_id: int, life: int) -> bool:
        """Whether a log directory of the broker is out of service in this life."""
        return self._crippled.get(broker_id) == life

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            with suppress(CoordinationError):
                zookeeper = self._places.open_zookeeper()
                try:
                    self._watch(zookeeper)
                finally:
                    zookeeper.close()

    def _watch(self, zookeeper: ZkClient) -> None:
        """Raises CoordinationError."""
        while not self._stopping.wait(LOOK_S):
            asked = now()
            found = zookeeper.guarded(zookeeper.states.read, self._partitions)
            self._record("states", asked=asked, states=described(found))
            replicas = zookeeper.guarded(self._assignments, zookeeper)
            crippled = {}
            for broker_id, life, address in self._places.brokers():
                with suppress(*_AWAY), self._places.connect(address, 1.0) as connection:
                    self._ask_ends(connection, broker_id, found)
                    if _has_lost_a_log_dir(connection):
                        crippled[broker_id] = life
            self.states, self.replicas, self._crippled, self._asked = found, replicas, crippled, asked

    def _assignments(self, zookeeper: ZkClient) -> dict[TopicPartition, ReplicaAssignment]:
        topics = {name: zookeeper.topics.assignment(name) for name in {tp.topic for tp in self._partitions}}
        known = [(tp, topics[tp.topic]) for tp in self._partitions]
        return {tp: topic.of(tp.partition) for tp, topic in known if topic is not None}

    def _ask_ends(self, connection: BlockingConnection, broker_id: int, states: States) -> None:
        led = [tp for tp in self._partitions if tp in states and states[tp].leader == broker_id]
        topic = ListOffsetsRequest.ListOffsetsTopic
        asked_topics = [
            topic(
                name=tp.topic,
                partitions=[
                    topic.ListOffsetsPartition(
                        partition_index=tp.partition, current_leader_epoch=states[tp].leader_epoch, timestamp=_LATEST
                    )
                ],
            )
            for tp in led
        ]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=asked_topics)
        asked = now()
        answer = connection.request(ApiKey.LIST_OFFSETS, lambda _: request)
        for each in answer.topics:
            for found in each.partitions:
                if not found.error_code:
                    tp = TopicPartition(each.name, found.partition_index)
                    told = {"epoch": states[tp].leader_epoch, "offset": found.offset}
                    self._record("end", asked=asked, topic=tp.topic, partition=tp.partition, **told)


def _has_lost_a_log_dir(connection: BlockingConnection) -> bool:
    request = DescribeLogDirsRequest(topics=[])
    answer = connection.request(ApiKey.DESCRIBE_LOG_DIRS, lambda _: request)
    return any(each.error_code for each in answer.results)
