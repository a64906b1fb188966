"""Tables that have the fields of the values as columns, made by the job from a real broker's logs."""

import json
import os
import shutil
from contextlib import closing
from dataclasses import replace

import pytest

from sparklog.client import Admin, NewTopic, Producer
from sparklog.errors import DataSourceError
from sparklog.spark.batch.offload import Offload, OffloadOptions, run
from sparklog.spark.batch.offload_groups import OffloadGroups
from sparklog.spark.lake.delta.decoded_table import DecodedTable
from sparklog.spark.lake.delta.decoded_upsert_table import DecodedUpsertTable
from sparklog.spark.lake.delta.maintenance import Maintenance
from sparklog.spark.lake.delta.raw_table import RawTable
from sparklog.spark.lake.delta.table import Commit
from sparklog.spark.lake.destination import Overtaken
from sparklog.spark.values.formats import ValueFormat

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(600)]
CLICK = "n BIGINT NOT NULL, kind STRING, at STRUCT<x: INT>, price DOUBLE"
FINISH = Commit.finish


@pytest.fixture(autouse=True)
def _few_rows(interpreted, delta_jars):
    """The queries here are of a few rows, and need Delta."""


@pytest.fixture
def home(tmp_path):
    return tmp_path


@pytest.fixture
def make(cluster, topic):
    def made(partitions=1):
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(topic, partitions, 1)])
        return topic

    return made


@pytest.fixture
def decoded(cluster, home):
    """``decoded(topic, schema, ...)``: options of an offload to one table, and its dead letters beside it."""

    def chosen(topic, schema=CLICK, commit_bytes=1 << 30, **more):
        settings = {"dead_letters": str(home / "dead"), "partition_by": ()} | more
        target = DecodedTable(str(home / "table"), ValueFormat("json", schema), **settings)
        return OffloadOptions(cluster.bootstrap_servers, (topic,), target, commit_bytes=commit_bytes)

    return chosen


@pytest.fixture
def send(cluster):
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:

        def sent(topic, *values, partition=0):
            for value in values:
                producer.send(topic, value, key=b"key", partition=partition)
            producer.flush()

        yield sent


def click(n, **more):
    return json.dumps({"n": n, "kind": "k" * (int(n) % 3), "at": {"x": n}, "price": int(n) / 2} | more).encode()


def table(spark, home, name="table"):
    return spark.read.format("delta").load(str(home / name))


def offsets(spark, home, name="table"):
    return sorted(
        (row.partition, row.offset) for row in table(spark, home, name).select("partition", "offset").collect()
    )


def test_fields_are_columns_and_what_does_not_decode_is_a_dead_letter(spark, home, make, send, decoded):
    name = make(2)
    send(name, click(0), b"", None, click("3"))
    send(name, click(4), b"\xff", partition=1)
    (commit,) = run(spark, decoded(name, partition_by=("kind",), extra=("headers",), key_format="string"))
    assert (commit.records, commit.behind) == (6, 0)
    found = table(spark, home)
    assert found.columns == ["key", "n", "kind", "at", "price", "topic", "partition", "offset", "timestamp", "headers"]
    rows = {(row.partition, row.offset): row for row in found.collect()}
    assert sorted(rows) == [(0, 0), (0, 2), (1, 0)]
    first, tombstone, last = (rows[each] for each in sorted(rows))
    assert (first.key, first.n, first["at"].x, first.price, first.topic) == ("key", 0, 0, 0.0, name)
    assert (tombstone.n, tombstone["at"], tombstone.kind) == (None, None, None)
    assert (last.n, last.kind) == (4, "k")
    dead = {(row.partition, row.offset): row for row in table(spark, home, "dead").collect()}
    assert {at: row.reason for at, row in dead.items()} == {
        (0, 1): "it is not JSON: Expecting value, at character 0",
        (0, 3): "it is not of the schema: n is not bigint",
        (1, 1): "it is not UTF-8, from byte 0 on",
    }
    assert (dead[0, 3].key, dead[0, 3].value) == (b"key", click("3"))
    assert found.where("n >= 4").count() == 1
    assert len(found.where("n >= 4").inputFiles()) == 1  # by the statistics
    assert run(spark, decoded(name, key_format="string")) == []


