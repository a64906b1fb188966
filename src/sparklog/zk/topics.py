"""Topics and where their replicas are: made, grown, moved and deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from uuid import UUID

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from sparklog.errors import CoordinationError
from sparklog.structs import TopicPartition
from sparklog.zk import znodes
from sparklog.zk.transactions import OPS_A_TRANSACTION, TRIES, as_controller, check_office, commit, failed, remove
from sparklog.zk.znode_client import OnChange, ZnodeClient, watching
from sparklog.zk.znodes import PartitionState, TopicAssignment


class Topics:
    """The topics of a cluster."""

    def __init__(self, zk: ZnodeClient) -> None:
        self._zk = zk

    def names(self, on_change: OnChange | None = None) -> list[str]:
        """The names of all topics."""
        return self._zk.children(znodes.BROKER_TOPICS, on_change)

    def assignment(self, topic: str) -> TopicAssignment | None:
        node = self._zk.get(znodes.topic_path(topic))
        return None if node is None else znodes.decode_topic(topic, node[0])

    def create(self, assignment: TopicAssignment, config: dict[str, str]) -> bool:
        """Write the topic's assignment and settings, both or neither; False if there is such a topic.

        Raises CoordinationError where the settings change again and again meanwhile.
        """
        path, settings = znodes.topic_path(assignment.topic), znodes.topic_config_path(assignment.topic)
        for _ in range(TRIES):
            left = self._zk.kazoo.exists(settings)
            transaction = self._zk.kazoo.transaction()
            transaction.create(path, znodes.encode_topic(assignment))
            if left is None:
                transaction.create(settings, znodes.encode_config(config))
            else:
                transaction.set_data(settings, znodes.encode_config(config), version=left.version)
            results = commit(transaction, lambda: self._is_stored(assignment))
            if not failed(results):
                return True
            if isinstance(results[0], NodeExistsError):
                return False
        raise CoordinationError(f"the settings of topic {assignment.topic} change all the time; try again")

    def _is_stored(self, assignment: TopicAssignment) -> bool:
        """Whether it is this topic that was made, and not another of its name."""
        found = self.assignment(assignment.topic)
        return found is not None and assignment.topic_id is not None and found.topic_id == assignment.topic_id

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
        node = self._zk.get(path)
        if node is None or not is_expected(znodes.decode_topic(new.topic, node[0])):
            return False
        transaction = as_controller(self._zk.kazoo, controller_epoch_version)
        transaction.set_data(path, znodes.with_replicas(path, node[0], new), version=node[1].version)
        for tp, state in over.items():
            transaction.check(znodes.partition_state_path(tp), state.version)
        results = commit(transaction, lambda: self.assignment(new.topic) == new)
        if results:
            check_office(results)
        return not failed(results)

    def reassignments(self, on_change: OnChange | None = None) -> dict[TopicPartition, tuple[int, ...]] | None:
        """The replicas that partitions are to have, as an operator asks in ZooKeeper; None without such a znode.

        Raises MalformedZnode.
        """
        there = self._zk.kazoo.exists(znodes.REASSIGN_PARTITIONS, watch=watching(on_change))
        node = None if there is None else self._zk.get(znodes.REASSIGN_PARTITIONS)
        return None if node is None else znodes.decode_reassignments(node[0])

    def forget_reassignments(
        self, done: Mapping[TopicPartition, tuple[int, ...]], controller_epoch_version: int
    ) -> None:
        """Take these out of what an operator asks for in ZooKeeper; the znode goes with the last of them.

        Raises CoordinationError if another controller has taken over, MalformedZnode.
        """
        path = znodes.REASSIGN_PARTITIONS
        for _ in range(TRIES):
            node = self._zk.get(path)
            if node is None:
                return
            asked = znodes.decode_reassignments(node[0])
            left = {tp: replicas for tp, replicas in asked.items() if done.get(tp) != replicas}
            transaction = as_controller(self._zk.kazoo, controller_epoch_version)
            if left:
                transaction.set_data(path, znodes.encode_reassignments(left), version=node[1].version)
            else:
                transaction.delete(path, version=node[1].version)
            results = list(transaction.commit())
            check_office(results)
            if not failed(results):
                return
        raise CoordinationError(f"znode {path} changes all the time; it will be looked at later")

    def request_deletion(self, topic: str, topic_id: UUID | None = None) -> None:
        """Ask the controller to delete the topic; with an id only the one that bears it, whatever the name is now.

        Raises CoordinationError where such requests come and go all the time.
        """
        path, data = znodes.delete_topic_path(topic), znodes.encode_deletion(topic_id)
        for _ in range(TRIES):
            with suppress(NodeExistsError):
                self._zk.kazoo.create(path, data, makepath=True)
                return
            node = self._zk.get(path)
            if node is None:
                continue
            if topic_id is not None and znodes.decode_deletion(node[0]) in (None, topic_id):
                return
            with suppress(NoNodeError, BadVersionError):  # what was asked for before may be another, which is gone
                self._zk.kazoo.set(path, data, version=node[1].version)
                return
        raise CoordinationError(f"requests to delete topic {topic} come and go; try again")

    def to_delete(self, on_change: OnChange | None = None) -> dict[str, UUID | None]:
        """The topics that are to go, with the id where only the one that bears it is meant."""
        topics = self._zk.children(znodes.DELETE_TOPICS, on_change)
        asked = {topic: self._zk.kazoo.get_async(znodes.delete_topic_path(topic)) for topic in topics}
        found = {}
        for topic, answer in asked.items():
            with suppress(NoNodeError):
                found[topic] = znodes.decode_deletion(answer.get()[0])
        return found

    def standing(self, topic: str) -> TopicAssignment | None:
        """The topic, unless it is asked to be deleted; a server of ZooKeeper that lags is not believed.

        Raises MalformedZnode.
        """
        if self._standing(topic) is None:
            return None
        self._zk.sync(znodes.topic_path(topic))
        return self._standing(topic)

    def _standing(self, topic: str) -> TopicAssignment | None:
        assignment = self.assignment(topic)
        asked = self._zk.get(znodes.delete_topic_path(topic))
        if assignment is None or (asked and znodes.decode_deletion(asked[0]) in (None, assignment.topic_id)):
            return None
        return assignment

    def kept_by(self, broker_id: int, topic: str) -> frozenset[int]:
        """The partitions of which the broker's replica is to stay: none of a topic that is asked to be deleted, and
        none that a move takes away. Raises MalformedZnode.
        """
        found = self.standing(topic)
        if found is None:
            return frozenset()
        return frozenset(number for number in found.partitions if broker_id in found.of(number).target)

    def forget_deletion(self, topic: str, controller_epoch_version: int) -> None:
        """Remove the request for the deletion of a topic that is not there, or not under the id that it names.

        Raises CoordinationError if another controller has taken over.
        """
        path = znodes.delete_topic_path(topic)
        asked = self._zk.get(path)
        assignment = self.assignment(topic)
        if asked is None:
            return
        if assignment is None or znodes.decode_deletion(asked[0]) not in (None, assignment.topic_id):
            transaction = as_controller(self._zk.kazoo, controller_epoch_version)
            transaction.delete(path, version=asked[1].version)  # another topic of the name may be meant since
            results = list(transaction.commit())
            check_office(results)
            failed(results)

    def forget(self, topic: str, controller_epoch_version: int) -> None:
        """Remove every znode of the topic; its name is free, and the request for its deletion gone, in the last step.

        Raises CoordinationError if another controller has taken over.
        """
        root = znodes.topic_path(topic)
        below = self._below(root)
        for start in range(0, len(below), OPS_A_TRANSACTION):
            remove(self._zk.kazoo, below[start : start + OPS_A_TRANSACTION], controller_epoch_version)
        remove(
            self._zk.kazoo,
            [root, znodes.topic_config_path(topic), znodes.delete_topic_path(topic)],
            controller_epoch_version,
        )

    def _below(self, root: str) -> list[str]:
        """The paths of all that is below a znode, children before their parents."""
        levels, level = list[list[str]](), [root]
        while level:
            asked = [(path, self._zk.kazoo.get_children_async(path)) for path in level]
            level = []
            for path, answer in asked:
                with suppress(NoNodeError):
                    level += [f"{path}/{name}" for name in answer.get()]
            levels.append(level)
        return [path for each in reversed(levels) for path in each]
