"""Upserts into real Delta tables, from a real broker: the table is the dictionary of the log's last records."""

import random
from contextlib import contextmanager

import pytest

from sparklog.client import NewTopic, Producer
from sparklog.errors import DataSourceError
from sparklog.spark.batch import offload
from sparklog.spark.batch.offload import OffloadOptions, run
from sparklog.spark.batch.workers import run_in_workers
from sparklog.spark.lake.delta.raw_table import RawTable
from sparklog.spark.lake.delta.upsert_table import UpsertTable
from sparklog.spark.lake.destination import Changed, Overtaken

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(600)]
COLUMNS = ("partition", "key", "offset", "value", "headers", "timestamp", "timestampType", "topic")


@pytest.fixture(autouse=True)
def _few_rows(interpreted, delta_jars):
    """The queries here are of a few rows, and need Delta."""


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "table")


@pytest.fixture
def name(admin, topic):
    """A topic of two partitions, whose records may be years old."""
    admin.create_topics([NewTopic(topic, 2, 1, {"retention.ms": "-1"})])
    return topic


@pytest.fixture
def producer(cluster):
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as found:
        yield found


@pytest.fixture
def send(producer, name):
    """``send([(key, value)...])``: each to the partition of its key."""

    def sent(changes, partitions=2):
        for number, (key, value) in enumerate(changes):
            producer.send(
                name,
                value,
                key=b"%d" % key,
                partition=key % partitions,
                timestamp=number * 1000,
                headers=[("number", b"%d" % number)] if number % 2 else [],
            )
        producer.flush()

    return sent


@pytest.fixture
def options(cluster, name, place):
    def chosen(target=None, **more):
        return OffloadOptions(cluster.bootstrap_servers, (name,), target or UpsertTable(place), **more)

    return chosen


@pytest.fixture
def same(spark, cluster, name, place):
    """``same()``: the table has what the log says in the end."""

    def compared(without=()):
        settings = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.isolation.level": "read_committed"}
        log = spark.read.format("sparklog").options(subscribe=name, includeHeaders="true", **settings).load()
        last = {row.asDict()["key"]: row for row in _rows(log.where("key is not null"))}
        expected = [row for row in last.values() if row.value is not None and int(row.key) not in without]
        assert _rows(spark.read.format("delta").load(place)) == sorted(expected, key=_order)

    return compared


def _rows(frame):
    return sorted(frame.select(*COLUMNS).collect(), key=_order)


def _order(row):
    return (row.partition, row.offset)


@contextmanager
def meanwhile(act):
    """Once, between the tasks' work and the commit, ``act()`` happens."""

    def then_act(*arguments, **more):
        outcomes = run_in_workers(*arguments, **more)
        patch.undo()
        act()
        return outcomes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offload, "run_in_workers", then_act)
        yield


def changes(seed, count, keys=40):
    chance = random.Random(seed)
    return [
        (chance.randrange(keys), None if chance.random() < 0.3 else chance.randbytes(chance.randrange(60)))
        for _ in range(count)
    ]


def test_the_table_is_the_dictionary_commit_by_commit(spark, place, name, options, send, same):
    send(changes(0, 200))
    first = run(spark, options(commit_bytes=6000))
    assert len(first) > 1
    assert sum(each.records for each in first) == 200
    same()
    send(changes(1, 100))
    (second,) = run(spark, options())
    assert second.records == 100
    same()
    assert run(spark, options()) == []
    (told,) = spark.sql(f"describe history delta.`{place}` limit 1").select("operation", "userMetadata").collect()
    assert told.operation == "STREAMING UPDATE"
    assert name in told.userMetadata


@pytest.mark.slow  # test_offload_deaths has it by chance
def test_a_table_that_delta_s_own_commands_look_after(spark, place, options, send, same):
    """OPTIMIZE writes files by Spark's writer; rows that are deleted by hand stay away until their keys come again."""
    apart = options(UpsertTable(place, file_bytes=1))
    send([(key, b"old") for key in range(40)])
    run(spark, apart)
    send([(key, b"new") for key in range(40, 44)])
    run(spark, apart)
    optimized = spark.sql(f"optimize delta.`{place}`").first().metrics
    assert (optimized.numFilesAdded, optimized.numFilesRemoved) == (2, 4)
    send([(3, b"other"), (40, None), (41, b"more")])
    run(spark, options())
    same()
    spark.sql(f"delete from delta.`{place}` where key in (X'35', X'36')")
    same(without={5, 6})
    send([(5, b"again")])
    run(spark, options())
    same(without={6})


