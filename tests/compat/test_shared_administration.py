"""What an administrator did with Kafka 3.9 or with us is known to the other: settings, partitions, deleted records."""

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker, run_kafka_tool

pytestmark = [pytest.mark.peer, pytest.mark.slow]

TOPIC = "shared"
ONE = "0"
CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture
def brokers(tmp_path, chroot):
    """Ours and Kafka's, to be started one at a time: same id, port, log directory and znodes."""
    ours = BrokerHarness(tmp_path, chroot)
    theirs = KafkaBroker(tmp_path / "kafka", chroot, port=ours.spec.port, extra_props={"log.dirs": ours.spec.data_dir})
    return {"sparklog": ours, "kafka": theirs}


@pytest.mark.parametrize("order", [("kafka", "sparklog"), ("sparklog", "kafka")], ids="-".join)
def test_each_knows_what_was_done_with_the_other(brokers, order):
    address = brokers["sparklog"].address
    for turn, name in enumerate(order * 2, 1):
        with brokers[name]:
            admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
            eventually(lambda: serves(admin, with_topic=turn > 1), 60, "the broker to lead")  # noqa: B023
            if turn == 1:
                admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
            else:
                expect(admin, turn - 1)
            administer(admin, address, turn)
            expect(admin, turn)


def serves(admin, with_topic):
    """Whether the broker knows itself as controller and, if the topic is there, as its leader."""
    found = admin.list_topics(timeout=10)
    led = {each.leader for topic in found.topics.values() for each in topic.partitions.values()}
    return found.controller_id == 0 and led <= {0} and (TOPIC in found.topics) == with_topic


def administer(admin, address, turn):
    alter(admin, ConfigResource.Type.TOPIC, TOPIC, "retention.ms", f"{turn}00000000")
    alter(admin, ConfigResource.Type.BROKER, ONE, "log.roll.ms", f"{turn}10000000")
    for_all = f"log.roll.ms={turn}20000000,log.segment.delete.delay.ms={turn}3000"
    whose = ("--entity-type", "brokers", "--entity-default")  # librdkafka knows single brokers only
    run_kafka_tool(CONFIGS, "--bootstrap-server", address, "--alter", *whose, "--add-config", for_all)
    admin.create_partitions([NewPartitions(TOPIC, turn + 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    for _ in range(10):
        producer.produce(TOPIC, b"x", partition=0)
    assert producer.flush(30) == 0
    (deleted,) = admin.delete_records([TopicPartition(TOPIC, 0, 10 * turn - 5)]).values()
    assert deleted.result(30).low_watermark == 10 * turn - 5


def alter(admin, kind, name, key, value):
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    (future,) = admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])]).values()
    future.result(30)


def expect(admin, turn):
    """What ``administer`` did is what is told; a Kafka takes over settings some time after it has answered."""
    told = {
        ("retention.ms", f"{turn}00000000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("segment.ms", f"{turn}10000000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("file.delete.delay.ms", f"{turn}3000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    }
    eventually(lambda: told <= settings(admin, ConfigResource.Type.TOPIC, TOPIC), 60, f"settings of turn {turn}")
    broker = settings(admin, ConfigResource.Type.BROKER, ONE)
    assert ("log.roll.ms", f"{turn}10000000", ConfigSource.DYNAMIC_BROKER_CONFIG) in broker
    assert sorted(admin.list_topics(TOPIC, 20).topics[TOPIC].partitions) == list(range(turn + 1))
    (earliest,) = admin.list_offsets({TopicPartition(TOPIC, 0): OffsetSpec.earliest()}).values()
    assert earliest.result(30).offset == 10 * turn - 5


def settings(admin, kind, name):
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    return {(entry.name, entry.value, ConfigSource(entry.source)) for entry in future.result(30).values()}
