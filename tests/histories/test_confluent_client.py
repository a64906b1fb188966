"""confluent-kafka behind the seam, where librdkafka's ways need care."""

import pytest
from histories import confluent_client
from histories.clients import ClientFailed
from histories.confluent_client import ConfluentProducer
from histories.drill import SETTINGS
from histories.faulty_cluster import FaultyCluster
from histories.network import CLIENTS, broker_name
from integration import wire

from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

TP = TopicPartition("t", 0)
BROKER = broker_name(0)


@pytest.fixture
def cluster(tmp_path):
    alone = dict.fromkeys(("offsets.topic.replication.factor", "transaction.state.log.replication.factor"), 1)
    with FaultyCluster(tmp_path, 1, {**SETTINGS, **alone, "transaction.state.log.min.isr": 1}) as cluster:
        yield cluster


@pytest.mark.integration
def test_a_producer_that_gave_up_records_which_were_sent_begins_no_other_transaction(cluster, monkeypatch):
    """librdkafka would give their sequence numbers to the next ones, which the broker took for the same."""
    monkeypatch.setattr(confluent_client.signal, "alarm", lambda _: None)
    monkeypatch.setattr(confluent_client, "REQUEST_S", 1.0)
    broker = cluster.brokers[0]
    eventually(lambda: wire.topic_is_made(cluster.brokers, TP.topic, {}, 1), 60, "the topic")
    producer = ConfluentProducer({"bootstrap.servers": cluster.bootstrap_servers}, "copier", 20_000)

    def ends_at(offset):
        with wire.connect(broker.own_address) as connection:
            return wire.fetch(connection, TP, 0).high_watermark == offset

    producer.begin()
    producer.produce(TP, "answered", lambda _: None)
    assert producer.flush(60) == 0
    cluster.network.cut((BROKER, CLIENTS))
    producer.produce(TP, "not answered", lambda _: None)
    eventually(lambda: producer.poll(0) or ends_at(2), 60, "both records")
    cluster.network.cut((CLIENTS, BROKER))
    cluster.network.reset()
    for _ in range(2):
        with pytest.raises(ClientFailed):
            producer.abort()
    cluster.network.heal()
    eventually(lambda: has_aborted(producer), 60, "the end of the transaction")
    with pytest.raises(ClientFailed, match="sequence numbers"):
        producer.begin()


def has_aborted(producer):
    try:
        producer.abort()
    except ClientFailed:
        return False
    return True
