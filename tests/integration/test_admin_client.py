"""confluent-kafka's AdminClient: settings changed, partitions added, records deleted."""

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
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

pytestmark = pytest.mark.integration


@pytest.fixture
def admin(bootstrap):
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture
def made(admin, topic):
    """A topic of one partition."""
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    return topic


def alter(admin, kind, name, key, value, operation=AlterConfigOpType.SET):
    entry = ConfigEntry(key, value, incremental_operation=operation)
    (future,) = admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])]).values()
    return future.result(20)


def setting(admin, kind, name, key):
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    entry = future.result(20)[key]
    return entry.value, ConfigSource(entry.source), entry.is_read_only


def test_a_topics_settings(admin, made):
    alter(admin, ConfigResource.Type.TOPIC, made, "retention.ms", "1000")
    assert setting(admin, ConfigResource.Type.TOPIC, made, "retention.ms") == (
        "1000",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        False,
    )
    alter(admin, ConfigResource.Type.TOPIC, made, "retention.ms", None, AlterConfigOpType.DELETE)
    assert setting(admin, ConfigResource.Type.TOPIC, made, "retention.ms")[1] is ConfigSource.DEFAULT_CONFIG
    with pytest.raises(KafkaException) as caught:
        alter(admin, ConfigResource.Type.TOPIC, made, "retention.ms", "soon")
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_a_brokers_settings(admin):
    alter(admin, ConfigResource.Type.BROKER, "0", "log.roll.ms", "77777")
    try:
        assert setting(admin, ConfigResource.Type.BROKER, "0", "log.roll.ms") == (
            "77777",
            ConfigSource.DYNAMIC_BROKER_CONFIG,
            False,
        )
    finally:
        alter(admin, ConfigResource.Type.BROKER, "0", "log.roll.ms", None, AlterConfigOpType.DELETE)
    assert setting(admin, ConfigResource.Type.BROKER, "0", "log.roll.ms")[1] is ConfigSource.DEFAULT_CONFIG
    with pytest.raises(KafkaException) as caught:
        alter(admin, ConfigResource.Type.BROKER, "0", "broker.id", "5")
    assert caught.value.args[0].code() == KafkaError.INVALID_REQUEST


def test_partitions_are_added(admin, made):
    admin.create_partitions([NewPartitions(made, 4)])[made].result(20)
    assert sorted(admin.list_topics(made, 20).topics[made].partitions) == [0, 1, 2, 3]
    with pytest.raises(KafkaException) as caught:
        admin.create_partitions([NewPartitions(made, 2)])[made].result(20)
    assert caught.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def test_records_are_deleted(admin, bootstrap, made):
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(10):
        producer.produce(made, b"%d" % number, partition=0)
    assert producer.flush(20) == 0
    (deleted,) = admin.delete_records([TopicPartition(made, 0, 4)]).values()
    assert deleted.result(20).low_watermark == 4
    (earliest,) = admin.list_offsets({TopicPartition(made, 0): OffsetSpec.earliest()}).values()
    assert earliest.result(20).offset == 4
    (beyond,) = admin.delete_records([TopicPartition(made, 0, 11)]).values()
    with pytest.raises(KafkaException) as caught:
        beyond.result(20)
    assert caught.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
