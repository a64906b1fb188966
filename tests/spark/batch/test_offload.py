"""The job that offloads, against a real broker and real Delta tables."""

import itertools
import json
import os
import pickle
import re
import shutil
from contextlib import closing, suppress
from pathlib import Path

import pytest

from sparklog.client import Producer
from sparklog.errors import ApiError, DataSourceError
from sparklog.spark.batch import offload
from sparklog.spark.batch.offload import Offload, OffloadOptions, run
from sparklog.spark.batch.workers import run_in_workers
from sparklog.spark.lake.columns import TableColumns
from sparklog.spark.lake.delta.raw_table import RawTable
from sparklog.spark.lake.destination import Overtaken
from sparklog.spark.read.resolver import OffsetResolver
from sparklog.spark.stream import truncation
from sparklog.structs import TopicPartition

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(600)]
DAY_MS = 86_400_000
PAGE = 4096


@pytest.fixture(autouse=True)
def _few_rows(interpreted, delta_jars):
    """The queries here are of a few rows, and need Delta."""


@pytest.fixture
def table(tmp_path):
    return str(tmp_path / "table")


@pytest.fixture
def options(cluster, table):
    def chosen(*topics, **more):
        return OffloadOptions(cluster.bootstrap_servers, topics, RawTable(more.pop("table", table)), **more)

    return chosen


