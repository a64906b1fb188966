"""What tests of topics with several replicas share: a reader, and how long a change may take to be noticed."""

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from sparklog.testing.eventually import eventually

NOTICED_S = 60.0
"""A session, of 3 s, has timed out within this time, however busy the machine is."""


def read_all(cluster, topic, count):
    """The values in partition 0, when there are ``count`` at least."""
    common = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "log_level": 0}
    consumer = Consumer(common | {"enable.auto.commit": False})  # or closing waits for a coordinator that is gone
    consumer.assign([Position(topic, 0, 0)])
    values = []
    try:
        eventually(lambda: len(_poll(consumer, values)) >= count, NOTICED_S, f"{count} records")
    finally:
        consumer.close()
    return values


def _poll(consumer, values):
    for message in consumer.consume(500, 0.2):
        assert message.error() is None
        values.append(message.value())
    return values
