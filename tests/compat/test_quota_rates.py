"""Real clients under the same quota at Kafka 3.9.1 and at our broker, at the same time: what each gives them a second.

A rate is that of the long run (``integration.pace``): at once a client may use what the quota gives it for all windows.
Four readers are left out: they read in bursts, at Kafka as here.
"""

import contextlib
import threading
import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from integration.pace import looks, pace

from sparklog.client import Admin, NewTopic
from sparklog.client import Producer as OwnProducer
from sparklog.quota.entity import Entity
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.kafka import KafkaBroker

pytestmark = [pytest.mark.peer, pytest.mark.slow]

WINDOWS = {"quota.window.num": 11, "quota.window.size.seconds": 1}
RATE = 400_000
LOOKED_AT_S = 11
ROUND_S = LOOKED_AT_S + 2
"""What was used is forgotten once in as long at least."""
MEASURED_S = 44
VALUE = b"v" * 1000
STORED = 22_000
"""Records that are there to be read: more than any consumer reads."""


@pytest.fixture(scope="module")
def servers(zookeeper, tmp_path_factory):
    """The addresses of both, each with a topic to read."""
    home, root = tmp_path_factory.mktemp("rates"), zookeeper.connect_string
    kafka = KafkaBroker(home / "kafka", f"{root}/kafka-rates", extra_props=WINDOWS)
    ours = BrokerHarness(home, f"{root}/our-rates", settings=WINDOWS)
    with kafka, ours:
        found = {"kafka": kafka.bootstrap_servers, "ours": f"{ours.spec.host}:{ours.spec.port}"}
        for address in found.values():
            fill(address)
        yield found


def fill(address):
    with (
        Admin(bootstrap_servers=address) as admin,
        OwnProducer(bootstrap_servers=address, batch_size=4_096) as producer,
    ):
        admin.create_topics([NewTopic("stored", 1)])
        for _ in range(STORED):
            producer.send("stored", VALUE, partition=0)


def size_of(admin, topic):
    """Bytes on the disk."""
    return sum(each.sizes.get(TopicPartition(topic, 0), 0) for dirs in admin.log_dirs().values() for each in dirs)


class Load:
    """``connections`` clients of librdkafka that write or read as fast as they are let; ``count()`` is of bytes."""

    def __init__(self, admin, address, client_id, connections):
        self.admin, self.address, self.client_id = admin, address, client_id
        self.counts = [0] * connections
        self.each = max(4_096, 65_536 // connections)
        """Bytes that each asks for at once: few of them are to be quick enough, and many are to make no burst."""
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self.run, args=(number,)) for number in range(connections)]

    def settings(self, **more):
        return {"bootstrap.servers": self.address, "client.id": self.client_id, "log_level": 0, **more}

    def __enter__(self):
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for each in self._threads:
            each.join(60)

    def run(self, number):
        raise NotImplementedError

    def count(self):
        return sum(self.counts)


class Writing(Load):
    def run(self, number):
        more = {"batch.size": self.each, "queue.buffering.max.kbytes": 128, "max.in.flight": 1}
        producer = Producer(self.settings(**more))
        while not self._stop.is_set():
            try:
                producer.produce(self.client_id, VALUE)
            except BufferError:
                producer.poll(0.05)
        producer.purge()
        producer.flush(5)

    def count(self):
        return size_of(self.admin, self.client_id)


class Reading(Load):
    def run(self, number):
        sizes = dict.fromkeys(("fetch.message.max.bytes", "fetch.max.bytes", "message.max.bytes"), self.each)
        more = {"group.id": self.client_id, "enable.auto.commit": False, "fetch.queue.backoff.ms": 10, **sizes}
        consumer = Consumer(self.settings(**more))
        consumer.assign([ConfluentPartition("stored", 0, OFFSET_BEGINNING)])
        while not self._stop.is_set():
            self.counts[number] += len(consumer.consume(50, 0.2)) * self.stored
        consumer.close()

    @property
    def stored(self):
        """Bytes on the wire of a record, with its share of its batch."""
        if not hasattr(self, "_stored"):
            self._stored = size_of(self.admin, "stored") / STORED
        return self._stored


def measured(loads):
    """Bytes a second of each, as shares of the quota."""
    time.sleep(LOOKED_AT_S)
    found = looks({name: each.count for name, each in loads.items()}, MEASURED_S)
    return {name: pace(each, RATE, ROUND_S) / RATE for name, each in found.items()}


@pytest.mark.parametrize("connections", [1, 20])
def test_they_get_what_the_quota_gives_in_both_directions(servers, topic, connections):
    with contextlib.ExitStack() as stack:
        loads, quotas = {}, []
        for side, address in servers.items():
            admin = stack.enter_context(Admin(bootstrap_servers=address))
            admin.create_topics([NewTopic(f"{topic}-w", 1)])
            for kind, suffix, key in ((Writing, "w", "producer_byte_rate"), (Reading, "r", "consumer_byte_rate")):
                quotas.append((admin, Entity(client_id=f"{topic}-{suffix}"), key))
                loads[side, key] = kind(admin, address, f"{topic}-{suffix}", connections)
        give(quotas, RATE)
        for each in loads.values():
            stack.enter_context(each)
        found = measured(loads)
    assert {name: share for name, share in found.items() if share != pytest.approx(1, abs=0.05)} == {}, found


def give(quotas, rate):
    for admin, entity, key in quotas:
        admin.alter_client_quotas({entity: {key: rate}})
