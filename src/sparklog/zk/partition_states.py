"""Partition states: leader, epochs and ISR of each, and the eligible replicas beside them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from kazoo.exceptions import NodeExistsError, NoNodeError

from sparklog.errors import MalformedZnode
from sparklog.structs import TopicPartition
from sparklog.zk import znodes
from sparklog.zk.transactions import OPS_A_TRANSACTION, as_controller, check_office, failed
from sparklog.zk.znode_client import ZnodeClient
from sparklog.zk.znodes import PartitionState

_logger = logging.getLogger(__name__)
_STATES_A_TRANSACTION = 300
"""One flush of ZooKeeper's log; 70 kB with topics of twenty letters, and as much again for what stands beside them."""
_BYTES_A_TRANSACTION = 500_000
"""At most, whatever the topics are called and however many replicas there are: ZooKeeper hangs up on one that sends
more than 1 MB (``jute.maxbuffer``)."""
_MOST_DIGITS = 12
"""Of a broker's id in a list."""
_OPS_OF_A_STATE = 2
"""The check of the office, and the state itself; what stands beside it comes after."""


class PartitionStates:
    """The states of partitions, each written only over the version that was read."""

    def __init__(self, zk: ZnodeClient) -> None:
        self._zk = zk
        self._with_eligible: set[TopicPartition] = set()  # partitions that are believed to have that znode

    def read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """The states of those partitions that have one."""
        asked = [(tp, self._zk.kazoo.get_async(znodes.partition_state_path(tp))) for tp in partitions]
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
        asked = [(tp, state, self._zk.kazoo.get_async(znodes.eligible_path(tp))) for tp, state in states.items()]
        found = dict(states)
        for tp, state, answer in asked:
            try:
                data = answer.get()[0]
                self._with_eligible.add(tp)
                found[tp] = znodes.decode_eligible(tp, data, state)
            except NoNodeError:
                self._with_eligible.discard(tp)
            except MalformedZnode as error:
                _logger.error("no replica counts as eligible beside those in sync: %s", error)
        return found

    def write(
        self, states: dict[TopicPartition, PartitionState], controller_epoch_version: int
    ) -> dict[TopicPartition, PartitionState]:
        """Write the states, each only over the version it was read at (-1: it must not exist), fenced by our epoch.

        Returns those written, with their new versions. Raises CoordinationError if another controller has taken over.
        """
        self._make_parents(states, controller_epoch_version)
        written = self._write_together(states, controller_epoch_version)
        left = {tp: state for tp, state in states.items() if tp not in written}
        return written | self._write_each(left, controller_epoch_version)

    def _write_together(
        self, states: Mapping[TopicPartition, PartitionState], controller_epoch_version: int
    ) -> dict[TopicPartition, PartitionState]:
        """Many in a transaction, with what stands beside them; those written. A transaction with one that does not
        stand as expected writes none.
        """
        asked = []
        for some in _parted(states):
            transaction = as_controller(self._zk.kazoo, controller_epoch_version)
            for tp, state in some.items():
                self._put(transaction, tp, state)
            asked.append((some, transaction.commit_async()))
        written: dict[TopicPartition, PartitionState] = {}
        for some, answer in asked:
            results = answer.get()
            check_office(results)
            if not failed(results):
                written |= self._as_written(some)
        return written

    def _write_each(
        self, states: Mapping[TopicPartition, PartitionState], controller_epoch_version: int
    ) -> dict[TopicPartition, PartitionState]:
        """Each in a transaction of its own, with what stands beside it; those written."""
        written: dict[TopicPartition, PartitionState] = {}
        items = list(states.items())
        for start in range(0, len(items), OPS_A_TRANSACTION):
            asked = [
                (tp, state, self._write_state(tp, state, controller_epoch_version))
                for tp, state in items[start : start + OPS_A_TRANSACTION]
            ]
            for tp, state, answer in asked:
                results = answer.get()
                if len(results) > _OPS_OF_A_STATE and isinstance(results[-1], NodeExistsError | NoNodeError):
                    self._found_beside(tp, is_there=isinstance(results[-1], NodeExistsError))
                    results = self._write_state(tp, state, controller_epoch_version).get()
                written.update(self._state_written(tp, state, results))
        return written

    def _write_state(self, tp: TopicPartition, state: PartitionState, controller_epoch_version: int):  # type: ignore[no-untyped-def]
        transaction = as_controller(self._zk.kazoo, controller_epoch_version)
        self._put(transaction, tp, state)
        return transaction.commit_async()

    def _found_beside(self, tp: TopicPartition, *, is_there: bool) -> None:
        """Another controller has made the znode of the eligible replicas, or it went with a former topic."""
        (self._with_eligible.add if is_there else self._with_eligible.discard)(tp)

    def _put(self, transaction, tp: TopicPartition, state: PartitionState) -> None:  # type: ignore[no-untyped-def]
        """Have the transaction write the state over the version that it names, and behind it what stands beside it."""
        _put_state(transaction, tp, state)
        if not _has_beside(state):
            return
        path, data = znodes.eligible_path(tp), znodes.encode_eligible(state, _next_version(state))
        if tp in self._with_eligible:
            transaction.set_data(path, data)
        else:
            transaction.create(path, data)

    def _state_written(
        self, tp: TopicPartition, state: PartitionState, results: list[object]
    ) -> dict[TopicPartition, PartitionState]:
        check_office(results)
        if failed(results):
            _logger.warning("the state of %s changed under the controller: %s", tp, results[1])
            return {}
        return self._as_written({tp: state})

    def _as_written(self, states: Mapping[TopicPartition, PartitionState]) -> dict[TopicPartition, PartitionState]:
        self._with_eligible.update(tp for tp, state in states.items() if _has_beside(state))
        return {tp: replace(state, version=_next_version(state), zxid=-1) for tp, state in states.items()}

    def _make_parents(self, states: dict[TopicPartition, PartitionState], controller_epoch_version: int) -> None:
        """Make what the znodes of new states stand under; nothing where the topic itself is gone."""
        new = [tp for tp, state in states.items() if state.version < 0]
        parents = sorted({f"{znodes.topic_path(tp.topic)}/partitions" for tp in new})
        for paths in (parents, [f"{znodes.topic_path(tp.topic)}/partitions/{tp.partition}" for tp in new]):
            for start in range(0, len(paths), OPS_A_TRANSACTION):
                asked = []
                for path in paths[start : start + OPS_A_TRANSACTION]:
                    transaction = as_controller(self._zk.kazoo, controller_epoch_version)
                    transaction.create(path)
                    asked.append(transaction.commit_async())
                for answer in asked:
                    check_office(answer.get())


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


def _has_beside(state: PartitionState) -> bool:
    return bool(state.eligible or state.last_known)


def _parted(states: Mapping[TopicPartition, PartitionState]) -> Iterator[dict[TopicPartition, PartitionState]]:
    """As many in each part as one transaction takes."""
    part: dict[TopicPartition, PartitionState] = {}
    size = 0
    for tp, state in states.items():
        more = _most_bytes(tp, state)
        if part and (len(part) == _STATES_A_TRANSACTION or size + more > _BYTES_A_TRANSACTION):
            yield part
            part, size = {}, 0
        part[tp] = state
        size += more
    if part:
        yield part


def _most_bytes(tp: TopicPartition, state: PartitionState) -> int:
    """The state and what stands beside it take no more in a transaction: paths, names in JSON, numbers."""
    numbers = len(state.isr) + len(state.eligible) + len(state.last_known)
    return 600 + 2 * len(tp.topic) + _MOST_DIGITS * numbers
