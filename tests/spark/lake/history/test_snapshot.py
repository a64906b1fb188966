"""A version of a table as it is read without a JVM, beside what Delta itself says of it."""

import json
import os
import pickle
from contextlib import closing
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, LongType, StructField, StructType
from spark.lake.history.delta_log import TOPIC, TOPIC_ID, DeltaLog, progress, rows, wanted

from sparklog.errors import DataSourceError
from sparklog.spark.lake.columns import TableColumns
from sparklog.spark.lake.delta.table import DeltaTable
from sparklog.spark.lake.history import snapshot as snapshot_module
from sparklog.spark.lake.history.snapshot import Snapshot, TableFile
from sparklog.spark.lake.history.table_rows import TableRows
from sparklog.spark.lake.progress import Progress
from sparklog.spark.schema import source_schema
from sparklog.structs import TopicPartition

SCHEMA = source_schema(include_headers=True)
_MAPPING = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
_MAPPED = StructType([StructField("offset", LongType(), True, _MAPPING)])


def of(snapshot, partition=0, end=10**6):
    with closing(TableRows(snapshot, SCHEMA)) as table:
        return [row for each in table.batches(wanted(0, end, partition)) for row in each.batch.to_pylist()]


def offsets(snapshot, partition=0):
    return [row["offset"] for row in of(snapshot, partition)]


def write_checkpoint(path, known):
    """As much of one as has the offset of a partition."""
    told = {"appId": known.to_application(), "version": 1}
    if path.suffix == ".json":
        path.write_text(json.dumps({"txn": told}) + "\n")
    else:
        pq.write_table(pa.table({"txn": [None, told], "metaData": [{"id": "x"}, None]}), path)


