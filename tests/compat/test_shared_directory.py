"""One log directory and one ZooKeeper tree, served by Kafka 3.9 and by us in turn, each from where the other ended."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker

pytestmark = [pytest.mark.peer, pytest.mark.slow]

TOPIC = "shared"
PARTITIONS = 2
GROUP = "readers"
RECORDS_A_TURN = 100
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def brokers(tmp_path, chroot):
    """Ours and Kafka's, to be started one at a time: same id, port, log directory and znodes."""
    ours = BrokerHarness(tmp_path, chroot)
    theirs = KafkaBroker(tmp_path / "kafka", chroot, port=ours.spec.port, extra_props={"log.dirs": ours.spec.data_dir})
    return {"sparklog": ours, "kafka": theirs}


@pytest.mark.parametrize("order", [("kafka", "sparklog"), ("sparklog", "kafka")], ids="-".join)
def test_each_serves_what_the_other_wrote(brokers, order):
    bootstrap = brokers["sparklog"].address
    sent = []
    for turn, name in enumerate(order * 2):
        with brokers[name]:
            await_leaders(bootstrap, with_topic=turn > 0)
            if turn == 0:
                create(bootstrap)
            else:
                assert sorted(read(bootstrap)) == sorted(sent)
                assert committed(bootstrap) == turn
            sent += write(bootstrap, turn)
            commit(bootstrap, turn + 1)
    with brokers[order[0]]:
        await_leaders(bootstrap, with_topic=True)
        assert sorted(read(bootstrap)) == sorted(sent)


def await_leaders(bootstrap, with_topic):
    """Return when the broker knows itself as controller and, if the topic is there, as its leader."""

    def ready():
        found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=10)
        leaders = [each.leader for topic in found.topics.values() for each in topic.partitions.values()]
        return found.controller_id == 0 and set(leaders) <= {0} and (TOPIC in found.topics) == with_topic

    eventually(ready, 60, "the broker to lead every partition")


def create(bootstrap):
    """Its segments are a few batches each."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config={"segment.bytes": "2000"})])[TOPIC].result(30)


def write(bootstrap, turn):
    """Records of one turn, in every compression: (partition, key, value)."""
    sent = []
    for number, compression in enumerate(COMPRESSIONS):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": compression, "log_level": 0})
        for record in range(RECORDS_A_TURN // len(COMPRESSIONS)):
            each = (record % PARTITIONS, b"%d-%d" % (turn, record), b"value of " + compression.encode() * 9)
            producer.produce(TOPIC, each[2], each[1], each[0], headers=[("turn", b"%d" % number)])
            sent.append(each)
        assert producer.flush(30) == 0
    return sent


def read(bootstrap):
    """Every record: (partition, key, value)."""
    consumer = reader(bootstrap)
    ends = {number: consumer.get_watermark_offsets(TopicPartition(TOPIC, number), 20) for number in range(PARTITIONS)}
    consumer.assign([TopicPartition(TOPIC, number, start) for number, (start, _) in ends.items()])
    wanted = sum(end - start for start, end in ends.values())
    found = []
    while len(found) < wanted:
        messages = consumer.consume(wanted - len(found), 20)
        assert messages, f"{len(found)} of {wanted} records came"
        assert [message.error() for message in messages if message.error()] == []
        found += [(message.partition(), message.key(), message.value()) for message in messages]
    consumer.close()
    return found


def commit(bootstrap, offset):
    consumer = reader(bootstrap)
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap):
    consumer = reader(bootstrap)
    (found,) = consumer.committed([TopicPartition(TOPIC, 0)], 20)
    consumer.close()
    return found.offset


def reader(bootstrap):
    settings = {"group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 0}
    return Consumer({"bootstrap.servers": bootstrap, **settings})