@pytest.mark.parametrize("is_upserted", [False, True])
def test_brokers_are_told_once_the_commits_of_both_tables_are_on_the_disk(
    spark, home, make, send, decoded, monkeypatch, is_upserted
):
    """Whoever made them: that job may have died before it had synced them."""
    name = make()
    send(name, click(1), b"{")
    options = decoded(name)
    if is_upserted:
        target = DecodedUpsertTable(options.target.name, options.target.values, dead_letters=str(home / "dead"))
        options = replace(options, target=target)
    run(spark, options)
    synced, told, sync = [], [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), sync(fd)))
    monkeypatch.setattr(OffloadGroups, "commit", lambda *_: told.append(list(synced)))
    run(spark, options)
    for each in ("table", "dead"):
        assert {str(home / each / "_delta_log" / f"{version:020d}.json") for version in (0, 1)} <= set(told[0])


def test_without_dead_letters_nothing_of_the_commit_is_in_the_table(spark, home, make, send, decoded):
    name = make()
    send(name, click(0), b"{}", click(2))
    with pytest.raises(DataSourceError, match=rf"topic {name}, partition 0, offset 1: it has no n\. Name a table"):
        run(spark, decoded(name, dead_letters=None))
    assert offsets(spark, home) == []
    run(spark, decoded(name))
    assert (offsets(spark, home), offsets(spark, home, "dead")) == ([(0, 0), (0, 2)], [(0, 1)])


def test_a_schema_may_have_more_fields_if_it_is_said(spark, home, make, send, decoded):
    name = make()
    send(name, click(0, more="x"))
    run(spark, decoded(name))
    send(name, click(1, more="x"))
    wider = f"{CLICK.replace('x: INT', 'x: INT, y: INT')}, more STRING"
    with pytest.raises(DataSourceError, match=r"has no column at\.y int, more string of the schema; say --evolve"):
        run(spark, decoded(name, wider))
    (commit,) = run(spark, decoded(name, wider, evolve=True))
    found = table(spark, home)
    assert [(row.n, row["at"].y, row.more) for row in found.orderBy("n").collect()] == [(0, None, None), (1, None, "x")]
    assert commit.version == 2  # the columns came with the rows
    send(name, click(2, price="cheap"))
    for schema, told in [
        (wider.replace("price DOUBLE", "price STRING"), "column price is double in the table and string in the schema"),
        (CLICK, "column more of the table is neither one of the log nor in the schema"),
        (wider.replace("more", "other"), "column more of the table is neither one of the log nor in the schema"),
    ]:
        with pytest.raises(DataSourceError, match=told):
            run(spark, decoded(name, schema, evolve=True))
    assert table(spark, home).count() == 2


@pytest.mark.slow  # test_offload_deaths has it by chance
def test_two_jobs_between_the_two_commits(spark, monkeypatch, home, make, send, decoded):
    name = make()
    send(name, b"bad", click(1))
    late = Offload(spark, decoded(name))

    def another_goes_on(commit, files, ends):
        version = FINISH(commit, files, ends)
        monkeypatch.setattr(Commit, "finish", FINISH)
        send(name, b"bad", click(3))
        run(spark, decoded(name))
        return version

    monkeypatch.setattr(Commit, "finish", another_goes_on)  # the first: of the dead letters
    with closing(late), pytest.raises(Overtaken):
        list(late.commits())
    assert (offsets(spark, home), offsets(spark, home, "dead")) == ([(0, 1), (0, 3)], [(0, 0), (0, 2)])