class TestByHand:
    def test_files_and_how_far_the_table_has_come(self, tmp_path):
        log = DeltaLog(tmp_path / "a b#c")
        (first, _) = log.append(rows(range(5)), rows(range(5, 9), partition=1), ends={0: 5})
        log.append(rows(range(5, 9)), ends={0: 12, 1: 9})
        snapshot = Snapshot.open(str(log.path))
        assert snapshot.version == 2
        assert (snapshot.end(progress(0)), snapshot.end(progress(1)), snapshot.end(progress(2))) == (12, 9, 0)
        assert snapshot.end(Progress("another", TopicPartition(TOPIC, 0), TOPIC_ID)) == 0
        (file,) = snapshot.files_of(wanted(0, 5))
        assert (file.path, file.low, file.high, file.partitions, file.topics) == (first, 0, 4, (0, 0), (TOPIC, TOPIC))
        assert file.last_ms >= 4000
        assert offsets(snapshot) == list(range(9))

    def test_whose_offsets_it_has_however_long_ago_they_were_written(self, tmp_path):
        log = DeltaLog(tmp_path / "table")
        log.append(rows(range(3), partition=1), ends={1: 3})
        for number in range(120):
            log.append(ends={0: number + 1})
        assert Snapshot.open(str(log.path)).owners() == [progress(0), progress(1)]

    @pytest.mark.parametrize(
        "names",
        [
            ["checkpoint.parquet"],
            ["checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet"],
            ["checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"],
            ["checkpoint.0000000001.0000000002.parquet", "checkpoint.0000000002.0000000002.parquet"],
        ],
    )
    def test_whose_offsets_it_has_where_a_checkpoint_says_so(self, tmp_path, names):
        log = DeltaLog(tmp_path / "table")
        log.append(ends={0: 1})
        for number, name in enumerate(names):
            write_checkpoint(log.path / "_delta_log" / f"{1:020d}.{name}", progress(number))
        (log.path / "_delta_log" / f"{1:020d}.json").unlink()
        write_checkpoint(log.path / "_delta_log" / f"{2:020d}.checkpoint.0000000001.0000000002.parquet", progress(7))
        log.append(ends={3: 1})
        found = set(snapshot_module._applications(str(log.path)))
        assert found == {progress(each).to_application() for each in (*range(len(names)), 3)}

    def test_an_older_version(self, tmp_path):
        log = DeltaLog(tmp_path / "table")
        log.append(rows(range(5)), ends={0: 5})
        log.append(rows(range(5, 9)), ends={0: 9})
        snapshot = Snapshot.open(str(log.path), 1)
        assert (snapshot.version, snapshot.end(progress()), snapshot.is_pinned) == (1, 5, True)
        assert snapshot.newest().version == 2
        with pytest.raises(DataSourceError, match=r"SPARKLOG_NO_TABLE.*has no version 7: the newest is 2"):
            Snapshot.open(str(log.path), 7)

    def test_a_time_before_the_first_version(self, tmp_path):
        """``deltalake`` would take the first version for it."""
        log = DeltaLog(tmp_path / "table")
        log.append(rows(range(5)), ends={0: 5})
        for number, second in ((0, 10.0), (1, 20.0)):
            os.utime(tmp_path / "table" / "_delta_log" / f"{number:020d}.json", (second, second + 0.0015))
        for second, version in ((10.002, 0), (19.0, 0), (20.001, 1), (10**9, 1)):
            assert Snapshot.open(str(log.path), datetime.fromtimestamp(second, UTC)).version == version
        with pytest.raises(
            DataSourceError, match=r"no version as of 1970-01-01T00:00:09\+00:00: the first that is left"
        ):
            Snapshot.open(str(log.path), datetime.fromtimestamp(9, UTC))

    def test_the_newest_version_of_a_relative_path_is_of_the_same_table_in_any_directory(self, tmp_path, monkeypatch):
        for name, count in (("driver", 3), ("worker", 7)):
            DeltaLog(tmp_path / name / "lake").append(rows(range(count)), ends={0: count})
        monkeypatch.chdir(tmp_path / "driver")
        given = pickle.loads(pickle.dumps(Snapshot.open("./lake").narrowed([], [])))
        monkeypatch.chdir(tmp_path / "worker")
        newest = given.newest()
        assert (newest.name, newest.location) == ("./lake", str(tmp_path / "driver" / "lake"))
        assert newest.end(progress()) == 3

    def test_a_text_that_was_cut_is_no_topic(self, tmp_path):
        cut = "a" * 32
        file = TableFile("part", 1, 0, 9, (0, 0), (cut, cut + "\U0010ffff"), 0, (), None)
        whole = file._replace(topics=(cut, cut))
        assert not Snapshot("t", str(tmp_path), 0, StructType(), None, (file,)).has_topic(cut)
        assert Snapshot("t", str(tmp_path), 0, StructType(), None, (whole,)).has_topic(cut)

    def test_what_a_task_is_given(self, tmp_path):
        log = DeltaLog(tmp_path / "table")
        (first, _, _) = log.append(rows(range(5)), rows(range(5, 9)), rows(range(9), partition=1), ends={0: 9, 1: 9})
        narrow = pickle.loads(pickle.dumps(Snapshot.open(str(log.path)).narrowed([wanted(0, 5)], [progress()])))
        assert [each.path for each in narrow.files] == [first]
        assert (narrow.end(progress(0)), narrow.end(progress(1))) == (9, 0)
        assert len(narrow.newest().files) == 3

    def test_paths_of_files_may_be_odd(self, tmp_path):
        log = DeltaLog(tmp_path / "table")
        (path,) = log.append(rows(range(5)), directory="day=1 %3D#/")
        snapshot = Snapshot.open(str(log.path))
        assert [each.path for each in snapshot.files] == [path]
        assert offsets(snapshot) == list(range(5))

    def test_a_column_that_is_not_there(self, tmp_path):
        schema = StructType([each for each in TableColumns().of_new_table(()) if each.name != "timestampType"])
        log = DeltaLog(tmp_path / "table", schema)
        snapshot = Snapshot.open(str(log.path))
        snapshot.check_columns(["value", "offset"])
        with pytest.raises(DataSourceError, match="has no column timestampType"):
            snapshot.check_columns(["value", "timestampType"])

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            ({"schema": StructType([StructField("offset", IntegerType())])}, "its column offset is int"),
            (
                {"schema": StructType([StructField("price", IntegerType())])},
                "a column price, which a log does not have",
            ),
            ({"schema": StructType([TableColumns().of_new_table(())["offset"]])}, "it has no column topic, partition"),
            ({"configuration": {"sparklog.upsert": "true"}}, "it has the last record of each key"),
            (
                {"schema": _MAPPED, "configuration": {"delta.columnMapping.mode": "name"}, "protocol": (2, 5)},
                "'delta.columnMapping.mode' = 'none'",
            ),
        ],
    )
    def test_a_table_that_is_no_history(self, tmp_path, more, message):
        log = DeltaLog(tmp_path / "table", **more)
        with pytest.raises(DataSourceError, match=f"SPARKLOG_UNSUITABLE_TABLE.*{message}"):
            Snapshot.open(str(log.path))

    def test_a_feature_that_nobody_knows(self, tmp_path):
        log = DeltaLog(tmp_path / "table", protocol=(3, 7), features=["sparklogTest"])
        with pytest.raises(DataSourceError, match=r"SPARKLOG_(NO|UNSUITABLE)_TABLE.*sparklogTest"):
            Snapshot.open(str(log.path))

    def test_a_path_that_deltalake_reads_as_another(self, tmp_path):
        log = DeltaLog(tmp_path / "a%20b")
        with pytest.raises(DataSourceError, match=r"SPARKLOG_UNSUITABLE_TABLE.*has a %"):
            Snapshot.open(str(log.path))

    @pytest.mark.parametrize("name", ["nothing", "empty"])
    def test_a_place_without_a_table(self, tmp_path, name):
        (tmp_path / "empty").mkdir()
        with pytest.raises(DataSourceError, match="SPARKLOG_NO_TABLE"):
            Snapshot.open(str(tmp_path / name))


