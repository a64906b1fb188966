"""How near to its quota real clients come, measured. It takes a while: a rate is that of many windows."""

import contextlib
import threading
import time

import pytest
from confluent_kafka import Producer as LibrdkafkaProducer
from integration import wire
from integration.pace import looks, pace

from sparklog.client import Admin, Producer
from sparklog.quota.entity import Entity
from sparklog.quota.keys import CLIENT_KEYS
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RATE = 1_000_000
VALUE = b"v" * 1000
LOOKED_AT_S = 11
HALF_A_MINUTE_S = 30


def librdkafka(bootstrap, topic, stop):
    settings = {"bootstrap.servers": bootstrap, "client.id": topic, "batch.size": 16_384, "log_level": 0}
    producer = LibrdkafkaProducer({**settings, "queue.buffering.max.kbytes": 64})
    while not stop.is_set():
        try:
            producer.produce(topic, VALUE)
        except BufferError:
            producer.poll(0.05)
    producer.purge()
    producer.flush(5)


def ours(bootstrap, topic, stop):
    with Producer(bootstrap_servers=bootstrap, client_id=topic, batch_size=16_384, buffer_memory=65_536) as producer:
        while not stop.is_set():
            producer.send(topic, VALUE)


@contextlib.contextmanager
def writing(client, bootstrap, topic, connections):
    """Meanwhile so many of these clients write as fast as they are let."""
    stop = threading.Event()
    threads = [threading.Thread(target=client, args=(bootstrap, topic, stop), daemon=True) for _ in range(connections)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


def size_of(admin, topic):
    """Bytes on the disk."""
    return sum(each.sizes.get(TopicPartition(topic, 0), 0) for dirs in admin.log_dirs().values() for each in dirs)


def windows(seconds):
    return {"quota.window.num": seconds, "quota.window.size.seconds": 1}


def measured(admin, topic, rate, looked_at_s=LOOKED_AT_S):
    """Bytes a second from now on, of a client that may have ``rate``. What was used is forgotten once in a round."""
    found = looks({topic: lambda: size_of(admin, topic)}, 4 * looked_at_s)
    return pace(found[topic], rate, looked_at_s + 2)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with ClusterHarness(tmp_path_factory.mktemp("rates"), settings=windows(LOOKED_AT_S)) as harness:
        yield harness


@pytest.mark.parametrize("client", [librdkafka, ours])
@pytest.mark.parametrize("connections", [1, 4, 20])
def test_what_is_produced_is_the_quota_within_five_percent(broker, topic, client, connections):
    """In the long run: at once a client may use what the quota gives it for all windows."""
    bootstrap = broker.bootstrap_servers
    with Admin(bootstrap_servers=bootstrap) as admin, wire.connect(bootstrap) as connection:
        assert wire.create_topic(connection, topic)[0] == 0
        admin.alter_client_quotas({Entity(client_id=topic): {"producer_byte_rate": RATE}})
        with writing(client, bootstrap, topic, connections):
            time.sleep(LOOKED_AT_S)
            rate = measured(admin, topic, RATE)
        admin.alter_client_quotas({Entity(client_id=topic): dict.fromkeys(CLIENT_KEYS)})
    assert rate == pytest.approx(RATE, rel=0.05), f"{rate:.0f} bytes a second"


def test_so_it_is_where_half_a_minute_is_looked_at(tmp_path, topic):
    with ClusterHarness(tmp_path, settings=windows(HALF_A_MINUTE_S)) as harness:
        bootstrap = harness.bootstrap_servers
        with Admin(bootstrap_servers=bootstrap) as admin, wire.connect(bootstrap) as connection:
            assert wire.create_topic(connection, topic)[0] == 0
            admin.alter_client_quotas({Entity(client_id=topic): {"producer_byte_rate": RATE}})
            with writing(librdkafka, bootstrap, topic, 4):
                time.sleep(HALF_A_MINUTE_S)
                rate = measured(admin, topic, RATE, HALF_A_MINUTE_S)
    assert rate == pytest.approx(RATE, rel=0.05), f"{rate:.0f} bytes a second"


@pytest.mark.parametrize("client", [librdkafka, ours])
def test_a_quota_that_changes_meanwhile_is_what_they_get(broker, topic, client):
    """Half as much, then twice; what was used under the former one counts for as long as the windows last."""
    bootstrap, entity, rates = broker.bootstrap_servers, Entity(client_id=topic), []
    with Admin(bootstrap_servers=bootstrap) as admin, wire.connect(bootstrap) as connection:
        assert wire.create_topic(connection, topic)[0] == 0
        admin.alter_client_quotas({entity: {"producer_byte_rate": RATE}})
        with writing(client, bootstrap, topic, 4):
            for share in (0.5, 2):
                time.sleep(2 * LOOKED_AT_S)
                admin.alter_client_quotas({entity: {"producer_byte_rate": share * RATE}})
                time.sleep(2 * LOOKED_AT_S)
                rates.append(measured(admin, topic, share * RATE) / RATE)
        admin.alter_client_quotas({entity: dict.fromkeys(CLIENT_KEYS)})
    assert rates == [pytest.approx(0.5, rel=0.05), pytest.approx(2, rel=0.05)]


def test_a_noisy_client_over_its_quota_leaves_a_quiet_one_where_it_was(broker, topic):
    """The quiet one's slowest in a hundred answers, before and meanwhile: with room for a machine that does more."""
    bootstrap, entity = broker.bootstrap_servers, Entity(client_id=f"{topic}-noisy")
    with Admin(bootstrap_servers=bootstrap) as admin, wire.connect(bootstrap) as connection:
        for each in (topic, entity.client_id):
            assert wire.create_topic(connection, each)[0] == 0
        admin.alter_client_quotas({entity: {"producer_byte_rate": RATE}})
        alone = slowest_s(connection, topic)
        with writing(librdkafka, bootstrap, entity.client_id, 20):
            time.sleep(2 * LOOKED_AT_S)
            beside = slowest_s(connection, topic)
        admin.alter_client_quotas({entity: dict.fromkeys(CLIENT_KEYS)})
    assert beside < max(3 * alone, 0.05), f"{alone * 1000:.1f} ms alone, {beside * 1000:.1f} ms beside the noisy one"


def slowest_s(connection, topic):
    """The 99th of a hundred in seconds, of a thousand records one after the other."""
    took = []
    for _ in range(1000):
        began = time.monotonic()
        assert wire.produce(connection, TopicPartition(topic, 0), wire.batch_of(b"quiet"), -1)[0] == 0
        took.append(time.monotonic() - began)
        time.sleep(0.005)
    return sorted(took)[int(0.99 * len(took))]
