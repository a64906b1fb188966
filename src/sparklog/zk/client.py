"""The only module that talks to ZooKeeper; ``connection.py`` finds a server that answers.

Calls block; a broker makes them on a thread of their own. Watches are one-shot and are handed to the callback that
asked, on kazoo's thread: the callback must only pass the word on.

What is written, and by whom:

- A decision of the controller (partition states, added partitions, the end of a topic) is one transaction with a check
  of the version of ``/controller_epoch``: a controller that was deposed writes nothing, however late it comes.
- A wish (a new topic, new settings, a topic to delete) may be written by every broker, in one transaction that holds
  all of it and fails whole where something else stands in its place.
- An ephemeral znode goes with its session, or is deleted by it; the session of a process that is proved dead is ended
  as that process would have ended it. A broker deletes one of another's: a controller's that is gone, with its epoch.
- When the connection is lost the answer to a write may be lost with it. kazoo repeats nothing. The write is looked up
  where its author would otherwise take what it has done itself for another's.
"""

from __future__ import annotations

import base64
import logging
import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar
from uuid import UUID

from kazoo.client import KazooState
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from sparklog.config.listeners import PLAINTEXT
from sparklog.config.zookeeper_connect import parse_connect
from sparklog.config.zookeeper_security import OPEN, ZooKeeperSecurity
from sparklog.errors import BrokerIdTaken, CoordinationError, MalformedZnode
from sparklog.structs import TopicPartition
from sparklog.zk import znodes
from sparklog.zk.connection import kazoo_client
from sparklog.zk.entities import CLIENTS, ENTITY_KINDS, USERS
from sparklog.zk.ownership import acl_of
from sparklog.zk.znodes import BrokerInfo, PartitionState, TopicAssignment

_logger = logging.getLogger(__name__)
OnChange = Callable[[], None]
T = TypeVar("T")
_OPS_A_TRANSACTION = 500
_STATES_A_TRANSACTION = 100
"""Of the states that have nothing beside them: some 20 kB, and one flush of ZooKeeper's log."""
_OPS_OF_A_STATE = 2
"""The check of the office, and the state itself; what stands beside it comes after."""
_TRIES = 5
_NOT_OURS = b"\0"
"""What a znode that may not be read is taken to hold: nothing that anybody would write."""


class Session(NamedTuple):
    """What it takes to speak for a session: its id, and the password that ZooKeeper gave for it."""

    id: int
    password: bytes


class Stored(NamedTuple):
    """What a znode held, for a write on the condition that it still does."""

    data: bytes
    version: int


class Told(NamedTuple):
    """What tells others of a change: a sequential znode, ``path`` without the number."""

    path: str
    data: bytes


class Office(NamedTuple):
    """The controller's broker id (-1: none), and the controller epoch."""

    holder: int
    epoch: int


