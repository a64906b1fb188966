"""Tables of the last decoded value of each key, made by the job from a real broker's logs."""

import json
import random

import pytest

from sparklog.client import NewTopic, Producer
from sparklog.errors import DataSourceError
from sparklog.spark.batch.offload import OffloadOptions, run
from sparklog.spark.lake.delta.decoded_upsert_table import DecodedUpsertTable
from sparklog.spark.lake.delta.table import Commit
from sparklog.spark.lake.destination import Overtaken
from sparklog.spark.values.formats import ValueFormat

VALUE = "n BIGINT NOT NULL, at STRUCT<x: INT, y: STRING>"


def test_what_no_table_has():
    values = ValueFormat("json", VALUE)
    with pytest.raises(DataSourceError, match="partitioned by topic, partition, not by day"):
        DecodedUpsertTable("/t", values, partition_by=("day",))
    with pytest.raises(DataSourceError, match="keys are binary or string"):
        DecodedUpsertTable("/t", values, key_format="json")


@pytest.mark.spark
@pytest.mark.integration
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("interpreted", "delta_jars")
class TestByTheJob:
    @pytest.fixture
    def name(self, admin, topic):
        admin.create_topics([NewTopic(topic, 2, 1, {"retention.ms": "-1"})])
        return topic

    @pytest.fixture
    def send(self, cluster, name):
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:

            def sent(changes):
                for key, value in changes:
                    producer.send(name, value, key=b"%d" % key, partition=key % 2)
                producer.flush()

            yield sent

    @pytest.fixture
    def upsert(self, spark, cluster, name, tmp_path):
        def done(schema=VALUE, commit_bytes=1 << 30, **settings):
            settings = {"dead_letters": str(tmp_path / "dead"), "key_format": "string"} | settings
            target = DecodedUpsertTable(str(tmp_path / "table"), ValueFormat("json", schema), **settings)
            return run(spark, OffloadOptions(cluster.bootstrap_servers, (name,), target, commit_bytes=commit_bytes))

        return done

    @pytest.fixture
    def rows(self, spark, tmp_path):
        def found():
            return {int(row.key): row for row in spark.read.format("delta").load(str(tmp_path / "table")).collect()}

        return found

    def test_the_table_is_the_dictionary_of_what_decodes(self, spark, tmp_path, send, upsert, rows):
        chance = random.Random(3)
        expected, dead = {}, 0
        for commit_bytes in (1 << 30, 3000, 1 << 30):
            changes = []
            for number in range(150):
                key, kind = chance.randrange(30), chance.random()
                value = b"bad" if kind < 0.1 else None if kind < 0.3 else _value(number)
                changes.append((key, value))
                dead += value == b"bad"
                if value is None:
                    expected.pop(key, None)
                elif value != b"bad":
                    expected[key] = number
            send(changes)
            assert sum(each.records for each in upsert(commit_bytes=commit_bytes, file_bytes=2000)) == 150
            assert {key: row.n for key, row in rows().items()} == expected
        assert all(row["at"].x == row.n and row["at"].y == "why" for row in rows().values())
        assert spark.read.format("delta").load(str(tmp_path / "dead")).count() == dead
        assert upsert() == []

    @pytest.mark.slow  # test_offload_deaths has it by chance
    def test_a_job_that_died_between_the_two_commits(self, spark, monkeypatch, tmp_path, send, upsert, rows):
        send([(0, _value(1)), (2, _value(2)), (0, b"bad"), (1, b"bad"), (2, None)])
        finish = Commit.finish

        def dies(commit, files, offsets, removed=()):
            if any("table" in each for each in [commit.table.location.rsplit("/", 1)[-1]]):
                raise Overtaken("SPARKLOG_OVERTAKEN", "as if killed")
            return finish(commit, files, offsets, removed)

        monkeypatch.setattr(Commit, "finish", dies)
        with pytest.raises(Overtaken):
            upsert()
        monkeypatch.undo()
        assert rows() == {}
        upsert()
        assert {key: row.n for key, row in rows().items()} == {0: 1}
        assert spark.read.format("delta").load(str(tmp_path / "dead")).count() == 2

    def test_a_schema_that_evolves_keeps_the_rows_that_stay(self, send, upsert, rows):
        send([(0, _value(0)), (2, _value(2)), (4, _value(4))])
        upsert(extra=("value",))
        send([(0, json.dumps({"at": {"z": 1.5, "y": "new", "x": 9}, "n": 7, "more": "m"}).encode()), (4, None)])
        wider = "more STRING, at STRUCT<z: DOUBLE, x: INT, y: STRING>, n BIGINT"
        with pytest.raises(DataSourceError, match="say --evolve"):
            upsert(wider)
        upsert(wider, evolve=True)
        found = rows()
        assert {key: (row.n, row.more) for key, row in found.items()} == {0: (7, "m"), 2: (2, None)}
        assert (found[0]["at"].z, found[0]["at"].x, found[2]["at"].z, found[2]["at"].x) == (1.5, 9, None, 2)
        assert json.loads(found[0].value)["more"] == "m"

    def test_without_dead_letters_the_record_is_named(self, name, send, upsert, rows):
        send([(0, _value(0)), (0, b"{}")])
        with pytest.raises(DataSourceError, match=rf"topic {name}, partition 0, offset 1: it has no n"):
            upsert(dead_letters=None)
        assert rows() == {}


def _value(number):
    return json.dumps({"n": number, "at": {"x": number, "y": "why"}}).encode()
