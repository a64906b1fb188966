"""Offsets of groups in ZooKeeper, ``/consumers/GROUP/offsets/TOPIC/PARTITION``: a number in decimal.

The layout is Kafka's (``ConsumerOffset`` in ``ZkData.scala``). Brokers write it for clients that know no coordinator,
and Kafka 0.8's own consumers write it themselves: each goes on where the other left off. A group's name is put into
the path as it is, so ``a/b`` lies below ``a``, as in Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kazoo.exceptions import NoAuthError, NoChildrenForEphemeralsError, NodeExistsError, NoNodeError

from sparklog.structs import TopicPartition
from sparklog.zk.znode_client import ZnodeClient
from sparklog.zk.znodes import CONSUMERS

_STEP = re.compile(r"(?!\.{1,2}$)[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]+")
"""A name in a path that ZooKeeper accepts: it refuses controls, and every character that UTF-16 writes in two units."""
_NUMBER = re.compile(rb"[+-]?[0-9]{1,19}")
_BOUND = 1 << 63
_NOT_OURS = (NoAuthError, NoChildrenForEphemeralsError)


class StoredOffsets(NamedTuple):
    """What was found of some partitions; nothing is stored of those that are in neither."""

    offsets: dict[TopicPartition, int]
    unreadable: set[TopicPartition]
    """What stands there is no number, or this broker may not read it, or the group's name is no path."""


class ConsumerOffsets:
    """Failures of the session raise what those of ``ZnodeClient`` do: call the methods by ``guarded``."""

    def __init__(self, zk: ZnodeClient) -> None:
        self._zk = zk

    def read(self, group: str, partitions: Iterable[TopicPartition]) -> StoredOffsets:
        """What is stored of these partitions, asked for together."""
        found = StoredOffsets({}, set())
        if not _is_path(group):
            return found._replace(unreadable=set(partitions))
        asked = {tp: self._zk.kazoo.get_async(_path(group, tp)) for tp in partitions}
        for tp, answer in asked.items():
            try:
                data = answer.get()[0]
            except NoNodeError:
                continue
            except NoAuthError:
                data = None
            offset = _decode(data or b"")
            if offset is None:
                found.unreadable.add(tp)
            else:
                found.offsets[tp] = offset
        return found

    def write(self, group: str, offsets: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Store these offsets, whatever stood there. The partitions of which this broker may not, or cannot."""
        if not _is_path(group):
            return set(offsets)
        refused: set[TopicPartition] = set()
        absent = []
        asked = {tp: self._zk.kazoo.set_async(_path(group, tp), _encode(offset)) for tp, offset in offsets.items()}
        for tp, answer in asked.items():
            try:
                answer.get()
            except NoNodeError:
                absent.append(tp)
            except _NOT_OURS:
                refused.add(tp)
        self._make(group, {tp: offsets[tp] for tp in absent}, refused)
        return refused

    def _make(self, group: str, offsets: Mapping[TopicPartition, int], refused: set[TopicPartition]) -> None:
        create = self._zk.kazoo.create_async
        asked = {tp: create(_path(group, tp), _encode(offset), makepath=True) for tp, offset in offsets.items()}
        for tp, answer in asked.items():
            try:
                answer.get()
            except NodeExistsError:  # a client that commits by itself was quicker
                self._zk.kazoo.set(_path(group, tp), _encode(offsets[tp]))
            except _NOT_OURS:
                refused.add(tp)


def _is_path(group: str) -> bool:
    return all(map(_STEP.fullmatch, group.split("/")))


def _path(group: str, tp: TopicPartition) -> str:
    return f"{CONSUMERS}/{group}/offsets/{tp.topic}/{tp.partition}"


def _encode(offset: int) -> bytes:
    return str(offset).encode()


def _decode(data: bytes) -> int | None:
    number = int(data) if _NUMBER.fullmatch(data) else _BOUND
    return number if -_BOUND <= number < _BOUND else None