@pytest.fixture
def send(cluster):
    """``send(topic, start, count)``: keyed records over all partitions, an hour apart."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:

        def sent(topic, start, count, partitions=2):
            for number in range(start, start + count):
                producer.send(
                    topic,
                    b"value %d" % number,
                    key=b"key %d" % number if number % 3 else None,
                    partition=number % partitions,
                    timestamp=number * DAY_MS // 24,
                    headers=[("number", b"%d" % number)] if number % 2 else [],
                )
            producer.flush()

        yield sent


NAMES = ["key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType"]


def rows(frame):
    found = frame.select(*NAMES).orderBy("topic", "partition", "offset").collect()
    return [tuple(None if name == "headers" and not row[name] else row[name] for name in NAMES) for row in found]


def in_table(spark, table):
    return rows(spark.read.format("delta").load(table))


def in_log(spark, cluster, *topics):
    frame = spark.read.format("sparklog").options(subscribe=",".join(topics), includeHeaders="true")
    return rows(
        frame.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .load()
    )


def test_the_table_has_what_the_log_has(spark, cluster, table, options, make, send, monkeypatch):
    name = make()
    send(name, 0, 100)
    synced, sync = [], os.fsync
    with closing(Offload(spark, options(name))) as job:
        (first,) = job.commits()
        assert first.records == 100
        send(name, 100, 30)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), sync(fd)))
            (second,) = job.commits()
    log = f"{table}/_delta_log"
    assert synced == [f"{log}/{second.version:020d}.json", log, table]  # files are synced by Spark's workers
    assert (second.records, second.version, second.behind) == (30, first.version + 1, 0)
    told = [json.loads(info["userMetadata"]) for info in commit_infos(table)]
    assert told == [{"sparklog.offload": {name: {"0": end, "1": end}}} for end in (50, 65)]
    assert in_table(spark, table) == in_log(spark, cluster, name)
    assert run(spark, options(name)) == []


def test_what_tasks_give_back_has_nothing_of_the_records(spark, options, make, send, monkeypatch):
    """It is all that passes the JVM."""
    given = []

    def noted(*arguments):
        given.append(run_in_workers(*arguments))
        return given[-1]

    monkeypatch.setattr(offload, "run_in_workers", noted)
    name = make()
    send(name, 0, 40)
    (commit,) = run(spark, options(name))
    ((*outcomes,),) = given
    assert sum(each.rows for each in outcomes) == commit.records == 40
    told = pickle.dumps(outcomes)
    assert [number for number in range(40) if b"value %d" % number in told or b"key %d" % number in told] == []


def test_a_table_may_lie_where_names_are_odd(spark, cluster, table, options, make, send):
    name, odd = make(), f"{table}/a b%20c#d/"
    send(name, 0, 10)
    run(spark, options(name, table=odd))
    assert in_table(spark, odd) == in_log(spark, cluster, name)
    assert run(spark, options(name, table=odd)) == []


def test_rows_lie_by_day_and_files_that_a_filter_cannot_mean_are_skipped(spark, table, options, make, send):
    name = make(1)
    send(name, 0, 60, partitions=1)
    run(spark, options(name))
    frame = spark.read.format("delta").load(table)
    days = {row.day.isoformat(): row["count"] for row in frame.groupBy("day").count().collect()}
    assert days == {"1970-01-01": 24, "1970-01-02": 24, "1970-01-03": 12}
    assert len(frame.inputFiles()) == 3
    for condition, count in (("offset >= 50", 10), ("timestamp >= timestamp '1970-01-03 00:00:00'", 12)):
        assert frame.where(condition).count() == count
        assert len(frame.where(condition).inputFiles()) == 1


def commit_infos(table):
    """What the log of the table says of each commit that has rows of an offload."""
    for path in sorted(Path(table, "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        if any("txn" in each for each in actions):
            yield next(each["commitInfo"] for each in actions if "commitInfo" in each)


def _vectors(spark, table):
    written = [line for path in Path(table, "_delta_log").glob("*.json") for line in path.read_text().splitlines()]
    assert any("deletionVector" in json.loads(line).get("add", {}) for line in written)


def _row_ids(spark, table):
    ids = [row[0] for row in spark.read.format("delta").load(table).select("_metadata.row_id").collect()]
    assert None not in ids
    assert len(set(ids)) == len(ids)


def _change_feed(spark, table):
    feed = spark.read.format("delta").options(readChangeFeed="true", startingVersion="0").load(table)
    assert {row[0]: row["count"] for row in feed.groupBy("_change_type").count().collect()} == {
        "insert": 30,
        "delete": 2,
    }


def _times(spark, table):
    times = [info["inCommitTimestamp"] for info in commit_infos(table)]
    assert len(times) == 2
    assert times == sorted(times)


FEATURES = {
    "enableDeletionVectors": _vectors,
    "enableRowTracking": _row_ids,
    "enableChangeDataFeed": _change_feed,
    "enableInCommitTimestamps": _times,
}


def made_with(spark, table, feature):
    columns = ", ".join(
        f"{each.name} {each.dataType.simpleString()}" for each in TableColumns().of_new_table(["day"]).fields
    )
    spark.sql(
        f"CREATE TABLE delta.`{table}` ({columns}) USING delta PARTITIONED BY (day)"
        f" TBLPROPERTIES ('delta.{feature}' = 'true')"
    )


@pytest.mark.slow  # a table of its own, and a DELETE, take Delta ten seconds
@pytest.mark.parametrize("feature", FEATURES)
def test_a_table_may_use_features_of_delta(spark, cluster, table, options, make, send, feature):
    """Rows are deleted between two offloads: those stay away, and the feature holds for all files."""
    made_with(spark, table, feature)
    name = make()
    send(name, 0, 20)
    run(spark, options(name))
    spark.sql(f"DELETE FROM delta.`{table}` WHERE offset = 3")
    send(name, 20, 10)
    run(spark, options(name))
    assert in_table(spark, table) == [row for row in in_log(spark, cluster, name) if row[NAMES.index("offset")] != 3]
    FEATURES[feature](spark, table)


@pytest.mark.slow
def test_a_table_may_take_nothing_but_additions(spark, cluster, table, options, make, send):
    made_with(spark, table, "appendOnly")
    name = make()
    for start in (0, 20):
        send(name, start, 20)
        run(spark, options(name))
    assert in_table(spark, table) == in_log(spark, cluster, name)
    with pytest.raises(Exception, match="append"):
        spark.sql(f"DELETE FROM delta.`{table}` WHERE offset = 3")


@pytest.mark.slow  # a run for each page that is free
def test_a_disk_that_is_full(spark, cluster, options, make, send, disk_of):
    """Whatever there is no room for, rows or the table's log, the table is as it was; and whole when there is room."""
    disk = disk_of("4m")
    name, table, full = make(), str(disk / "table"), Ballast(disk / "ballast")
    send(name, 0, 10)
    run(spark, options(name, table=table))
    before, failures = in_table(spark, table), []
    send(name, 10, 3)
    for pages in itertools.count():
        full.leave(pages)
        try:
            run(spark, options(name, table=table))
            break
        except DataSourceError as error:
            failures.append(str(error))
        full.remove()
        assert in_table(spark, table) == before, pages
    assert in_table(spark, table) == in_log(spark, cluster, name)
    assert all(re.fullmatch(r"\[SPARKLOG_TABLE_NOT_WRITTEN\] .*No space left on device.*", each) for each in failures)
    of_log = [f"the log of table {table} cannot be written: No space left on device" in each for each in failures]
    assert of_log == sorted(of_log)
    assert {*of_log} == {False, True}, failures
    spark._jvm.System.gc()  # what could not be closed is still open, and the disk could not be taken away