@pytest.mark.slow  # test_offload_deaths has it by chance
def test_a_table_that_is_changed_meanwhile_is_begun_from_again(spark, place, options, send, monkeypatch, caplog):
    send([(key, b"1") for key in range(10)])
    run(spark, options())
    send([(7, b"last"), (8, None)])
    with meanwhile(lambda: spark.sql(f"delete from delta.`{place}` where key = X'31'")), monkeypatch.context() as patch:
        patch.setattr(offload, "_MOST_CHANGES", 0)
        with pytest.raises(Changed, match="was changed while rows were written for it"):
            run(spark, options())
    with meanwhile(lambda: spark.sql(f"delete from delta.`{place}` where partition = 1")):
        (again,) = run(spark, options())
    assert again.records == 2
    assert "was changed while rows were written for it" in caplog.text
    assert "beginning again" in caplog.text
    found = _rows(spark.read.format("delta").load(place))
    assert [row.key for row in found if row.partition == 1] == [b"7"]


@pytest.mark.slow  # as in test_offload.py, to whose commits this table adds nothing
def test_of_two_jobs_one_wins(spark, options, send, same):
    send(changes(0, 50))
    run(spark, options())
    send(changes(1, 50))
    with meanwhile(lambda: run(spark, options())), pytest.raises(Overtaken):
        run(spark, options())
    same()


def test_aborted_and_undecided_records_replace_nothing(spark, cluster, options, send, same, name):
    send([(0, b"kept"), (2, b"deleted"), (4, b"stays")])
    settings = {"transactional_id": name, "transaction_timeout_ms": 900_000}
    with Producer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
        producer.init_transactions()
        for value, decide in ((b"new", producer.commit_transaction), (b"gone", producer.abort_transaction)):
            producer.begin_transaction()
            producer.send(name, value, key=b"0", partition=0)
            producer.send(name, None, key=b"2" if value == b"new" else b"4", partition=0)
            decide()
        producer.begin_transaction()
        producer.send(name, b"later", key=b"4", partition=0)
        producer.flush()
        run(spark, options())
        same()
        producer.commit_transaction()
    run(spark, options())
    same()


def test_records_without_a_key(spark, options, send, same, place, name, producer, caplog):
    send([(0, b"one")])
    producer.send(name, b"nobody's", partition=0)
    producer.flush()
    with pytest.raises(DataSourceError, match=rf"partition {name}-0 at offset 1 has no key.*\(--skip-keyless\)"):
        run(spark, options())
    (only,) = run(spark, options(UpsertTable(place, skip_keyless=True)))
    assert only.records == 1
    assert "1 records have no key" in caplog.text
    same()


def test_a_topic_that_gets_more_partitions(spark, options, send, same, place, name, admin):
    send(changes(0, 20))
    run(spark, options())
    admin.create_partitions({name: 3})
    send([(0, b"still here"), (2, b"moved")], partitions=3)
    with pytest.raises(DataSourceError, match=r"has 3 partitions now, and had 2.*\(--accept-partitions\)"):
        run(spark, options())
    run(spark, options(UpsertTable(place, more_partitions=True)))
    assert run(spark, options()) == []
    send([(1, b"known now")], partitions=3)
    assert len(run(spark, options())) == 1


class TestRefusals:
    def test_a_row_that_somebody_wrote(self, spark, options, send, place, name):
        send([(0, b"1"), (0, b"2")])
        run(spark, options())
        send([(0, b"3")])
        spark.sql(
            f"insert into delta.`{place}` (key, value, topic, partition, offset) values (X'30', X'31', '{name}', 0, 0)"
        )
        with pytest.raises(DataSourceError, match="key b'0' is in it twice"):
            run(spark, options())
        assert [row.value for row in _rows(spark.read.format("delta").load(place))] == [b"1", b"2"]

    @pytest.mark.parametrize(
        ("partitioned", "properties", "why"),
        [
            ("topic, partition", {}, "it was not made for upserts: name another table"),
            ("partition", {"sparklog.upsert": "true"}, "partitioned by partition, not by topic and partition"),
            ("topic, partition", {"sparklog.upsert": "true", "delta.appendOnly": "true"}, "appends only"),
            (
                "topic, partition",
                {"sparklog.upsert": "true", "delta.enableDeletionVectors": "true"},
                "it has deletion vectors",
            ),
        ],
    )
    def test_a_table_that_does_not_suit(self, spark, options, send, place, partitioned, properties, why):
        send([(0, b"1")])
        told = ", ".join(f"'{key}' = '{value}'" for key, value in {"by": "hand", **properties}.items())
        spark.sql(
            f"create table delta.`{place}` (key binary, value binary, topic string, partition int, offset bigint)"
            f" using delta partitioned by ({partitioned}) tblproperties ({told})"
        )
        with pytest.raises(DataSourceError, match=why):
            run(spark, options())

    def test_an_upserted_table_is_not_appended_to(self, spark, options, send, place):
        send([(0, b"1")])
        run(spark, options())
        with pytest.raises(DataSourceError, match=r"it has the last record of each key.*--upsert.*another table"):
            run(spark, options(RawTable(place)))
