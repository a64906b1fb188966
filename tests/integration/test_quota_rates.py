"""How near to its quota real clients come, measured. It takes a while: a rate is that of many windows."""

import threading
import time

import pytest
from confluent_kafka import Producer as LibrdkafkaProducer
from integration import wire

from sparklog.client import Admin, Producer
from sparklog.quota.entity import Entity
from sparklog.quota.keys import CLIENT_KEYS
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RATE = 1_000_000
SECONDS = 44
VALUE = b"v" * 1000
WINDOWS = {"quota.window.num": "11", "quota.window.size.seconds": "1"}


def librdkafka(bootstrap, topic, until):
    settings = {"bootstrap.servers": bootstrap, "client.id": topic, "batch.size": 16_384, "log_level": 0}
    producer = LibrdkafkaProducer({**settings, "queue.buffering.max.kbytes": 64})
    while time.monotonic() < until:
        try:
            producer.produce(topic, VALUE)
        except BufferError:
            producer.poll(0.05)
    producer.purge()
    producer.flush(5)


def ours(bootstrap, topic, until):
    with Producer(bootstrap_servers=bootstrap, client_id=topic, batch_size=16_384, buffer_memory=65_536) as producer:
        while time.monotonic() < until:
            producer.send(topic, VALUE)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with ClusterHarness(tmp_path_factory.mktemp("rates"), settings=WINDOWS) as harness:
        yield harness


@pytest.mark.parametrize("client", [librdkafka, ours])
@pytest.mark.parametrize("connections", [1, 4])
def test_what_is_produced_is_the_quota_within_five_percent(broker, topic, client, connections):
    """From after the burst that a client may have at first, over whole periods of the windows."""
    bootstrap = broker.bootstrap_servers
    with Admin(bootstrap_servers=bootstrap) as admin, wire.connect(bootstrap) as connection:
        assert wire.create_topic(connection, topic)[0] == 0
        admin.alter_client_quotas({Entity(client_id=topic): {"producer_byte_rate": RATE}})
        began = time.monotonic()
        asked = (bootstrap, topic, began + SECONDS)
        threads = [threading.Thread(target=client, args=asked, daemon=True) for _ in range(connections)]
        for thread in threads:
            thread.start()
        time.sleep(began + SECONDS - time.monotonic())
        size = sum(each.sizes.get(TopicPartition(topic, 0), 0) for dirs in admin.log_dirs().values() for each in dirs)
        took_s = time.monotonic() - began
        for thread in threads:
            thread.join(60)
        admin.alter_client_quotas({Entity(client_id=topic): dict.fromkeys(CLIENT_KEYS)})
    assert size / took_s == pytest.approx(RATE, rel=0.05), f"{size / took_s:.0f} bytes a second"
