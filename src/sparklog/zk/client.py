"""The only module that talks to ZooKeeper.

Calls block; a broker makes them on a thread of their own. Watches are one-shot and are handed to the callback that
asked, on kazoo's thread: the callback must only pass the word on.
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError

from sparklog.errors import CoordinationError
from sparklog.structs import TopicPartition
from sparklog.zk import znodes
from sparklog.zk.znodes import BrokerInfo, PartitionState, TopicAssignment

_logger = logging.getLogger(__name__)
OnChange = Callable[[], None]
T = TypeVar("T")
_OPS_A_TRANSACTION = 500


class SessionEvent:
    """What ``on_session`` is told."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class ZkClient:
    """One session with the ensemble. Every failure raises CoordinationError."""

    def __init__(
        self, connect: str, *, session_timeout: float, connect_timeout: float = 15.0, on_session: Callable[[str], None]
    ) -> None:
        hosts, _, chroot = connect.partition("/")
        self._client = KazooClient(hosts=hosts, timeout=session_timeout)
        self._on_session = on_session
        self._client.add_listener(self._on_state)
        try:
            self._client.start(timeout=connect_timeout)
        except KazooTimeoutError as error:
            self._client.close()
            raise CoordinationError(
                f"no ZooKeeper answers at {connect} within {connect_timeout:.0f} s; is it running (zookeeper.connect)?"
            ) from error
        if chroot:  # not given with the hosts: kazoo would warn, while it connects, of one that is yet to be made
            self._client.ensure_path(f"/{chroot}")
            self._client.chroot = f"/{chroot}"

    def _on_state(self, state: str) -> None:
        word = {
            KazooState.CONNECTED: SessionEvent.CONNECTED,
            KazooState.SUSPENDED: SessionEvent.SUSPENDED,
            KazooState.LOST: SessionEvent.EXPIRED,
        }[state]
        self._on_session(word)

    def guarded(self, call: Callable[..., T], *args: object) -> T:
        """Run a method of this client; a failure of ZooKeeper comes out as CoordinationError."""
        try:
            return call(*args)
        except KazooException as error:
            raise CoordinationError(f"ZooKeeper: {type(error).__name__} {error}".rstrip()) from error

    @property
    def session_id(self) -> int:
        return int(self._client.client_id[0]) if self._client.client_id else 0

    def close(self) -> None:
        """End the session: its ephemeral znodes go at once."""
        self._client.stop()
        self._client.close()

    def ensure_tree(self) -> None:
        """Make the znodes that every cluster has."""
        for path in znodes.PERSISTENT_PATHS:
            self._client.ensure_path(path)

    def cluster_id(self) -> str:
        """The cluster's id, made by whoever comes first."""
        self._client.ensure_path("/cluster")
        fresh = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        try:
            self._client.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(fresh))
        except NodeExistsError:
            return znodes.decode_cluster_id(self._client.get(znodes.CLUSTER_ID)[0])
        return fresh

    # brokers

    def evict_predecessor(self, info: BrokerInfo) -> None:
        """Remove the ephemeral znodes of a process that was this broker and was killed.

        Only for a caller that owns the broker's log directories and its listening port, so that no such process can be
        alive: it spares the wait for the dead session to expire. A registration at another address is left alone.
        """
        path = znodes.broker_path(info.id)
        node = self._get(path)
        if node is None or node[1].ephemeralOwner == self.session_id:
            return
        if znodes.decode_broker(info.id, node[0], -1).endpoint != info.endpoint:
            return
        if self.controller() == info.id:
            self._delete(znodes.CONTROLLER)
        self._delete(path)

    def register_broker(self, info: BrokerInfo, now_ms: int) -> int:
        """Announce the broker for as long as the session lives; its epoch is returned.

        Raises CoordinationError if another session holds the id.
        """
        path = znodes.broker_path(info.id)
        try:
            self._client.create(path, znodes.encode_broker(info, now_ms), ephemeral=True)
        except NodeExistsError as error:
            found = self._client.exists(path)
            if found is None:
                return self.register_broker(info, now_ms)
            if found.ephemeralOwner != self.session_id:
                raise CoordinationError(
                    f"broker id {info.id} is already registered in ZooKeeper by another session; give this broker "
                    "another id, or wait for the old session to end"
                ) from error
        stat = self._client.exists(path)
        if stat is None:
            raise CoordinationError(f"the registration of broker {info.id} vanished; the session was lost")
        return int(stat.czxid)

    def brokers(self, on_change: OnChange | None = None) -> dict[int, BrokerInfo]:
        """The live brokers by id."""
        found = {}
        for name in self._children(znodes.BROKER_IDS, on_change):
            node = self._get(f"{znodes.BROKER_IDS}/{name}")
            if node is not None:
                found[int(name)] = znodes.decode_broker(int(name), node[0], node[1].czxid)
        return found

    def take_producer_ids(self, broker_id: int, count: int) -> range:
        """The next ``count`` producer ids, never given to anyone before or after."""
        path = znodes.PRODUCER_ID_BLOCK
        while True:
            node = self._get(path)
            start = znodes.decode_producer_id_block(node[0]).stop if node is not None else 0
            block = range(start, start + count)
            data = znodes.encode_producer_id_block(broker_id, block)
            with suppress(BadVersionError, NodeExistsError, NoNodeError):
                if node is None:  # made with the first block, for Kafka reads no empty one
                    self._client.create(path, data)
                else:
                    self._client.set(path, data, version=node[1].version)
                return block

    # controller

    def controller(self, on_change: OnChange | None = None) -> int | None:
        """Who is controller; ``on_change`` is told when the znode comes, goes or changes."""
        watch = _watch(on_change)
        try:
            return znodes.decode_controller(self._client.get(znodes.CONTROLLER, watch=watch)[0])
        except NoNodeError:
            if watch is not None and self._client.exists(znodes.CONTROLLER, watch=watch) is not None:
                return self.controller(on_change)
            return None

    def try_become_controller(self, broker_id: int, now_ms: int) -> tuple[int, int] | None:
        """Take the office if it is vacant: the new controller epoch and the version of its znode, or None.

        Both znodes change in one transaction, so that no two controllers ever share an epoch (KIP-380's order).
        """
        with suppress(NodeExistsError):
            self._client.create(znodes.CONTROLLER_EPOCH, b"0")
        data, stat = self._client.get(znodes.CONTROLLER_EPOCH)
        epoch = int(data) + 1
        transaction = self._client.transaction()
        transaction.create(znodes.CONTROLLER, znodes.encode_controller(broker_id, now_ms), ephemeral=True)
        transaction.set_data(znodes.CONTROLLER_EPOCH, str(epoch).encode(), version=stat.version)
        results = transaction.commit()
        if any(isinstance(result, KazooException) for result in results):
            return None
        return epoch, stat.version + 1

    def give_up_controller(self) -> bool:
        """Leave the office if this session holds it; whether it did."""
        node = self._get(znodes.CONTROLLER)
        if node is None or node[1].ephemeralOwner != self.session_id:
            return False
        self._delete(znodes.CONTROLLER)
        return True

    # topics

    def topics(self, on_change: OnChange | None = None) -> list[str]:
        """The names of all topics."""
        return sorted(self._children(znodes.BROKER_TOPICS, on_change))

    def assignment(self, topic: str) -> TopicAssignment | None:
        node = self._get(znodes.topic_path(topic))
        return None if node is None else znodes.decode_topic(topic, node[0])

    def create_topic(self, assignment: TopicAssignment, config: dict[str, str]) -> bool:
        """Write the topic's settings, then its assignment; False if there is such a topic."""
        if self._client.exists(znodes.topic_path(assignment.topic)) is not None:
            return False
        path = znodes.topic_config_path(assignment.topic)
        data = znodes.encode_config(config)
        try:
            self._client.create(path, data, makepath=True)
        except NodeExistsError:
            self._client.set(path, data)
        try:
            self._client.create(znodes.topic_path(assignment.topic), znodes.encode_topic(assignment))
        except NodeExistsError:
            return False
        return True

    def topic_config(self, topic: str) -> dict[str, str]:
        """The settings that the topic has of its own."""
        return self.config(znodes.topic_entity(topic))

    def add_partitions(self, assignment: TopicAssignment, controller_epoch_version: int) -> None:
        """Give the topic the partitions of ``assignment``; its old ones stay as they are in ZooKeeper.

        Raises CoordinationError if another controller has taken over, or the topic changed or went meanwhile.
        """
        path = znodes.topic_path(assignment.topic)
        data, stat = self._client.get(path)
        old = znodes.decode_topic(assignment.topic, data)
        if not old.partitions.items() <= assignment.partitions.items():
            raise CoordinationError(f"the partitions of {assignment.topic} changed meanwhile")
        transaction = self._client.transaction()
        transaction.check(znodes.CONTROLLER_EPOCH, controller_epoch_version)
        transaction.set_data(path, znodes.with_partitions(path, data, assignment), version=stat.version)
        if any(isinstance(each, KazooException) for each in transaction.commit()):
            raise CoordinationError(f"topic {assignment.topic} changed, or another controller has taken over")

    def request_topic_deletion(self, topic: str) -> None:
        """Ask the controller to delete the topic."""
        with suppress(NodeExistsError):
            self._client.create(znodes.delete_topic_path(topic), makepath=True)

    def topics_to_delete(self, on_change: OnChange | None = None) -> list[str]:
        return sorted(self._children(znodes.DELETE_TOPICS, on_change))

    def forget_topic(self, topic: str) -> None:
        """Remove every znode of the topic, the request for its deletion last."""
        self._delete(znodes.topic_path(topic), recursive=True)
        self._delete(znodes.topic_config_path(topic))
        self._delete(znodes.delete_topic_path(topic))

    # settings

    def config(self, entity: str) -> dict[str, str]:
        """The settings stored for an entity (``znodes.topic_entity`` and its neighbours)."""
        path = znodes.config_path(entity)
        node = self._get(path)
        return {} if node is None else znodes.decode_config(path, node[0])

    def change_config(self, entity: str, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Store what ``change`` makes of the entity's settings, and tell every broker; it may be called again."""
        path = znodes.config_path(entity)
        while True:
            node = self._get(path)
            data = znodes.encode_config(change({} if node is None else znodes.decode_config(path, node[0])))
            with suppress(NodeExistsError, BadVersionError):  # somebody else was faster: look again
                if node is None:
                    self._client.create(path, data, makepath=True)
                else:
                    self._client.set(path, data, version=node[1].version)
                break
        told = znodes.encode_config_change(entity)
        self._client.create(f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}", told, sequence=True)

    def config_changes(self, on_change: OnChange | None = None) -> list[int]:
        """The numbers of the changes told of lately, in order."""
        names = self._children(znodes.CONFIG_CHANGES, on_change)
        return sorted(int(name.removeprefix(znodes.CONFIG_CHANGE_PREFIX)) for name in names)

    def changed_entity(self, number: int) -> str | None:
        """Whose settings changed; None if it is forgotten already."""
        path = znodes.config_change_path(number)
        node = self._get(path)
        return None if node is None else znodes.decode_config_change(path, node[0])

    def forget_config_changes(self, before_ms: int) -> None:
        """Remove what was told before a time, which every broker has heard or will learn at its start."""
        for number in self.config_changes():
            stat = self._client.exists(znodes.config_change_path(number))
            if stat is not None and stat.ctime < before_ms:
                self._delete(znodes.config_change_path(number))

    # partition states

    def partition_states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """The states of those partitions that have one."""
        asked = [(tp, self._client.get_async(znodes.partition_state_path(tp))) for tp in partitions]
        states = {}
        for tp, answer in asked:
            try:
                data, stat = answer.get()
            except NoNodeError:
                continue
            states[tp] = znodes.decode_partition_state(tp, data, stat.version)
        return states

    def write_partition_states(
        self, states: dict[TopicPartition, PartitionState], controller_epoch_version: int
    ) -> dict[TopicPartition, PartitionState]:
        """Write the states, each only over the version it was read at (-1: it must not exist), fenced by our epoch.

        Returns those written, with their new versions. Raises CoordinationError if another controller has taken over.
        """
        self._ensure_partition_parents(states)
        written: dict[TopicPartition, PartitionState] = {}
        items = list(states.items())
        for start in range(0, len(items), _OPS_A_TRANSACTION):
            asked = [
                (tp, state, self._write_state(tp, state, controller_epoch_version))
                for tp, state in items[start : start + _OPS_A_TRANSACTION]
            ]
            for tp, state, answer in asked:
                written.update(self._state_written(tp, state, answer.get()))
        return written

    def _write_state(self, tp: TopicPartition, state: PartitionState, controller_epoch_version: int):  # type: ignore[no-untyped-def]
        transaction = self._client.transaction()
        transaction.check(znodes.CONTROLLER_EPOCH, controller_epoch_version)
        path, data = znodes.partition_state_path(tp), znodes.encode_partition_state(state)
        if state.version < 0:
            transaction.create(path, data)
        else:
            transaction.set_data(path, data, version=state.version)
        return transaction.commit_async()

    @staticmethod
    def _state_written(
        tp: TopicPartition, state: PartitionState, results: list[object]
    ) -> dict[TopicPartition, PartitionState]:
        if isinstance(results[0], BadVersionError):
            raise CoordinationError("another controller has taken over; this one's epoch is stale")
        if any(isinstance(each, RolledBackError | RuntimeInconsistency | KazooException) for each in results):
            _logger.warning("the state of %s changed under the controller: %s", tp, results[1])
            return {}
        version = 0 if state.version < 0 else state.version + 1
        return {tp: PartitionState(state.leader, state.leader_epoch, state.isr, state.controller_epoch, version)}

    def _ensure_partition_parents(self, states: dict[TopicPartition, PartitionState]) -> None:
        new = [tp for tp, state in states.items() if state.version < 0]
        for topic in {tp.topic for tp in new}:
            self._client.ensure_path(f"{znodes.topic_path(topic)}/partitions")
        for answer in [
            self._client.create_async(f"{znodes.topic_path(tp.topic)}/partitions/{tp.partition}") for tp in new
        ]:
            with suppress(NodeExistsError):
                answer.get()

    # znodes

    def _get(self, path: str):  # type: ignore[no-untyped-def]
        try:
            return self._client.get(path)
        except NoNodeError:
            return None

    def _children(self, path: str, on_change: OnChange | None) -> list[str]:
        try:
            return list(self._client.get_children(path, watch=_watch(on_change)))
        except NoNodeError:
            self._client.ensure_path(path)
            return list(self._client.get_children(path, watch=_watch(on_change)))

    def _delete(self, path: str, *, recursive: bool = False) -> None:
        with suppress(NoNodeError):
            self._client.delete(path, recursive=recursive)


class _Watch(NamedTuple):
    """kazoo keeps a path's watches in a set until they fire: the same callback again must be an equal member of it."""

    on_change: OnChange

    def __call__(self, _event: object) -> None:
        self.on_change()


def _watch(on_change: OnChange | None) -> _Watch | None:
    return None if on_change is None else _Watch(on_change)
