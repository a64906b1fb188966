"""Topics made of tables: the rows are records again, under the same offsets."""

import json

import numpy as np
import pytest
from pyspark.sql.types import LongType, StructField, StructType
from spark.lake.history.delta_log import DeltaLog
from spark.lake.history.delta_log import rows as made

from sparklog.backup.restoring import RestoreOptions
from sparklog.backup.table_restore import TableOrigin, restore_table
from sparklog.client import Admin, NewTopic, Producer
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import EARLIEST, LATEST
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.errors import ConfigError, DataSourceError, StorageError
from sparklog.record.records import iter_records
from sparklog.spark.lake.columns import TableColumns
from sparklog.spark.lake.history.snapshot import Snapshot
from sparklog.structs import TopicPartition


@pytest.fixture
def table(tmp_path):
    return DeltaLog(tmp_path / "table")


def restored(config, topic, start=0, partition=0, end=1 << 40):
    """(offset, key, value, headers, timestamp) of the records of a partition."""
    with ClusterMetadata(config) as cluster, Admin(config) as admin:
        tp = TopicPartition(topic, partition)
        end = admin.list_offsets({tp: LATEST})[tp].offset
        return [
            (each.offset, each.key, each.value, tuple(each.headers), each.timestamp)
            for batch in fetch_range(cluster, tp, start, end)
            for each in iter_records(batch)
        ]


def edges(config, topic, partition=0):
    with Admin(config) as admin:
        tp = TopicPartition(topic, partition)
        return tuple(admin.list_offsets({tp: at})[tp].offset for at in (EARLIEST, LATEST))


def restore(config, table, topic, name, warn=print, **more):
    options = RestoreOptions(topics=(topic,), names={topic: name}, **more)
    return restore_table(config, str(table.path), options, warn=warn)


@pytest.mark.integration
class TestWithABroker:
    @pytest.fixture
    def offloaded(self, cluster, topic, table):
        """Two partitions: one with transactions that were aborted, and trimmed; one that ends with a marker."""
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(topic, 2, 1, {"retention.ms": "-1"})])
            for is_kept in (True, False, True):
                with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=f"{topic}-t") as producer:
                    producer.init_transactions()
                    producer.begin_transaction()
                    for number in range(5):
                        headers = [("h", b"%d" % number), ("none", None)] if number % 2 else []
                        producer.send(
                            topic,
                            None if number == 3 else b"v%d" % number,
                            key=None if number == 2 else b"k%d" % number,
                            headers=headers,
                            partition=number % 2,
                            timestamp=1000 + number,
                        )
                    producer.commit_transaction() if is_kept else producer.abort_transaction()
            admin.delete_records({TopicPartition(topic, 0): 2})
        table.offload(cluster.bootstrap_servers, topic)
        return topic

    def test_records_have_their_offsets_again(self, config, offloaded, table):
        warned = []
        found = restore(config, table, offloaded, f"{offloaded}-copy", warn=warned.append)
        assert (found.number, found.topics, found.groups) == (None, {offloaded: f"{offloaded}-copy"}, 0)
        for partition in (0, 1):
            rows = {
                row["offset"]: row
                for row in _table_rows(table)
                if row["topic"] == offloaded and row["partition"] == partition
            }
            records = restored(config, f"{offloaded}-copy", min(rows), partition)
            assert [each[0] for each in records] == sorted(rows)
            for offset, key, value, headers, timestamp in records:
                row = rows[offset]
                told = [(each["key"], each["value"]) for each in row["headers"] or []]
                assert (key, value, list(headers)) == (row["key"], row["value"], told)
                assert timestamp == round(row["timestamp"].timestamp() * 1000)
            assert edges(config, f"{offloaded}-copy", partition)[1] == edges(config, offloaded, partition)[1]
        assert edges(config, f"{offloaded}-copy")[0] == 2
        (said,) = warned
        assert f"topic {offloaded}-copy keeps records for 168 hours" in said
        assert "at least 8 of 8" in said

    def test_the_restored_topic_can_be_offloaded_and_written_to(self, cluster, config, offloaded, table, tmp_path):
        copy = f"{offloaded}-copy"
        restore(config, table, offloaded, copy)
        end = edges(config, copy)[1]
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert producer.send(copy, b"more", partition=0).result().offset == end
        again = DeltaLog(tmp_path / "again")
        again.offload(cluster.bootstrap_servers, copy)
        offsets = sorted(row["offset"] for row in _table_rows(table) if row["partition"] == 0)
        assert sorted(row["offset"] for row in _table_rows(again) if row["partition"] == 0) == [*offsets, end]

    def test_the_same_command_goes_on(self, config, offloaded, table, monkeypatch):
        copy = f"{offloaded}-copy"
        batches = TableOrigin.batches

        def dies(self, source, partition, configs):
            if partition == 1:
                raise OSError("as if killed")
            yield from batches(self, source, partition, configs)

        monkeypatch.setattr(TableOrigin, "batches", dies)
        with pytest.raises(OSError, match="as if killed"):
            restore(config, table, offloaded, copy)
        assert edges(config, copy, 1) == (0, 0)
        monkeypatch.undo()
        restore(config, table, offloaded, copy)
        restore(config, table, offloaded, copy)
        assert edges(config, copy, 1)[1] == edges(config, offloaded, 1)[1]

    def test_a_topic_that_is_there(self, cluster, config, offloaded, table):
        with Admin(config) as admin:
            for name, partitions in (("few", 1), ("many", 3), ("full", 2)):
                admin.create_topics([NewTopic(f"{offloaded}-{name}", partitions, 1)])
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send(f"{offloaded}-full", b"mine", partition=0).result()
        with pytest.raises(StorageError, match="has 1 partitions, and the table has rows of 2"):
            restore(config, table, offloaded, f"{offloaded}-few")
        with pytest.raises(StorageError, match="is there already"):
            restore(config, table, offloaded, f"{offloaded}-full")
        restore(config, table, offloaded, f"{offloaded}-many")
        assert edges(config, f"{offloaded}-many", 1)[1] == edges(config, offloaded, 1)[1]
        assert edges(config, f"{offloaded}-many", 2) == (0, 0)