class Ballast:
    """A file that takes all room of a small disk."""

    def __init__(self, path):
        self._path = path

    def remove(self):
        self._path.unlink(missing_ok=True)

    def leave(self, pages):
        """But for so many."""
        self.remove()
        with suppress(OSError), open(self._path, "wb", buffering=0) as file:
            while True:
                file.write(bytes(PAGE))
        os.truncate(self._path, max(self._path.stat().st_size - pages * PAGE, 0))


def test_a_commit_takes_in_so_much_and_the_next_goes_on(spark, cluster, table, options, make, send):
    name = make()
    send(name, 0, 200)
    found = run(spark, options(name, commit_bytes=2000))
    assert len(found) > 2
    assert [each.behind for each in found] == sorted((each.behind for each in found), reverse=True)
    assert found[-1].behind == 0
    assert in_table(spark, table) == in_log(spark, cluster, name)


def test_of_two_jobs_one_wins(spark, cluster, table, options, make, send):
    name = make()
    send(name, 0, 50)

    def overtaken(*arguments, **more):
        outcomes = run_in_workers(*arguments, **more)
        patch.undo()
        assert len(run(spark, options(name))) == 1
        return outcomes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offload, "run_in_workers", overtaken)
        with pytest.raises(Overtaken, match="another job has offloaded"):
            run(spark, options(name))
    assert in_table(spark, table) == in_log(spark, cluster, name)
    assert run(spark, options(name)) == []


def test_a_later_commit_of_a_job_runs_its_tasks_and_nothing_else(spark, options, make, send):
    name, context = make(), spark.sparkContext
    with closing(Offload(spark, options(name))) as job:
        send(name, 0, 10)
        assert [each.records for each in job.commits()] == [10]
        send(name, 10, 20)
        context.setJobGroup(name, "a later commit")
        try:
            assert [each.records for each in job.commits()] == [20]
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
        assert len(context.statusTracker().getJobIdsForGroup(name)) == 1


def test_two_jobs_that_take_turns_add_each_record_once(spark, cluster, table, options, make, send):
    name = make()
    with closing(Offload(spark, options(name))) as one, closing(Offload(spark, options(name))) as other:
        for number in range(5):
            send(name, 10 * number, 10)
            assert [each.records for each in (one if number % 3 else other).commits()] == [10]
    assert in_table(spark, table) == in_log(spark, cluster, name)


def test_a_job_that_was_slower_takes_what_another_has_added_for_no_loss(
    spark, cluster, table, options, make, send, monkeypatch
):
    """It looked where the log ends before the other began, and at the table when the other was done."""
    name = make()
    send(name, 0, 10)
    with closing(Offload(spark, options(name, fail_on_data_loss=False))) as slow:
        begin = slow._destination.begin

        def late():
            monkeypatch.undo()
            send(name, 10, 10)
            assert [each.records for each in run(spark, options(name))] == [20]
            return begin()

        monkeypatch.setattr(slow._destination, "begin", late)
        assert list(slow.commits()) == []
        send(name, 20, 10)
        assert [each.records for each in slow.commits()] == [10]
    assert in_table(spark, table) == in_log(spark, cluster, name)


