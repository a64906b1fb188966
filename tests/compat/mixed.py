"""A cluster whose brokers are of both kinds, on one ZooKeeper: Kafka 3.9.1's in ZooKeeper mode, and ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sparklog.local.ports import free_port
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.testing.broker import QUICK_SETTINGS, BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker
from sparklog.zk.client import ZkClient
from sparklog.zk.znodes import BROKER_IDS

T = TypeVar("T")
JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
SETTINGS = {
    **QUICK_SETTINGS,
    "inter.broker.protocol.version": "3.9",
    "zookeeper.session.timeout.ms": "6000",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "replica.lag.time.max.ms": "10000",
    "controlled.shutdown.enable": "true",
}
"""Both kinds are told the same."""
_TIMEOUT_S = 60


class MixedCluster:
    """Brokers by their ids; ``kafka`` and ``ours`` make one, ``replace`` starts the other kind under an id."""

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        self._directory = directory
        self._settings = {**SETTINGS, **(settings or {})}
        self._stack = ExitStack()
        self._zookeeper = EmbeddedZooKeeper(directory / "zookeeper", tick_time_ms=500, fsync=False)
        self.brokers: dict[int, KafkaBroker | BrokerHarness] = {}
        self._ports: dict[int, int] = {}
        self._admins: dict[str, AdminClient] = {}

    def __enter__(self) -> Self:
        self._stack.enter_context(self._zookeeper)
        return self

    @property
    def zookeeper(self) -> str:
        """Its connect string."""
        return self._zookeeper.connect_string

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            self._stack.callback(broker.kill)
        self._stack.close()

    def kafka(self, id_: int, **settings: object) -> KafkaBroker:
        """Start a broker of Kafka's."""
        made = KafkaBroker(
            self._directory / f"kafka-{id_}",
            self.zookeeper,
            self._port(id_),
            id_,
            {**self._settings, "log.dirs": self.log_dir(id_), **settings},
            java=JAVA,
        )
        self._start(id_, made)
        return made

    def log_dir(self, id_: int) -> Path:
        """Where the logs of the broker are, of whichever kind it is."""
        return self._directory / f"broker-{id_}"

    def ours(self, id_: int, **settings: object) -> BrokerHarness:
        """Start a broker of ours."""
        made = BrokerHarness(self._directory, self.zookeeper, id_, self._port(id_), {**self._settings, **settings})
        self._start(id_, made)
        return made

    def _start(self, id_: int, made: KafkaBroker | BrokerHarness) -> None:
        """Returns when clients hear of a controller there; one that is told of none does not ask again for long."""
        self.brokers[id_] = made
        made.start()
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self._port(id_)}", "log_level": 0})
        eventually(lambda: _is_told(admin), 90, f"broker {id_} to be told")

    def start_again(self, id_: int) -> None:
        """Start a broker that was killed. Kafka's gives up where it finds itself registered: the session has to end,
        and others may lead before that, for a broker of ours sees a death before ZooKeeper does."""
        eventually(lambda: str(id_) not in self._asked(lambda zk: zk.names(BROKER_IDS)), 90, f"broker {id_} to be gone")
        self._start(id_, self.brokers[id_])

    def _port(self, id_: int) -> int:
        return self._ports.setdefault(id_, free_port())

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def _admin(self) -> AdminClient:
        if self.bootstrap not in self._admins:
            self._admins[self.bootstrap] = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admins[self.bootstrap]

    def metadata(self, topic: str):
        return self._admin().list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions

    def create(self, topic: str, assignment: list[list[int]], **config: str) -> None:
        """Returns when all replicas are in sync."""
        new = NewTopic(topic, len(assignment), replica_assignment=assignment, config=config)
        eventually(lambda: self._is_created(new), 90, f"{topic} to be made, once the controller knows all brokers")
        self.wait_until_whole(topic, [len(each) for each in assignment])

    def _is_created(self, new: NewTopic) -> bool:
        try:
            self._admin().create_topics([new])[new.topic].result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.INVALID_REPLICA_ASSIGNMENT:
                return False
            raise
        return True

    def isr_sizes(self, topic: str) -> list[int]:
        return [len(each.isrs) for each in self.metadata(topic).values()]

    def leaders(self, topic: str) -> list[int]:
        return [each.leader for each in self.metadata(topic).values()]

    def wait_until_whole(self, topic: str, sizes: list[int]) -> None:
        eventually(lambda: self.isr_sizes(topic) == sizes, 90, f"{topic} to be replicated")

    def wait_until_led(self, topic: str, leaders: list[int]) -> None:
        eventually(lambda: self.leaders(topic) == leaders, 90, f"{topic} to be led by {leaders}")

    def controller(self) -> int | None:
        return self._asked(lambda zk: zk.office.holder())

    def _asked(self, question: Callable[[ZkClient], T]) -> T:
        zk = ZkClient(self.zookeeper, session_timeout=6, on_session=lambda _: None)
        try:
            return question(zk)
        finally:
            zk.close()

    def produce(self, topic: str, partition: int, values: list[str], **settings: object) -> None:
        """Returns when all are acknowledged by all replicas in sync."""
        told: list[object] = []
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "log_level": 0,
                "message.timeout.ms": 60000,
                **settings,
            }
        )
        for value in values:
            producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: told.append(error))
        producer.flush(90)
        assert told == [None] * len(values), told


def promised_by_both(replica: dict[str, Any]) -> dict[str, Any]:
    """Of a replica, as ``histories.replicas`` describes it, what brokers of both kinds have.

    A snapshot of Kafka's has of a producer its last batch alone. A follower of Kafka's finds the last stable offsets of
    the transaction index when it has appended all of an answer, and knows then of transactions that began later
    (``UnifiedLog.append``).
    """
    if "aborted" not in replica:
        return replica
    producers = {id_: [epoch, told[-1:], *more] for id_, (epoch, told, *more) in replica["producers"].items()}
    return {**replica, "producers": producers, "aborted": [each[:3] for each in replica["aborted"]]}


def _is_told(admin: AdminClient) -> bool:
    """Whether the broker tells of a controller; right after its start Kafka's tells of no broker at all."""
    try:
        return bool(admin.list_topics(timeout=_TIMEOUT_S).controller_id >= 0)
    except KafkaException as error:
        if error.args[0].code() == KafkaError._PARTIAL:
            return False
        raise
