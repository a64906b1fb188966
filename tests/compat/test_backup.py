"""Backups of a real Kafka: its bytes, read by its own tool, and restored into sparklog under the same offsets."""

import pytest

from sparklog.backup.making import BackupOptions, make_backup
from sparklog.backup.restoring import RestoreOptions, restore
from sparklog.backup.verifying import verify
from sparklog.client import Admin, NewTopic, Producer
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.record.records import iter_records
from sparklog.storage.place import open_place
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.kafka import KafkaBroker, dump_log_segments

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]


@pytest.fixture
def kafka(tmp_path, chroot):
    with KafkaBroker(tmp_path / "kafka", chroot) as broker:
        yield broker


def test_a_topic_of_kafka_is_restored_into_sparklog(kafka, cluster, topic, tmp_path):
    tp = TopicPartition(topic, 0)
    theirs = ClientConfig.from_properties({"bootstrap.servers": kafka.bootstrap_servers})
    ours = ClientConfig.from_properties({"bootstrap.servers": cluster.bootstrap_servers})
    with Admin(theirs) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, {"retention.ms": "-1", "segment.bytes": "100000"})])
        _write(kafka, topic)
        admin.delete_records({tp: 7})
        admin.alter_group_offsets(f"{topic}-group", {tp: 40})
    place = open_place(str(tmp_path / "dest"))
    made = make_backup(theirs, place, BackupOptions((topic,), file_bytes=20_000))
    assert made.backup.is_consistent
    assert verify(place, made.backup) == []
    partition = made.backup.topics[topic].partitions[0]
    stored = b"".join(path.read_bytes() for path in sorted((kafka.log_dir / str(tp)).glob("*.log")))
    assert b"".join(place.read(each.path) for each in partition.files) in stored
    assert len(partition.files) > 1
    dumped = dump_log_segments(tmp_path / "dest" / each.path for each in partition.files)
    assert dumped.count("isvalid: true") > len(partition.files)
    assert "isvalid: false" not in dumped

    restore(ours, place, RestoreOptions())
    assert _read(ours, tp, partition.start) == _read(theirs, tp, partition.start)
    with Admin(ours) as admin:
        assert admin.group_offsets(f"{topic}-group")[tp].offset == 40


def _write(kafka, topic):
    with Producer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(20):
            producer.begin_transaction()
            for each in range(10):
                producer.send(topic, bytes(500), key=b"%d" % (number * 10 + each))
            producer.flush()
            (producer.abort_transaction if number % 3 == 2 else producer.commit_transaction)()


def _read(config, tp, start):
    level = IsolationLevel.READ_COMMITTED
    with ClusterMetadata(config) as cluster:
        end = latest_offsets(cluster, [tp], level)[tp]
        batches = fetch_range(cluster, tp, start, end, isolation=level)
        return end, [(each.offset, each.timestamp, each.key) for batch in batches for each in iter_records(batch)]