def test_dead_letters_belong_to_one_table(spark, home, make, send, decoded):
    name = make()
    send(name, b"bad", click(1))
    run(spark, decoded(name))
    shutil.rmtree(home / "table")
    with pytest.raises(DataSourceError, match="it has the dead letters of table"):
        run(spark, decoded(name))
    spark.sql(f"alter table delta.`{home / 'dead'}` unset tblproperties ('sparklog.deadLetters.of')")
    with pytest.raises(DataSourceError, match="it is not a table of dead letters"):
        run(spark, decoded(name))
    with pytest.raises(DataSourceError, match="share a directory, and VACUUM of"):
        decoded(name, dead_letters=str(home / "table" / "dead"))


@pytest.mark.slow  # OPTIMIZE takes its time
def test_small_files_are_merged_as_it_goes(spark, home, make, send, cluster):
    name = make(2)
    layout = RawTable(str(home / "table"), ("partition",), maintenance=Maintenance(merge_files=2))
    options = OffloadOptions(cluster.bootstrap_servers, (name,), layout)
    with closing(Offload(spark, options)) as offload:
        for number in range(4):
            send(name, b"%d" % number, partition=number == 1)
            list(offload.commits())
    found = table(spark, home)
    assert sorted(bytes(row.value) for row in found.collect()) == [b"0", b"1", b"2", b"3"]
    assert len(found.inputFiles()) == 2  # of the other partition there is but one
    assert run(spark, options) == []


@pytest.mark.slow
def test_old_files_are_removed(spark, home, make, send, cluster):
    name = make()
    maintenance = Maintenance(merge_files=1, vacuum_s=3600, is_vacuum_unsafe=True)
    options = OffloadOptions(
        cluster.bootstrap_servers, (name,), RawTable(str(home / "table"), (), maintenance=maintenance)
    )
    send(name, b"0")
    run(spark, options)
    left = home / "table" / "part-left.parquet"
    left.write_bytes(b"of a job that died")
    os.utime(left, (0, 0))
    send(name, b"1")
    run(spark, options)
    assert not left.exists()
    assert len(table(spark, home).collect()) == 2
    history = spark.sql(f"DESCRIBE HISTORY delta.`{home / 'table'}`").select("operation").collect()
    assert {"OPTIMIZE", "VACUUM END"} <= {row.operation for row in history}


@pytest.mark.slow
def test_a_vacuum_removes_nothing_that_the_table_has(spark, home, make, send, decoded):
    kinds = ["a b", " 50% ", "a/b:c=d", "%2F", "ü😀\u2028", "o'\"\\c", "nl\nx\0\x7f", "..", "{+#?*[~]}", "x" * 200, ""]
    name = make()
    send(name, *(json.dumps({"n": n, "kind": kind}).encode() for n, kind in enumerate(kinds)), b'{"n": 11}')
    everything = Maintenance(vacuum_s=0.0, is_vacuum_unsafe=True)
    run(spark, decoded(name, schema="n BIGINT, kind STRING", partition_by=("kind",), maintenance=everything))
    history = spark.sql(f"DESCRIBE HISTORY delta.`{home / 'table'}`").select("operation").collect()
    assert "VACUUM END" in {row.operation for row in history}
    rows = [(row.n, row.kind) for row in table(spark, home).collect()]
    assert sorted(rows) == [(n, kind or None) for n, kind in enumerate([*kinds, None])]


def test_a_vacuum_below_the_limit_is_refused(spark, home, make, send, cluster):
    name = make()
    send(name, b"x")
    options = OffloadOptions(
        cluster.bootstrap_servers, (name,), RawTable(str(home / "table"), maintenance=Maintenance(vacuum_s=86_400.0))
    )
    with pytest.raises(
        DataSourceError, match=r"a vacuum of 1 days would remove files .* keeps them 7 days .*--unsafe-vacuum"
    ):
        run(spark, options)