def _table_rows(table):
    from deltalake import DeltaTable

    return DeltaTable(str(table.path)).to_pyarrow_table().to_pylist()


def test_runs_of_offsets_become_batches(table):
    """Rows in no order, over two files; offsets far apart; a partition whose end lies behind its last row."""
    chance = np.random.default_rng(5)
    offsets = sorted({*range(10, 400), *chance.integers(400, 5000, 300).tolist(), 1 << 33})
    mixed = chance.permutation(offsets).tolist()
    table.append(made(mixed[::2]), made(mixed[1::2]), made(range(3), partition=2), ends={0: (1 << 33) + 9, 2: 3})
    origin = TableOrigin(Snapshot.open(str(table.path)), RestoreOptions())
    partitions = origin.backup.topics["clicks"].partitions
    assert [(each.start, each.end) for each in partitions] == [(10, (1 << 33) + 9), (0, 0), (0, 3)]
    configs = {"compression.type": "zstd", "max.message.bytes": "1000"}
    from sparklog.record.batch import RecordBatch

    found, last = [], -1
    for base, data in origin.batches("clicks", 0, configs):
        batch = RecordBatch(data)
        batch.check_crc()
        assert last < base == batch.base_offset
        last = batch.last_offset
        found += [(each.offset, each.key, each.value) for each in iter_records(batch)]
    assert found == [(each, b"k%d" % each, b"v%d" % each) for each in offsets]
    assert last == (1 << 33) + 8


def test_tables_of_which_no_topic_is_made(table, tmp_path):
    def refused(log, options=None):
        with pytest.raises((DataSourceError, ConfigError)) as found:
            TableOrigin(Snapshot.open(str(log.path)), options or RestoreOptions())
        return str(found.value)

    assert "no offload has written to it" in refused(table)
    table.append(made(range(5)), ends={0: 5})
    assert "topic other is not in the table, which has clicks" in refused(table, RestoreOptions(topics=("other",)))
    table.append(made(range(3, 5)))
    assert "has offset 3 of partition clicks-0 twice" in refused(table)
    columns = TableColumns().of_new_table(())
    fewer = DeltaLog(tmp_path / "fewer", StructType([each for each in columns if each.name != "headers"]))
    fewer.append(made(range(5)).drop_columns(["headers"]), ends={0: 5})
    assert "it has no column headers" in refused(fewer)
    values = {"format": "json", "schema": StructType([StructField("n", LongType())]).json(), "writers": None}
    told = json.dumps(values | {"textKey": False, "into": None, "deadLetters": True})
    decoded = DeltaLog(tmp_path / "decoded", configuration={"sparklog.values": told})
    assert "it has decoded values" in refused(decoded)
    upserted = DeltaLog(tmp_path / "upserted", configuration={"sparklog.upsert": "true"})
    assert "it has the last record of each key" in refused(upserted)
