"""``ZooKeeperConsumer``: reading topics as a member of a group that lives in ZooKeeper."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Mapping
from itertools import cycle
from types import TracebackType
from typing import Any

from sparklog.client.cluster.arguments import check_callable
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.fetch.deserializers import Deserializer
from sparklog.client.consumer.record import ConsumerRecord
from sparklog.client.zookeeper import group
from sparklog.client.zookeeper.config import ZooKeeperConsumerConfig
from sparklog.client.zookeeper.group import Pattern, Subscription
from sparklog.client.zookeeper.member import GroupMember
from sparklog.client.zookeeper.stream import Stream
from sparklog.clock import Clock, SystemClock
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import ClientClosed, CoordinationError, LocalProtocolError
from sparklog.structs import TopicPartition
from sparklog.zk.znodes import BrokerInfo

_TURN_S = 0.05
"""How long one stream of several is waited for while nothing is there."""


class ZooKeeperConsumer:
    """Reads topics with the other members of a group in ZooKeeper.

    Settings by the names of Kafka's old consumer, as a mapping or as keywords with underscores
    (``zookeeper_connect="host:2181"``, ``group_id="g"``). Subscribe once; then poll this, or each stream in a thread of
    its own. Use it in ``with``, or ``close`` it.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        clock: Clock | None = None,
        **more: Any,
    ) -> None:
        check_callable("key_deserializer", key_deserializer)
        check_callable("value_deserializer", value_deserializer)
        self.config = ZooKeeperConsumerConfig.of(settings, **more)
        self._deserializers = {"key_deserializer": key_deserializer, "value_deserializer": value_deserializer}
        self._clock = clock or SystemClock()
        self._member = GroupMember(self.config, self._new_id(), self._clock, self._make_source)
        self._streams: list[Stream] = []
        self._turns: Iterator[Stream] = iter(())
        self._is_closed = False

    def _new_id(self) -> str:
        name = self.config.consumer_id
        return name or group.consumer_id(
            self.config.group_id, socket.gethostname(), self._clock.now_ms(), uuid.uuid4().int
        )

    def __enter__(self) -> ZooKeeperConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(counts_given=error is None)

    # what to read

    def subscribe(self, streams: Mapping[str, int]) -> dict[str, list[Stream]]:
        """Read these topics, each in so many streams: ``{"clicks": 2}``. Raises ConsumerIdTaken and LayoutConflict."""
        subscription = group.static_subscription(streams)
        made = {topic: self._make_streams(count) for topic, count in streams.items()}
        self._join(subscription, [each for mine in made.values() for each in mine], made)
        return {topic: list(mine) for topic, mine in made.items()}

    def subscribe_filter(
        self, *, white_list: str | None = None, black_list: str | None = None, streams: int = 1
    ) -> list[Stream]:
        """Read every topic whose whole name matches ``white_list``, or does not match ``black_list``, also those that
        come later; all of them in so many streams. Raises ConsumerIdTaken and LayoutConflict.
        """
        if (white_list is None) == (black_list is None):
            raise LocalProtocolError("subscribe_filter takes either a white list or a black list")
        pattern = Pattern.BLACK_LIST if white_list is None else Pattern.WHITE_LIST
        subscription = group.filter_subscription(pattern, white_list or black_list or "", streams)
        made = self._make_streams(streams)
        self._join(subscription, made, None)
        return list(made)

    def _make_streams(self, count: int) -> list[Stream]:
        return [Stream(self._member.desk) for _ in range(count)]

    def _join(
        self, subscription: Subscription, streams: list[Stream], by_topic: Mapping[str, list[Stream]] | None
    ) -> None:
        self._check_open()
        if self._streams:
            raise LocalProtocolError("a consumer whose group lives in ZooKeeper subscribes once; make another one")
        self._streams, self._turns = streams, cycle(streams)
        self._member.join(subscription, streams, lambda topic: streams if by_topic is None else by_topic.get(topic, []))

    def _make_source(self, brokers: Mapping[int, BrokerInfo]) -> Consumer:
        settings = dict(self.config.fetching)
        if not self.config.names_brokers:
            protocol = SecurityProtocol[settings.get("security.protocol", "PLAINTEXT").strip().upper()]
            found = [
                str(listener.endpoint)
                for broker in brokers.values()
                for listener in broker.all_listeners
                if listener.protocol is protocol
            ]
            if not found:
                raise CoordinationError(f"no broker with a listener for {protocol.name} is registered in ZooKeeper")
            settings["bootstrap.servers"] = ",".join(found)
        return Consumer(settings, clock=self._clock, **self._deserializers)

    @property
    def id(self) -> str:
        """The name under which it is registered."""
        return self._member.id

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that it owns and reads now."""
        return self._member.owned

    # reading

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records of any stream, for a program with one thread; none after ``timeout`` seconds without any.

        What any stream returned before counts as done. Raises ConsumerIdTaken and LayoutConflict when the consumer
        cannot be in its group any more.
        """
        self._check_open()
        if not self._streams:
            raise LocalProtocolError("the consumer reads nothing yet: call subscribe or subscribe_filter first")
        for stream in self._streams:
            stream.finish()
        deadline = self._clock.monotonic() + timeout
        while True:
            for _ in range(len(self._streams) - 1):
                if records := next(self._turns).poll(0.0, max_records):
                    return records
            left = max(0.0, deadline - self._clock.monotonic())
            turn = left if len(self._streams) == 1 else min(left, _TURN_S)
            if records := next(self._turns).poll(turn, max_records):
                return records
            if self._clock.monotonic() >= deadline:
                return []

    def commit(self) -> dict[TopicPartition, int]:
        """Write the offsets of what all streams gave so far; those that are stored now, by partition.

        Where each stream has a thread of its own, call the stream's ``commit``: this one counts what others work on.

        A partition that is another's by now is left out: its owner reads those records again. Raises CoordinationError
        where ZooKeeper cannot be written to.
        """
        self._check_open()
        return self._member.commit(self._streams)

    def close(self) -> None:
        """Write the offsets (if auto-commit is on), give up what is owned, and leave the group.

        What was given counts as done; left by an exception, ``with`` counts it as not done.
        """
        self._close(counts_given=True)

    def _close(self, counts_given: bool) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._member.close(counts_given)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("this consumer was closed")
