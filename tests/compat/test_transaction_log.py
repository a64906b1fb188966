"""Kafka's DumpLogSegments reads our transactions: the coordinator's log, the markers, the offsets."""

import pytest
from compat.dumped import dump
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from integration.test_transactions import settled

from sparklog.testing.cluster import ClusterHarness

pytestmark = [pytest.mark.peer, pytest.mark.slow]


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory):
    """What a broker left that was stopped after a commit, with offsets, and an abort."""
    with ClusterHarness(tmp_path_factory.mktemp("transactions")) as cluster:
        address = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        admin = AdminClient(address)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        producer = Producer({**address, "transactional.id": "worker"})
        consumer = Consumer({**address, "group.id": "readers"})
        producer.init_transactions(30)
        for end in ("commit", "abort"):
            producer.begin_transaction()
            producer.produce("t", b"value", b"key", 0)
            assert producer.flush(30) == 0
            offsets = [TopicPartition("t", 0, 1)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
            getattr(producer, f"{end}_transaction")(30)
            settled(cluster.bootstrap_servers, "worker")
        consumer.close()
        return cluster.directory.broker(0)


def dumped(directory, topic, *options):
    segments = [path for path in sorted(directory.glob(f"{topic}-*/*.log")) if path.stat().st_size]
    printed, complaints = dump(segments, *options)
    assert complaints == []
    assert "isvalid: false" not in printed
    return printed


def test_it_reads_the_coordinators_log(log_dir):
    printed = dumped(log_dir, "__transaction_state", "--transaction-log-decoder")
    records = [line for line in printed.splitlines() if "transaction_metadata::transactionalId=worker" in line]
    states = [line.partition("state=")[2].partition(",")[0] for line in records]
    ongoing = ["Ongoing", "Ongoing"]
    assert states == ["Empty", *ongoing, "PrepareCommit", "CompleteCommit", *ongoing, "PrepareAbort", "CompleteAbort"]
    assert "partitions=[t-0" in printed or "t-0]" in printed


def test_it_reads_the_markers(log_dir):
    printed = dumped(log_dir, "t", "--print-data-log")
    markers = [line for line in printed.splitlines() if "endTxnMarker: " in line]
    assert [line.partition("endTxnMarker: ")[2].split()[0] for line in markers] == ["COMMIT", "ABORT"]
    assert all("coordinatorEpoch: 0" in line for line in markers)


def test_it_reads_the_offsets_and_their_markers(log_dir):
    printed = dumped(log_dir, "__consumer_offsets", "--offsets-decoder")
    assert printed.count("group=readers,partition=t-0") + printed.count('"group":"readers"') == 2
    assert printed.count("endTxnMarker: COMMIT") == printed.count("endTxnMarker: ABORT") == 1
    assert printed.count("isTransactional: true") == 4