@pytest.mark.slow  # a minute of commands of Delta; what a snapshot reads is tested above
@pytest.mark.spark
@pytest.mark.integration
@pytest.mark.timeout(600)
class TestBesideDelta:
    """One table goes through what people do to tables; after each step both are asked."""

    @pytest.fixture(autouse=True)
    def _quick(self, interpreted, delta_jars, spark):
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        yield
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")

    def test_after_every_command_both_say_the_same(self, spark, tmp_path):
        path = str(tmp_path / "table")
        DeltaTable(spark, path).create(["day"])
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointInterval' = '4')")
        self._append(spark, path, 0, 40)
        self._append(spark, path, 40, 30)
        self._same(spark, path)
        by_name = f"delta.`{path}`"
        past = datetime.now(UTC)
        for command in (
            f"OPTIMIZE {by_name}",
            f"DELETE FROM {by_name} WHERE offset BETWEEN 10 AND 15 AND partition = 0",
            f"ALTER TABLE {by_name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
            f"DELETE FROM {by_name} WHERE offset IN (3, 22, 33)",
            f"DELETE FROM {by_name} WHERE offset IN (4, 23)",
            f"DELETE FROM {by_name} WHERE offset < 8",
            f"REORG TABLE {by_name} APPLY (PURGE)",
            f"VACUUM {by_name} RETAIN 0 HOURS",
        ):
            spark.sql(command)
            self._same(spark, path, command)
        assert list((tmp_path / "table" / "_delta_log").glob("*.checkpoint.parquet"))
        self._same_in_the_past(spark, path, past)

    def _append(self, spark, path, start, count):
        """Rows and offsets in one commit, by Delta's own writer."""
        frame = spark.range(start, start + count, numPartitions=1).select(
            F.concat(F.lit("k"), "id").cast("binary").alias("key"),
            F.lit("v" * 50).cast("binary").alias("value"),
            F.lit(None).cast("array<struct<key: string, value: binary>>").alias("headers"),
            F.lit(TOPIC).alias("topic"),
            (F.col("id") % 2).cast("int").alias("partition"),
            F.floor(F.col("id") / 2).alias("offset"),
            F.timestamp_seconds(F.col("id") * 3600).alias("timestamp"),
            F.lit(0).alias("timestampType"),
            F.to_date(F.timestamp_seconds(F.col("id") * 3600)).alias("day"),
        )
        options = {"txnAppId": progress().to_application(), "txnVersion": (start + count) // 2}
        frame.write.format("delta").options(**options).mode("append").save(path)

    def _same(self, spark, path, after="writing"):
        snapshot = Snapshot.open(path)
        history = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").first()
        assert snapshot.version == history["version"], after
        assert snapshot.end(progress()) == 35, after
        self._same_rows(spark.read.format("delta").load(path), snapshot, after)

    def _same_rows(self, frame, snapshot, after):
        for partition in (0, 1):
            theirs = frame.where(f"partition = {partition}").orderBy("offset").select(*SCHEMA.names).collect()
            ours = of(snapshot, partition)
            assert [row["offset"] for row in ours] == [row["offset"] for row in theirs], (after, partition)
            assert [_plain(row) for row in ours] == [_plain(row.asDict()) for row in theirs], (after, partition)

    def _same_in_the_past(self, spark, path, past):
        theirs = spark.read.format("delta").option("timestampAsOf", past.isoformat()).load(path).inputFiles()
        ours = Snapshot.open(path, past)
        assert {each.path.rpartition("/")[2] for each in ours.files} == {each.rpartition("/")[2] for each in theirs}


def _plain(row):
    stamp = row["timestamp"]
    stamp = stamp if stamp.tzinfo else stamp.astimezone()
    return {**row, "timestamp": stamp, "key": bytes(row["key"]), "value": bytes(row["value"])}