class SessionEvent:
    """What ``on_session`` is told."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class ZkClient:
    """One session with the ensemble. Every failure raises CoordinationError."""

    def __init__(
        self,
        connect: str,
        *,
        session_timeout: float,
        connect_timeout: float = 15.0,
        on_session: Callable[[str], None],
        makes_chroot: bool = True,
        between_brokers: str = PLAINTEXT,
        security: ZooKeeperSecurity = OPEN,
    ) -> None:
        self._between_brokers = between_brokers
        ensemble = parse_connect(connect)
        self._session_timeout, self._connect_timeout = session_timeout, connect_timeout
        self._members = random.sample(ensemble.members, len(ensemble.members))
        self._security = security
        self._client = kazoo_client(self._members, session_timeout, security=security)
        self._on_session = on_session
        self._with_eligible: set[TopicPartition] = set()  # partitions that are believed to have that znode
        self._client.add_listener(self._on_state)
        try:
            self._client.start(timeout=connect_timeout)
        except KazooTimeoutError as error:
            self._client.close()
            raise CoordinationError(self._why_not_connected(connect)) from error
        if security.jaas:
            self._require_login(connect)
        if ensemble.chroot:  # given later: while it connects kazoo would warn of one that is yet to be made
            try:
                if makes_chroot:
                    self.lasting(self._client.ensure_path, ensemble.chroot)
            except CoordinationError:
                self.close()
                raise
            self._client.chroot = ensemble.chroot

    def _require_login(self, connect: str) -> None:
        """ZooKeeper hangs up on a session whose user or password is wrong, and says no more."""
        try:
            self._client.exists("/")
        except (AuthFailedError, ConnectionClosedError, SessionExpiredError) as error:
            self.close()
            raise CoordinationError(
                f"ZooKeeper at {connect} took neither user nor password, or has no SASL"
                " (sparklog.zookeeper.sasl.jaas.config)"
            ) from error

    def _why_not_connected(self, connect: str) -> str:
        seconds, complaint = f"within {self._connect_timeout:.0f} s", self._client.handler.complaint
        if complaint:
            return f"no ZooKeeper at {connect} could be spoken to {seconds} (zookeeper.ssl.*): {complaint}"
        return f"no ZooKeeper answers at {connect} {seconds}; is it running (zookeeper.connect)?"

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
        except NoAuthError as error:
            raise CoordinationError(
                "ZooKeeper lets this broker not do that: a znode is another's (zookeeper.set.acl); all brokers need"
                " certificates of the same subject (zookeeper.ssl.keystore.location)"
            ) from error
        except KazooException as error:
            raise CoordinationError(f"ZooKeeper: {type(error).__name__} {error}".rstrip()) from error

    def lasting(self, call: Callable[..., T], *args: object) -> T:
        """``guarded``, for a call that may be made twice: where the connection breaks, it is made again.

        So for as long as a first connection is waited for.
        """
        again = KazooRetry(max_tries=-1, max_delay=1.0, deadline=self._connect_timeout)
        answer: T = self.guarded(again, call, *args)
        return answer

    @property
    def session_id(self) -> int:
        return self.session.id

    @property
    def session(self) -> Session:
        """The session that there is now; its id is 0 when there is none."""
        found = self._client.client_id
        return Session(int(found[0]), bytes(found[1])) if found else Session(0, b"")

    def close(self) -> None:
        """End the session: its ephemeral znodes go at once. Calls that still wait for ZooKeeper fail."""
        with suppress(KazooException):  # ZooKeeper is not there to hear of it; the session ends by itself
            self._client.stop()
        self._client.close()

    def end_session(self, session: Session) -> None:
        """End a session of a process that is dead: all its ephemeral znodes go, and no others."""
        successor = kazoo_client(self._members, self._session_timeout, session, self._security)
        try:
            successor.start(timeout=self._connect_timeout)
            successor.stop()
        except KazooTimeoutError as error:
            raise CoordinationError("ZooKeeper did not answer while the session of a dead broker was ended") from error
        finally:
            successor.close()

    def ensure_tree(self) -> None:
        """Make the znodes that every cluster has."""
        for path in znodes.PERSISTENT_PATHS:
            self._client.ensure_path(path)

    def own_root(self) -> None:
        """Let nobody else make znodes beside the cluster's: who makes ``/controller`` first is the controller."""
        self._client.set_acls("/", acl_of("/"))

    def cluster_id(self) -> str:
        """The cluster's id, made by the broker that comes first."""
        self._client.ensure_path("/cluster")
        fresh = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        try:
            self._client.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(fresh))
        except NodeExistsError:
            return znodes.decode_cluster_id(self._client.get(znodes.CLUSTER_ID)[0])
        return fresh

    # brokers

    def broker_owner(self, broker_id: int) -> int | None:
        """The session that registered the broker id, None if it is free."""
        stat = self._client.exists(znodes.broker_path(broker_id))
        return None if stat is None else int(stat.ephemeralOwner)

    def register_broker(self, info: BrokerInfo, now_ms: int) -> int:
        """Announce the broker for as long as the session lives; its epoch is returned.

        To be called again after an error: what this session has registered already is found. Raises BrokerIdTaken if
        another session holds the id.
        """
        path = znodes.broker_path(info.id)
        with suppress(NodeExistsError):
            self._client.create(path, znodes.encode_broker(info, now_ms), ephemeral=True)
        stat = self._client.exists(path)
        if stat is None:
            raise CoordinationError(f"the registration of broker {info.id} vanished; the session was lost")
        if stat.ephemeralOwner != self.session_id:
            raise BrokerIdTaken(info.id, int(stat.ephemeralOwner))
        return int(stat.czxid)

    def brokers(self, on_change: OnChange | None = None) -> dict[int, BrokerInfo]:
        """The live brokers by id; without one that says nothing that can be told of it, for that is not the others'."""
        found = {}
        for name in self._children(znodes.BROKER_IDS, on_change):
            node = self._get(f"{znodes.BROKER_IDS}/{name}")
            if node is None:
                continue
            try:
                found[int(name)] = znodes.decode_broker(int(name), node[0], node[1].czxid, self._between_brokers)
            except (MalformedZnode, ValueError) as error:
                _logger.error("broker %s is left alone: %s", name, error)
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

    def lives(self) -> dict[int, int]:
        """For each broker the life of which the partition states take account; none if that cannot be read."""
        node = self._get(znodes.LIVES)
        try:
            return {} if node is None else znodes.decode_lives(node[0])
        except MalformedZnode as error:
            _logger.error("every broker that comes back is taken for one that has lost its end: %s", error)
            return {}

    def write_lives(self, lives: Mapping[int, int], controller_epoch_version: int) -> None:
        """Raises CoordinationError if another controller has taken over."""
        transaction = self._as_controller(controller_epoch_version)
        transaction.set_data(znodes.LIVES, znodes.encode_lives(lives))
        results = list(transaction.commit())
        _check_office(results)
        if _failed(results):
            raise CoordinationError(f"{znodes.LIVES} cannot be written: {results[1]}")

    # failed log directories

    def report_log_dir_failure(self, broker_id: int) -> None:
        """Have the controller ask the broker which of its partitions it still holds."""
        path = f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}"
        self._client.create(path, znodes.encode_log_dir_event(broker_id), sequence=True)

    def log_dir_events(self, on_change: OnChange | None = None) -> dict[str, int]:
        """The reports that no controller has taken up yet: name, and the broker it is about (-1: it cannot be read)."""
        events = {}
        for name in self._children(znodes.LOG_DIR_EVENTS, on_change):
            path = f"{znodes.LOG_DIR_EVENTS}/{name}"
            node = self._get(path)
            if node is not None:
                events[name] = znodes.decode_log_dir_event(path, node[0])
        return events

    def forget_log_dir_events(self, names: Iterable[str], controller_epoch_version: int) -> None:
        """Remove reports that were taken up. Raises CoordinationError if another controller has taken over."""
        paths = [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names]
        for start in range(0, len(paths), _OPS_A_TRANSACTION):
            self._remove(paths[start : start + _OPS_A_TRANSACTION], controller_epoch_version)

    # controller

    def controller(self, on_change: OnChange | None = None) -> int | None:
        """The controller's broker id; ``on_change`` is told when the znode comes, goes or changes."""
        watch = _watch(on_change)
        try:
            return znodes.decode_controller(self._client.get(znodes.CONTROLLER, watch=watch)[0])
        except NoNodeError:
            if watch is not None and self._client.exists(znodes.CONTROLLER, watch=watch) is not None:
                return self.controller(on_change)
            return None

    def try_become_controller(self, broker_id: int, now_ms: int, after: Office | None = None) -> tuple[int, int] | None:
        """Take the office if it is vacant, or held as in ``after``: the new epoch and its znode's version, or None.

        Both znodes change in one transaction, so that no two controllers ever share an epoch (KIP-380's order). An
        office that was taken while its answer was lost is ours.
        """
        with suppress(NodeExistsError):
            self._client.create(znodes.CONTROLLER_EPOCH, b"0")
        data, stat = self._client.get(znodes.CONTROLLER_EPOCH)
        epoch = int(data) + 1
        transaction = self._client.transaction()
        if after is not None:
            if epoch != after.epoch + 1:
                return None
            transaction.delete(znodes.CONTROLLER)
        transaction.create(znodes.CONTROLLER, znodes.encode_controller(broker_id, now_ms), ephemeral=True)
        transaction.set_data(znodes.CONTROLLER_EPOCH, str(epoch).encode(), version=stat.version)
        transaction.set_data(znodes.TERMS, znodes.encode_terms(epoch, self._terms()[0]))
        results = self._commit(transaction, lambda: self._holds_office(epoch))
        return None if _failed(results) else (epoch, stat.version + 1)

    def foreign_terms(self, epoch: int) -> range:
        """The controller epochs just before ``epoch``, which is ours, in which no broker of ours held the office; none
        if it is not known.
        """
        last, before = self._terms()
        return range(before + 1, epoch) if last == epoch and before > 0 else range(0)

    def _terms(self) -> tuple[int, int]:
        node = self._get(znodes.TERMS)
        try:
            return (0, 0) if node is None else znodes.decode_terms(node[0])
        except MalformedZnode as error:
            _logger.error("whose brokers were controllers is not known: %s", error)
            return 0, 0

    def _holds_office(self, epoch: int) -> bool:
        node, told = self._get(znodes.CONTROLLER), self._get(znodes.CONTROLLER_EPOCH)
        ours = node is not None and node[1].ephemeralOwner == self.session_id
        return ours and told is not None and int(told[0]) == epoch

    def give_up_controller(self) -> bool:
        """Leave the office if this session holds it; whether it did."""
        term = self._client.exists(znodes.CONTROLLER_EPOCH)
        node = self._get(znodes.CONTROLLER)
        if term is None or node is None or node[1].ephemeralOwner != self.session_id:
            return False
        transaction = self._as_controller(term.version)  # a controller that follows us meanwhile stays in office
        transaction.delete(znodes.CONTROLLER)
        transaction.commit()
        return True

    def office(self) -> Office:
        """The controller and its epoch: at some moment since this call began, wherever it was written."""
        self._client.sync(znodes.CONTROLLER)
        while True:
            before = self._get(znodes.CONTROLLER_EPOCH)
            node = self._get(znodes.CONTROLLER)
            after = self._get(znodes.CONTROLLER_EPOCH)
            if before == after:
                holder = -1 if node is None else znodes.decode_controller(node[0])
                return Office(holder, -1 if after is None else int(after[0]))

    def _as_controller(self, epoch_version: int):  # type: ignore[no-untyped-def]
        """A transaction that fails whole, at its first operation, once another controller has taken over."""
        transaction = self._client.transaction()
        transaction.check(znodes.CONTROLLER_EPOCH, epoch_version)
        return transaction

    def _commit(self, transaction, happened: Callable[[], bool]) -> list[object]:  # type: ignore[no-untyped-def]
        """The results of a transaction; none if the answer was lost and it turns out to have ``happened``."""
        try:
            return list(transaction.commit())
        except ConnectionLoss:
            if not happened():
                raise
            return []

    # topics

    def topics(self, on_change: OnChange | None = None) -> list[str]:
        """The names of all topics."""
        return sorted(self._children(znodes.BROKER_TOPICS, on_change))

    def assignment(self, topic: str) -> TopicAssignment | None:
        node = self._get(znodes.topic_path(topic))
        return None if node is None else znodes.decode_topic(topic, node[0])

    def create_topic(self, assignment: TopicAssignment, config: dict[str, str]) -> bool:
        """Write the topic's assignment and settings, both or neither; False if there is such a topic."""
        path, settings = znodes.topic_path(assignment.topic), znodes.topic_config_path(assignment.topic)
        for _ in range(_TRIES):
            left = self._client.exists(settings)
            transaction = self._client.transaction()
            transaction.create(path, znodes.encode_topic(assignment))
            if left is None:
                transaction.create(settings, znodes.encode_config(config))
            else:
                transaction.set_data(settings, znodes.encode_config(config), version=left.version)
            results = self._commit(transaction, lambda: self._is_stored(assignment))
            if not _failed(results):
                return True
            if isinstance(results[0], NodeExistsError):
                return False
        raise CoordinationError(f"the settings of topic {assignment.topic} change all the time; try again")

    def _is_stored(self, assignment: TopicAssignment) -> bool:
        """Whether it is this topic that was made, and not another of its name."""
        found = self.assignment(assignment.topic)
        return found is not None and assignment.topic_id is not None and found.topic_id == assignment.topic_id

    def topic_config(self, topic: str) -> dict[str, str]:
        """The settings that the topic has of its own."""
        return self.config(znodes.topic_entity(topic))

    def topic_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """``topic_config`` of each of them; one that cannot be read is left out, and named in the log."""
        asked = [(topic, self._client.get_async(znodes.topic_config_path(topic))) for topic in topics]
        found = dict[str, dict[str, str]]()
        for topic, answer in asked:
            path = znodes.topic_config_path(topic)
            try:
                with _readable(path):
                    found[topic] = znodes.decode_config(path, answer.get()[0])
            except NoNodeError:
                found[topic] = {}
            except MalformedZnode as error:
                _logger.error("the settings of topic %s are left alone: %s", topic, error)
        return found

    def add_partitions(self, assignment: TopicAssignment, controller_epoch_version: int) -> None:
        """Give the topic the partitions of ``assignment``; its old ones stay as they are in ZooKeeper.

        Raises CoordinationError if another controller has taken over, or the topic changed or went meanwhile.
        """
        old = {number: assignment.of(number) for number in assignment.partitions}

        def is_grown(found: TopicAssignment) -> bool:
            return all(old.get(number) == found.of(number) for number in found.partitions)

        if not self._write_assignment(assignment, controller_epoch_version, is_grown, {}):
            raise CoordinationError(f"topic {assignment.topic} changed meanwhile; try again")

    def move_replicas(
        self,
        old: TopicAssignment,
        new: TopicAssignment,
        controller_epoch_version: int,
        over: Mapping[TopicPartition, PartitionState],
    ) -> bool:
        """Write ``new`` where ZooKeeper has ``old``, and ``over`` are the states of these partitions; whether it has.

        Raises CoordinationError if another controller has taken over.
        """
        return self._write_assignment(new, controller_epoch_version, lambda found: found == old, over)

    def _write_assignment(
        self,
        new: TopicAssignment,
        controller_epoch_version: int,
        is_expected: Callable[[TopicAssignment], bool],
        over: Mapping[TopicPartition, PartitionState],
    ) -> bool:
        path = znodes.topic_path(new.topic)
        node = self._get(path)
        if node is None or not is_expected(znodes.decode_topic(new.topic, node[0])):
            return False
        transaction = self._as_controller(controller_epoch_version)
        transaction.set_data(path, znodes.with_replicas(path, node[0], new), version=node[1].version)
        for tp, state in over.items():
            transaction.check(znodes.partition_state_path(tp), state.version)
        results = self._commit(transaction, lambda: self.assignment(new.topic) == new)
        if results:
            _check_office(results)
        return not _failed(results)

    def reassignments(self, on_change: OnChange | None = None) -> dict[TopicPartition, tuple[int, ...]] | None:
        """The replicas that partitions are to have, as an operator asks in ZooKeeper; None without such a znode.

        Raises MalformedZnode.
        """
        there = self._client.exists(znodes.REASSIGN_PARTITIONS, watch=_watch(on_change))
        node = None if there is None else self._get(znodes.REASSIGN_PARTITIONS)
        return None if node is None else znodes.decode_reassignments(node[0])

    def forget_reassignments(
        self, done: Mapping[TopicPartition, tuple[int, ...]], controller_epoch_version: int
    ) -> None:
        """Take these out of what an operator asks for in ZooKeeper; the znode goes with the last of them.

        Raises CoordinationError if another controller has taken over, MalformedZnode.
        """
        path = znodes.REASSIGN_PARTITIONS
        for _ in range(_TRIES):
            node = self._get(path)
            if node is None:
                return
            asked = znodes.decode_reassignments(node[0])
            left = {tp: replicas for tp, replicas in asked.items() if done.get(tp) != replicas}
            transaction = self._as_controller(controller_epoch_version)
            if left:
                transaction.set_data(path, znodes.encode_reassignments(left), version=node[1].version)
            else:
                transaction.delete(path, version=node[1].version)
            results = list(transaction.commit())
            _check_office(results)
            if not _failed(results):
                return
        raise CoordinationError(f"znode {path} changes all the time; it will be looked at later")

    def request_topic_deletion(self, topic: str, topic_id: UUID | None = None) -> None:
        """Ask the controller to delete the topic; with an id only the one that bears it, whatever the name is now."""
        path, data = znodes.delete_topic_path(topic), znodes.encode_deletion(topic_id)
        try:
            self._client.create(path, data, makepath=True)
        except NodeExistsError:
            if topic_id is None:  # the one that was asked for before may be another, which is gone
                with suppress(NoNodeError):
                    self._client.set(path, data)

    def topics_to_delete(self, on_change: OnChange | None = None) -> dict[str, UUID | None]:
        """The topics that are to go, with the id where only the one that bears it is meant."""
        topics = sorted(self._children(znodes.DELETE_TOPICS, on_change))
        asked = {topic: self._client.get_async(znodes.delete_topic_path(topic)) for topic in topics}
        found = {}
        for topic, answer in asked.items():
            with suppress(NoNodeError):
                found[topic] = znodes.decode_deletion(answer.get()[0])
        return found

    def forget_deletion(self, topic: str, controller_epoch_version: int) -> None:
        """Remove the request for the deletion of a topic that is not there, or not under the id that it names.

        Raises CoordinationError if another controller has taken over.
        """
        path, assignment = znodes.delete_topic_path(topic), self.assignment(topic)
        asked = self._get(path)
        topic_id = None if asked is None else znodes.decode_deletion(asked[0])
        if assignment is None or topic_id not in (None, assignment.topic_id):
            self._remove([path], controller_epoch_version)

    def forget_topic(self, topic: str, controller_epoch_version: int) -> None:
        """Remove every znode of the topic; its name is free, and the request for its deletion gone, in the last step.

        Raises CoordinationError if another controller has taken over.
        """
        root = znodes.topic_path(topic)
        below = self._below(root)
        for start in range(0, len(below), _OPS_A_TRANSACTION):
            self._remove(below[start : start + _OPS_A_TRANSACTION], controller_epoch_version)
        self._remove([root, znodes.topic_config_path(topic), znodes.delete_topic_path(topic)], controller_epoch_version)

    def _below(self, root: str) -> list[str]:
        """The paths of all that is below a znode, children before their parents."""
        levels, level = list[list[str]](), [root]
        while level:
            asked = [(path, self._client.get_children_async(path)) for path in level]
            level = []
            for path, answer in asked:
                with suppress(NoNodeError):
                    level += [f"{path}/{name}" for name in answer.get()]
            levels.append(level)
        return [path for each in reversed(levels) for path in each]

    def _remove(self, paths: list[str], controller_epoch_version: int) -> None:
        """Delete those of the znodes that there are, in one transaction."""
        for _ in range(_TRIES):
            asked = [(path, self._client.exists_async(path)) for path in paths]
            there = [path for path, answer in asked if answer.get() is not None]
            transaction = self._as_controller(controller_epoch_version)
            for path in there:
                transaction.delete(path)
            results = list(transaction.commit())
            _check_office(results)
            if not _failed(results):
                return
        raise CoordinationError(f"znodes below {paths[0]} come and go; they will be removed later")

    # settings

    def config(self, entity: str) -> dict[str, str]:
        """The settings stored for an entity (``znodes.topic_entity`` and its neighbours)."""
        node = self._read(znodes.config_path(entity))
        return {} if node is None else znodes.decode_entity_config(entity, node[0])

    def entity_configs(self, kind: str) -> dict[str, dict[str, str] | None]:
        """The settings of every entity of a kind (``entities.ENTITY_KINDS``), by its path; None for one that cannot be
        read, which is named in the log. With the users come the client ids of users.
        """
        paths = [f"{kind}/{name}" for name in self.names(znodes.config_path(kind))]
        if kind == USERS:
            asked = [(path, self._client.get_children_async(znodes.config_path(f"{path}/{CLIENTS}"))) for path in paths]
            for path, answer in asked:
                with suppress(NoNodeError):
                    paths += [f"{path}/{CLIENTS}/{name}" for name in sorted(answer.get())]
        return self._entity_configs(paths)

    def _entity_configs(self, entities: list[str]) -> dict[str, dict[str, str] | None]:
        asked = [(entity, self._client.get_async(znodes.config_path(entity))) for entity in entities]
        found = dict[str, dict[str, str] | None]()
        for entity, answer in asked:
            with suppress(NoNodeError):
                try:
                    with _readable(znodes.config_path(entity)):
                        found[entity] = znodes.decode_entity_config(entity, answer.get()[0])
                except MalformedZnode as error:
                    _logger.error("nothing is taken over: %s", error)
                    found[entity] = None
        return found

    def change_entity_config(self, entity: str, changes: Mapping[str, str | None]) -> None:
        """Set some of an entity's settings, and take away those that are None; what else it has stays as it is."""

        def change(stored: dict[str, str]) -> dict[str, str]:
            return {name: value for name, value in {**stored, **changes}.items() if value is not None}

        self.change_config(entity, change)

    def change_config(self, entity: str, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Store what ``change`` makes of the entity's settings and tell every broker of it, both or neither.

        ``change`` may be called again. A user, client id or address of which no setting is left goes itself.
        """
        path = znodes.config_path(entity)
        told = Told(f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}", znodes.encode_config_change(entity))
        while True:
            found = self.stored(path)
            properties = change({} if found is None else znodes.decode_entity_config(entity, found.data))
            data = None if self._may_go(entity, properties) else znodes.encode_config(properties)
            if found is None and data is None:
                return
            if self.exchange(path, found, data, told):
                break  # else another broker was faster: look again
        if data is None and entity.startswith(f"{USERS}/"):
            self._tidy_up_above(entity)

    def _tidy_up_above(self, entity: str) -> None:
        """Remove what stood there only for the last client id of a user, which is gone."""
        above = entity.rpartition("/")[0]
        with suppress(NoNodeError, NotEmptyError, BadVersionError):
            while above != USERS:
                node = self._client.get(znodes.config_path(above))
                if znodes.decode_entity_config(above, node[0]):
                    return
                self._client.delete(znodes.config_path(above), version=node[1].version)
                above = above.rpartition("/")[0]

    def _may_go(self, entity: str, properties: Mapping[str, str]) -> bool:
        """Whether the znode of an entity is needed no more, when it has these settings."""
        has_defaults_elsewhere = entity.partition("/")[0] in ENTITY_KINDS
        return has_defaults_elsewhere and not properties and not self.names(znodes.config_path(entity))

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
            states[tp] = znodes.decode_partition_state(tp, data, stat.version, stat.mzxid)
        return states

    def beside(self, states: Mapping[TopicPartition, PartitionState]) -> dict[TopicPartition, PartitionState]:
        """The states, which were read or written just now, with the eligible replicas that stand beside them.

        What is malformed is named in the log, and makes nobody eligible.
        """
        asked = [(tp, state, self._client.get_async(znodes.eligible_path(tp))) for tp, state in states.items()]
        found = dict(states)
        for tp, state, answer in asked:
            try:
                data = answer.get()[0]
                self._with_eligible.add(tp)
                found[tp] = znodes.decode_eligible(tp, data, state)
            except NoNodeError:
                self._with_eligible.discard(tp)
            except MalformedZnode as error:
                _logger.error("nobody is eligible: %s", error)
        return found

    def write_partition_states(
        self, states: dict[TopicPartition, PartitionState], controller_epoch_version: int
    ) -> dict[TopicPartition, PartitionState]:
        """Write the states, each only over the version it was read at (-1: it must not exist), fenced by our epoch.

        Returns those written, with their new versions. Raises CoordinationError if another controller has taken over.
        """
        self._make_partition_parents(states, controller_epoch_version)
        plain = {tp: state for tp, state in states.items() if not (state.eligible or state.last_known)}
        written = self._write_together(plain, controller_epoch_version)
        left = {tp: state for tp, state in states.items() if tp not in written}
        return written | self._write_each(left, controller_epoch_version)

    def _write_together(
        self, states: Mapping[TopicPartition, PartitionState], controller_epoch_version: int
    ) -> dict[TopicPartition, PartitionState]:
        """Many in a transaction; those written. A transaction with one that does not stand as expected writes none."""
        items, asked = list(states.items()), []
        for start in range(0, len(items), _STATES_A_TRANSACTION):
            some = items[start : start + _STATES_A_TRANSACTION]
            transaction = self._as_controller(controller_epoch_version)
            for tp, state in some:
                _put_state(transaction, tp, state)
            asked.append((some, transaction.commit_async()))
        written: dict[TopicPartition, PartitionState] = {}
        for some, answer in asked:
            results = answer.get()
            _check_office(results)
            if not _failed(results):
                written.update((tp, _as_written(state)) for tp, state in some)
        return written

    def _write_each(
        self, states: Mapping[TopicPartition, PartitionState], controller_epoch_version: int
    ) -> dict[TopicPartition, PartitionState]:
        """Each in a transaction of its own, with what stands beside it; those written."""
        written: dict[TopicPartition, PartitionState] = {}
        items = list(states.items())
        for start in range(0, len(items), _OPS_A_TRANSACTION):
            asked = [
                (tp, state, self._write_state(tp, state, controller_epoch_version))
                for tp, state in items[start : start + _OPS_A_TRANSACTION]
            ]
            for tp, state, answer in asked:
                results = answer.get()
                if len(results) > _OPS_OF_A_STATE and isinstance(results[-1], NodeExistsError | NoNodeError):
                    self._found_beside(tp, is_there=isinstance(results[-1], NodeExistsError))
                    results = self._write_state(tp, state, controller_epoch_version).get()
                written.update(self._state_written(tp, state, results))
        return written

    def _write_state(self, tp: TopicPartition, state: PartitionState, controller_epoch_version: int):  # type: ignore[no-untyped-def]
        transaction = self._as_controller(controller_epoch_version)
        _put_state(transaction, tp, state)
        if state.eligible or state.last_known:
            self._write_beside(transaction, tp, state)
        return transaction.commit_async()

    def _found_beside(self, tp: TopicPartition, *, is_there: bool) -> None:
        """Another controller has made the znode of the eligible replicas, or it went with a former topic."""
        (self._with_eligible.add if is_there else self._with_eligible.discard)(tp)

    def _write_beside(self, transaction, tp: TopicPartition, state: PartitionState) -> None:  # type: ignore[no-untyped-def]
        path, data = znodes.eligible_path(tp), znodes.encode_eligible(state, _next_version(state))
        if tp in self._with_eligible:
            transaction.set_data(path, data)
        else:
            transaction.create(path, data)
            self._with_eligible.add(tp)  # if the transaction fails, the next finds out

    @staticmethod
    def _state_written(
        tp: TopicPartition, state: PartitionState, results: list[object]
    ) -> dict[TopicPartition, PartitionState]:
        _check_office(results)
        if _failed(results):
            _logger.warning("the state of %s changed under the controller: %s", tp, results[1])
            return {}
        return {tp: _as_written(state)}

    def _make_partition_parents(
        self, states: dict[TopicPartition, PartitionState], controller_epoch_version: int
    ) -> None:
        """Make what the znodes of new states stand under; nothing where the topic itself is gone."""
        new = [tp for tp, state in states.items() if state.version < 0]
        parents = sorted({f"{znodes.topic_path(tp.topic)}/partitions" for tp in new})
        for paths in (parents, [f"{znodes.topic_path(tp.topic)}/partitions/{tp.partition}" for tp in new]):
            for start in range(0, len(paths), _OPS_A_TRANSACTION):
                asked = []
                for path in paths[start : start + _OPS_A_TRANSACTION]:
                    transaction = self._as_controller(controller_epoch_version)
                    transaction.create(path)
                    asked.append(transaction.commit_async())
                for answer in asked:
                    _check_office(answer.get())

    # znodes

    def data(self, path: str) -> bytes | None:
        """What a znode holds; None where there is no such znode."""
        node = self._get(path)
        return None if node is None else bytes(node[0] or b"")

    def stored(self, path: str) -> Stored | None:
        """What a znode holds, and the version that it has; None where there is no such znode. Raises MalformedZnode."""
        node = self._read(path)
        return None if node is None else Stored(bytes(node[0] or b""), node[1].version)

    def stored_each(self, paths: Iterable[str]) -> list[Stored | None]:
        """``stored`` of each of them, asked for together. One that may not be read holds what nobody understands."""
        found: list[Stored | None] = []
        for answer in [self._client.get_async(path) for path in paths]:
            try:
                data, stat = answer.get()
                found.append(Stored(bytes(data or b""), stat.version))
            except NoNodeError:
                found.append(None)
            except NoAuthError:
                found.append(Stored(_NOT_OURS, -1))
        return found

    def exchange(self, path: str, old: Stored | None, data: bytes | None, told: Told) -> bool:
        """Have the znode hold ``data`` (None: not be there) where it holds ``old``, and tell of it, both or neither.

        False where it holds something else by now. The znodes above a new one, and above what tells of it, are made.
        """
        transaction = self._client.transaction()
        if old is None and data is not None:
            self.ensure(each.rpartition("/")[0] for each in (path, told.path))
            transaction.create(path, data)
        elif old is not None and data is not None:
            transaction.set_data(path, data, version=old.version)
        elif old is not None:
            transaction.delete(path, version=old.version)
        transaction.create(told.path, told.data, sequence=True)
        return not _failed(self._commit(transaction, partial(self._replaced, path, old, data)))

    def _replaced(self, path: str, old: Stored | None, data: bytes | None) -> bool:
        """Whether ``data`` is what came next in a znode after ``old``."""
        expected = None if data is None else Stored(data, 0 if old is None else old.version + 1)
        return self.stored(path) == expected

    def sync(self, path: str) -> None:
        """What is read from now on is no older than what anybody had written when this was called."""
        self._client.sync(path)

    def ensure(self, paths: Iterable[str]) -> None:
        """Make znodes without data, and those above them, where there are none."""
        for path in paths:
            self._client.ensure_path(path)

    def numbers(self, folder: str, prefix: str, on_change: OnChange | None = None) -> list[int]:
        """The numbers of the sequential znodes in a folder, in order; other znodes there are passed over."""
        return znodes.sequence_numbers(prefix, self._children(folder, on_change))

    def forget_older(self, folder: str, prefix: str, kept_ms: int) -> None:
        """Remove the sequential znodes made more than ``kept_ms`` before the newest; ZooKeeper has stamped both."""
        paths = [f"{folder}/{prefix}{number:010d}" for number in self.numbers(folder, prefix)]
        stats = [self._client.exists(path) for path in paths]
        found = {path: stat for path, stat in zip(paths, stats, strict=True) if stat is not None}
        newest = max(found.values(), key=lambda stat: stat.czxid, default=None)  # a number may be a stranger's
        for path, stat in found.items():
            if newest is not None and newest.ctime - stat.ctime > kept_ms:
                self._delete(path)

    def names(self, path: str) -> list[str]:
        """The names below a znode; none where there is no such znode."""
        try:
            return sorted(self._client.get_children(path))
        except NoNodeError:
            return []

    def _read(self, path: str):  # type: ignore[no-untyped-def]
        """``_get`` of what others may have written: raises MalformedZnode for what this broker may not read."""
        with _readable(path):
            return self._get(path)

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

    def _delete(self, path: str) -> None:
        with suppress(NoNodeError):
            self._client.delete(path)


def _next_version(state: PartitionState) -> int:
    """Of the znode, when the state is written over the version that it names."""
    return 0 if state.version < 0 else state.version + 1


def _put_state(transaction, tp: TopicPartition, state: PartitionState) -> None:  # type: ignore[no-untyped-def]
    """Have the transaction write the state over the version that it names, without what stands beside it."""
    path, data = znodes.partition_state_path(tp), znodes.encode_partition_state(state)
    if state.version < 0:
        transaction.create(path, data)
    else:
        transaction.set_data(path, data, version=state.version)


def _as_written(state: PartitionState) -> PartitionState:
    return replace(state, version=_next_version(state), zxid=-1)


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except NoAuthError as error:
        raise MalformedZnode(f"znode {path} may not be read by this broker: it is another's") from error


def _failed(results: list[object]) -> bool:
    """Whether a transaction wrote nothing. Raises NoAuthError where it may not: to try again does not help."""
    for each in results:
        if isinstance(each, NoAuthError):
            raise each
    return any(isinstance(each, KazooException) for each in results)


def _check_office(results: list[object]) -> None:
    """Raises CoordinationError if it was the check of the controller epoch that failed a transaction."""
    if isinstance(results[0], BadVersionError | NoNodeError):
        raise CoordinationError("another controller has taken over; this one's epoch is stale")


class _Watch(NamedTuple):
    """kazoo keeps a path's watches in a set until they fire: the same callback again must be an equal member of it."""

    on_change: OnChange

    def __call__(self, _event: object) -> None:
        self.on_change()


def _watch(on_change: OnChange | None) -> _Watch | None:
    return None if on_change is None else _Watch(on_change)
