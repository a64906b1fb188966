"""Our consumer as a static member of a group that Kafka 3.9 coordinates: an instance id has one holder."""

import pytest

from sparklog.client import Admin, Consumer, NewTopic, Producer
from sparklog.errors import ApiError, ErrorCode
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker

pytestmark = [pytest.mark.peer, pytest.mark.slow]

GROUP, TOPIC = "readers", "t"


@pytest.fixture
def bootstrap(tmp_path, chroot):
    with KafkaBroker(tmp_path / "kafka", chroot) as kafka:
        with Admin({"bootstrap.servers": kafka.bootstrap_servers}) as admin:
            eventually(lambda: admin.describe_cluster().brokers, 60)
            admin.create_topics([NewTopic(TOPIC, 2)])
        yield kafka.bootstrap_servers


def holder(bootstrap):
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "group.instance.id": "one",
        "heartbeat.interval.ms": 200,
    }
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    return consumer


def assigned(consumer):
    consumer.poll(0.1)
    return len(consumer.assignment) == 2


def fenced(consumer):
    try:
        consumer.poll(0.1)
    except ApiError as error:
        return error
    return None


def test_the_first_holder_ends_at_once_and_the_second_reads_on(bootstrap):
    with holder(bootstrap) as first:
        eventually(lambda: assigned(first), 60)
        with holder(bootstrap) as second:
            eventually(lambda: assigned(second), 60)
            error = eventually(lambda: fenced(first), 60)
            assert error.code is ErrorCode.FENCED_INSTANCE_ID
            assert "another consumer has taken this group.instance.id" in str(error)
            with Producer({"bootstrap.servers": bootstrap}) as producer:
                producer.send(TOPIC, value=b"for the second").result(30)
            record = eventually(lambda: next(iter(second.poll(0.1)), None), 60)
            assert record.value == b"for the second"
