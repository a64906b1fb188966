"""Real clients under the same quota at Kafka 3.9.1 and at our broker, at the same time: what each gives them a second.

A rate is that of the long run (``integration.pace``): at once a client may use what the quota gives it for all windows.
What counts is what passes the wire, as the client's library tells it: of an answer that ends in the middle of a batch
the client cannot use all, but the quota counts all of it.
"""

import contextlib
import json
import threading
import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from integration.pace import Look, pace

from sparklog.client import Admin, NewTopic
from sparklog.client import Producer as OwnProducer
from sparklog.quota.entity import Entity
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.kafka import KafkaBroker

pytestmark = [pytest.mark.peer, pytest.mark.slow]

WINDOWS = {"quota.window.num": 11, "quota.window.size.seconds": 1}
RATE = 400_000
LOOKED_AT_S = 11
ROUND_S = LOOKED_AT_S + 2
"""What was used is forgotten once in as long at least."""
MEASURED_S = 44
TOLERANCE = 0.05
VALUE = b"v" * 1000
STORED = 32_000
"""Records that are there to be read: more than any consumer reads."""
AT_ONCE = 16_384
"""Bytes that the clients of a load send or ask for together, as the quota is exceeded by so much."""
TOLD_EACH_MS = 200
KINDS = {"producer_byte_rate": "w", "consumer_byte_rate": "r"}


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


class Load:
    """``connections`` clients of librdkafka that write or read as fast as they are let."""

    counted: str
    """The statistic of librdkafka."""

    def __init__(self, address, client_id, connections):
        self.address, self.client_id = address, client_id
        self._at_once = max(4_096, AT_ONCE // connections)
        self._told = [Look(0, 0)] * connections
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self.run, args=(number,)) for number in range(connections)]

    def settings(self, number, **more):
        def told(text):
            found = json.loads(text)
            self._told[number] = Look(found["ts"] / 1_000_000, found[self.counted])

        named = {"bootstrap.servers": self.address, "client.id": self.client_id, "log_level": 0}
        return named | {"statistics.interval.ms": TOLD_EACH_MS, "stats_cb": told} | more

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

    def look(self):
        """Bytes in all; the time is that of the oldest number among them."""
        told = self._told[:]
        return Look(min(each.at_s for each in told), sum(each.value for each in told))


class Writing(Load):
    counted = "tx_bytes"

    def run(self, number):
        more = {"batch.size": self._at_once, "queue.buffering.max.kbytes": 128, "max.in.flight": 1}
        producer = Producer(self.settings(number, **more))
        while not self._stop.is_set():
            try:
                producer.produce(self.client_id, VALUE)
            except BufferError:
                producer.poll(0.05)
        producer.purge()
        producer.flush(5)


class Reading(Load):
    counted = "rx_bytes"

    def run(self, number):
        sizes = dict.fromkeys(("fetch.message.max.bytes", "fetch.max.bytes", "message.max.bytes"), self._at_once)
        more = {"group.id": self.client_id, "enable.auto.commit": False, "fetch.queue.backoff.ms": 10, **sizes}
        consumer = Consumer(self.settings(number, **more))
        consumer.assign([ConfluentPartition("stored", 0, OFFSET_BEGINNING)])
        while not self._stop.is_set():
            consumer.consume(50, 0.2)
        consumer.close()


class Sides:
    """Clients that write and read at both servers, each under a quota of its own."""

    def __init__(self, loads, entities):
        self._loads, self._entities = loads, entities

    def give(self, rate):
        for admin, entity, key in self._entities:
            admin.alter_client_quotas({entity: {key: rate}})

    def shares(self, rate):
        """Of the quota, what each is given in the long run from now on."""
        found = {name: [] for name in self._loads}
        until = time.monotonic() + MEASURED_S
        while time.monotonic() < until:
            for name, load in self._loads.items():
                found[name].append(load.look())
            time.sleep(TOLD_EACH_MS / 1000)
        return {name: pace(each, rate, ROUND_S) / rate for name, each in found.items()}


@pytest.fixture
def loaded(servers, topic):
    """``loaded(connections)``: ``Sides`` with so many clients each, which run under ``RATE``."""
    with contextlib.ExitStack() as stack:

        def started(connections):
            loads, entities = {}, []
            for side, address in servers.items():
                admin = stack.enter_context(Admin(bootstrap_servers=address))
                admin.create_topics([NewTopic(f"{topic}-w", 1)])
                for key, suffix in KINDS.items():
                    name = f"{topic}-{suffix}"
                    entities.append((admin, Entity(client_id=name), key))
                    loads[side, key] = (Writing if suffix == "w" else Reading)(address, name, connections)
            sides = Sides(loads, entities)
            sides.give(RATE)
            for each in loads.values():
                stack.enter_context(each)
            return sides

        yield started


def off(shares):
    return {name: share for name, share in shares.items() if share != pytest.approx(1, abs=TOLERANCE)}


@pytest.mark.parametrize("connections", [1, 4, 20])
def test_they_get_what_the_quota_gives_in_both_directions(loaded, connections):
    sides = loaded(connections)
    time.sleep(LOOKED_AT_S)
    found = sides.shares(RATE)
    assert off(found) == {}, found


def test_a_quota_that_changes_meanwhile_is_what_they_get(loaded):
    """Half as much, then twice that; what was used before counts for as long as the windows last."""
    sides = loaded(4)
    time.sleep(LOOKED_AT_S)
    for rate in (RATE // 2, RATE):
        sides.give(rate)
        time.sleep(2 * LOOKED_AT_S)
        found = sides.shares(rate)
        assert off(found) == {}, (rate, found)
