"""The broker that is asked, and ways to ask it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.loads.raw import connect
from sparklog.errors import SparklogError
from sparklog.protocol import messages
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import ClientConnection
from sparklog.protocol.hot import produce as produce_wire
from sparklog.protocol.messages import Message, decode_response, encode
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import LONGEST_TOPIC, Chunk, TopicPartition
from sparklog.zk.client import ZkClient

MANY = 19_000
"""Elements of one request: nearly as many as a broker takes."""
LONGEST_STRING = (1 << 15) - 1
"""Bytes of anything that is said to be a name."""
PARTITIONS = 500
"""Of the topic that is there to be asked about."""
NO_TOPIC = UUID(int=7)
NOW_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class Epochs:
    """What a request of a controller to a broker bears."""

    controller: int
    controller_epoch: int
    broker: int
    broker_epoch: int


@dataclass(frozen=True)
class Cluster:
    """The broker that is asked."""

    bootstrap: str
    directory: Path
    number: int
    """Of the round: its topics have names of their own."""
    zookeeper: str
    """Its connect string."""

    @property
    def epochs(self) -> Epochs:
        """Those in force: what only brokers and controllers ask is refused under others."""
        zk = ZkClient(self.zookeeper, session_timeout=10.0, on_session=lambda _: None)
        try:
            term, (broker,) = zk.office.read(), zk.brokers.live().values()
            return Epochs(term.holder, term.epoch, broker.id, broker.epoch)
        finally:
            zk.close()

    def topic(self, name: str) -> str:
        return f"{name}-{self.number}"

    def admin(self) -> AdminClient:
        """To be held until its answers are there: it takes them with it when it goes."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, name: str, partitions: int, **config: str) -> None:
        admin, topic = self.admin(), NewTopic(self.topic(name), partitions, 1, config=config)
        next(iter(admin.create_topics([topic], request_timeout=60).values())).result(60)

    def write(self, topic: str, batch: bytes, partition: int = 0) -> None:
        """One batch, as its leader alone acknowledges it."""
        records: dict[TopicPartition, list[Chunk]] = {TopicPartition(self.topic(topic), partition): [batch]}
        with connect(self.bootstrap) as connection:
            version = connection.versions.best(ApiKey.PRODUCE)
            connection.send(ApiKey.PRODUCE, version, produce_wire.encode_request(1, TIMEOUT_MS, records, version))
            connection.receive()

    def ask(self, api: ApiKey, message: Message, version: int) -> Any:
        """One request, sent whole at once; its answer, or None where the connection was ended."""
        body = encode(message, version)
        with connect(self.bootstrap) as connection, suppress(SparklogError):
            connection.send(api, version, [body])
            return decode_response(*connection.receive())

    def id_of(self, name: str) -> UUID:
        """That of a topic of this round."""
        topic = messages.MetadataRequest.MetadataRequestTopic(topic_id=ZERO_UUID, name=self.topic(name))
        described = messages.MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
        topic_id: UUID = self.ask(ApiKey.METADATA, described, 12).topics[0].topic_id
        return topic_id


Ask = Callable[[Cluster], None]


@dataclass(frozen=True)
class Case:
    """One worst case: ``what`` is asked of ``api``; of none where the broker is left alone."""

    api: ApiKey | None
    what: str
    ask: Ask

    @property
    def name(self) -> str:
        api = "" if self.api is None else "".join(word.capitalize() for word in self.api.name.split("_"))
        return ", ".join(each for each in (api, self.what) if each)


def request(api: ApiKey, what: str, message: Callable[[], Message], version: int) -> Case:
    """The case of one request; its answer is read, or the end of the connection."""
    return Case(api, what, partial(_ask, api, message, version))


def _ask(api: ApiKey, message: Callable[[], Message], version: int, cluster: Cluster) -> None:
    body = encode(message(), version)
    with connect(cluster.bootstrap) as connection, suppress(SparklogError):
        connection.send(api, version, [body])
        connection.receive()


def long_name(number: int, length: int = LONGEST_TOPIC) -> str:
    """Of a topic that is not there."""
    return f"{number:05}{'n' * (length - 5)}"


def frame(api: ApiKey, version: int, message: Message) -> bytes:
    """A whole request, to be sent often."""
    return b"".join(ClientConnection("flood").request(api, version, [encode(message, version)]))  # type: ignore[arg-type]


@contextmanager
def sockets(cluster: Cluster, count: int) -> Iterator[list[socket.socket]]:
    """Connections of clients that say nothing yet."""
    host, _, port = cluster.bootstrap.rpartition(":")
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(count)]


def read(connection: socket.socket) -> None:
    """One answer, which is not looked at."""
    left = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    while left:
        left -= len(connection.recv(left))