def test_aborted_and_undecided_records_stay_out(spark, cluster, table, options, make):
    name = make(1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        for text, decide in ((b"kept", producer.commit_transaction), (b"gone", producer.abort_transaction)):
            producer.begin_transaction()
            producer.send(name, text, partition=0)
            decide()
        producer.begin_transaction()
        producer.send(name, b"later", partition=0)
        producer.flush()
        run(spark, options(name))
        assert [row[1] for row in in_table(spark, table)] == [b"kept"]
        producer.commit_transaction()
    run(spark, options(name))
    assert [row[1] for row in in_table(spark, table)] == [b"kept", b"later"]


def test_the_groups_offsets_follow(spark, options, make, send, admin):
    name = make()
    send(name, 0, 10)
    run(spark, options(name, group=f"{name}-lag"))
    offsets = admin.group_offsets(f"{name}-lag")
    assert {tp: each.offset for tp, each in offsets.items()} == {TopicPartition(name, 0): 5, TopicPartition(name, 1): 5}


class TestRefusals:
    def test_a_topic_that_there_is_not(self, spark, options, topic):
        with pytest.raises(ApiError, match=topic):
            run(spark, options(topic))

    def test_a_table_of_another_topic(self, spark, options, make, send, table, cluster):
        one, other = make(suffix="-a"), make(suffix="-b")
        send(one, 0, 4)
        send(other, 0, 4)
        run(spark, options(one))
        with pytest.raises(DataSourceError, match=f"has topic {one}, not {other}"):
            run(spark, options(other))
        run(spark, options(other, add_topics=True))
        assert in_table(spark, table) == in_log(spark, cluster, one, other)

    def test_a_topic_that_was_made_again(self, spark, options, make, send, admin):
        name = make()
        send(name, 0, 4)
        run(spark, options(name))
        admin.delete_topics([name])
        make()
        send(name, 0, 2)
        with pytest.raises(DataSourceError, match="which was deleted; the topic of that name now has id"):
            run(spark, options(name))

    def test_a_table_that_somebody_else_wrote(self, spark, options, make, send, table):
        name = make()
        send(name, 0, 4)
        spark.range(3).selectExpr("cast(string(id) as binary) as key").write.format("delta").save(table)
        with pytest.raises(DataSourceError, match="somebody else has written"):
            run(spark, options(name))

    @pytest.mark.parametrize(
        ("columns", "properties", "why"),
        [
            ("value string", {}, "column value string is not one of a log"),
            ("value binary, price double", {}, "column price double is not one of a log"),
            ("key binary not null, value binary", {}, "generated or constrained"),
            ("value binary, offset bigint", {"delta.constraints.high": "offset > 3"}, "constraints"),
            ("value binary", {"delta.columnMapping.mode": "name"}, "other names in its files"),
            ("value binary", {"delta.setTransactionRetentionDuration": "interval 7 days"}, "forgets how far"),
        ],
    )
    def test_a_table_that_does_not_suit(self, spark, options, make, send, table, columns, properties, why):
        name = make()
        send(name, 0, 4)
        told = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items() if "constraints" not in key)
        spark.sql(
            f"create table delta.`{table}` ({columns}) using delta" + (f" tblproperties ({told})" if told else "")
        )
        if "constraints" in str(properties):
            spark.sql(f"alter table delta.`{table}` add constraint high check (offset > 3)")
        with pytest.raises(DataSourceError, match=why):
            run(spark, options(name))

    def test_a_place_that_has_other_files(self, spark, options, make, send, tmp_path):
        name = make()
        send(name, 0, 4)
        place = tmp_path / "table"
        spark.range(3).write.parquet(str(place))
        with pytest.raises(DataSourceError, match="cannot be made") as refused:
            run(spark, options(name))
        assert "metastore" not in str(refused.value)

    def test_a_table_that_the_catalog_has_forgotten(self, spark, options, make, send):
        """As a catalog without a metastore leaves it to the next session."""
        name = make()
        send(name, 0, 4)
        warehouse = Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:"))
        run(spark, options(name, table="forgotten"))
        shutil.copytree(warehouse / "forgotten", warehouse / "kept")
        spark.sql("drop table forgotten")
        (warehouse / "kept").rename(warehouse / "forgotten")
        with pytest.raises(DataSourceError, match=r"cannot be made.*without a metastore.*by its path"):
            run(spark, options(name, table="forgotten"))
        shutil.rmtree(warehouse / "forgotten")

    def test_records_that_are_gone(self, spark, options, make, send, admin, table):
        name = make(1)
        send(name, 0, 10, partitions=1)
        run(spark, options(name))
        send(name, 10, 10, partitions=1)
        admin.delete_records({TopicPartition(name, 0): 15})
        with pytest.raises(DataSourceError, match=r"up to offset 10, and begins at 15 now.*--accept-loss"):
            run(spark, options(name))
        run(spark, options(name, fail_on_data_loss=False))
        assert [row[5] for row in in_table(spark, table)] == [*range(10), *range(15, 20)]

    def test_a_log_that_was_cut_off(self, spark, options, make, send, monkeypatch, table):
        """As an unclean election leaves it: the log ends before the table does."""
        name = make(1)
        send(name, 0, 10, partitions=1)
        run(spark, options(name))
        asked = OffsetResolver.ends_and_epochs
        monkeypatch.setattr(OffsetResolver, "ends_and_epochs", lambda *_: ({TopicPartition(name, 0): 6}, {}))
        with pytest.raises(DataSourceError, match=r"ends at offset 6, but table .* has it up to 10"):
            run(spark, options(name))
        (went_back,) = run(spark, options(name, fail_on_data_loss=False))
        assert went_back.records == 0
        monkeypatch.setattr(OffsetResolver, "ends_and_epochs", asked)
        (again,) = run(spark, options(name))
        assert again.records == 4, "what was written since is not passed over"

    def test_a_log_that_was_cut_off_and_has_grown_again(self, spark, options, make, send, monkeypatch, table):
        """The leader of a later epoch says that the epoch of the table's offsets ended below them."""
        name = make(1)
        tp = TopicPartition(name, 0)
        send(name, 0, 10, partitions=1)
        run(spark, options(name))
        send(name, 10, 10, partitions=1)
        asked = []

        def ended(_, epochs):
            asked.append(dict(epochs))
            return {tp: 6}

        monkeypatch.setattr(truncation, "ends_of_epochs", ended)
        monkeypatch.setattr(OffsetResolver, "ends_and_epochs", lambda *_: ({tp: 20}, {tp: 7}))
        with pytest.raises(
            DataSourceError, match=r"cut off at offset 6, but table .* has it up to 10, of leader epoch 0"
        ):
            run(spark, options(name))
        assert asked == [{tp: 0}]
        (again,) = run(spark, options(name, fail_on_data_loss=False))
        assert again.records == 14
        offsets = sorted(row[5] for row in in_table(spark, table))
        assert offsets == sorted([*range(10), *range(6, 20)])
        assert run(spark, options(name)) == [], "the later epoch is known now"

    def test_of_two_first_jobs_with_different_topics_one_wins(self, spark, options, make, send):
        one, other = make(suffix="-a"), make(suffix="-b")
        send(one, 0, 4)
        send(other, 0, 4)

        def overtaken(*arguments, **more):
            outcomes = run_in_workers(*arguments, **more)
            patch.undo()
            run(spark, options(other))
            return outcomes

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(offload, "run_in_workers", overtaken)
            with pytest.raises(Overtaken):
                run(spark, options(one))

    def test_no_topic(self):
        with pytest.raises(DataSourceError, match="no topic is named"):
            OffloadOptions("127.0.0.1:1", (), RawTable("x"))


def test_a_commit_of_which_nothing_is_known_is_not_repeated(spark, cluster, table, options, make, send):
    """The driver dies between Delta's commit and the answer: the next run looks at the table."""
    name = make()
    send(name, 0, 20)
    with closing(Offload(spark, options(name))) as dying:
        next(dying.commits())
    assert run(spark, options(name)) == []
    assert in_table(spark, table) == in_log(spark, cluster, name)


def test_a_task_that_cannot_write_fails_the_job_and_leaves_nothing(spark, options, make, send, table, tmp_path):
    """The table's directory is a file by the time that a task comes to it."""
    name = make()
    send(name, 0, 20)
    run(spark, options(name))
    send(name, 20, 20)
    day = tmp_path / "table" / "day=1970-01-02"
    shutil.rmtree(day, ignore_errors=True)
    day.write_text("in the way")
    with pytest.raises(DataSourceError, match="cannot be written"):
        run(spark, options(name))
    day.unlink()
    (again,) = run(spark, options(name))
    assert again.records == 20
