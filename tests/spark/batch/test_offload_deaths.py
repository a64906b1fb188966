"""Offloads that die at every step, two at a time, while transactions end one way or the other: the table is the log."""

import json
import random
from contextlib import closing, suppress

import pytest
from spark.batch.offloaded import Sent, files_in_order, in_log, in_table, last_of_each_key

from sparklog.client import Admin, NewTopic, Producer
from sparklog.spark.batch import offload
from sparklog.spark.batch.offload import Offload, OffloadOptions
from sparklog.spark.lake.delta.decoded_table import DecodedTable, DecodedTableIntake
from sparklog.spark.lake.delta.raw_table import RawTable, RawTableIntake
from sparklog.spark.lake.delta.table import Commit
from sparklog.spark.lake.delta.upsert_table import UpsertTable, UpsertTableIntake
from sparklog.spark.lake.destination import Overtaken
from sparklog.spark.values.formats import ValueFormat

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(900)]
STEPS = ("nothing written", "some written", "all written", "committed")
_FINISH = Commit.finish


class Died(Exception):
    """The job is dead: nothing more is done in its name."""


class Job:
    """One job at a time of several; ``dies_at`` is where it ends, None for one that does not."""

    def __init__(self, spark, options, dies_at, meanwhile, survives=0):
        """``survives``: so often it is spared at the step where it is to die."""
        self._dies_at = dies_at
        self._survives = survives
        self._meanwhile = meanwhile
        self._offload = Offload(spark, options)

    def run(self):
        """Offload once, as far as that goes."""
        with pytest.MonkeyPatch.context() as patch, closing(self._offload):
            patch.setattr(offload, "run_in_workers", self._run_tasks)
            for intake in (RawTableIntake, DecodedTableIntake, UpsertTableIntake):
                patch.setattr(intake, "discard", self._discard)

            def committed(*arguments):
                self._die_at("all written")
                version = _FINISH(*arguments)
                self._die_at("committed")
                return version

            patch.setattr(Commit, "finish", committed)
            with suppress(Died):
                for _ in self._offload.commits():
                    pass

    def _run_tasks(self, _, tasks, begin, **__):
        self._die_at("nothing written")
        outcomes = []
        for task in tasks:
            outcomes.append(begin()(task))
            begin()(task)  # an attempt that Spark made twice
            self._die_at("some written")
        self._meanwhile()
        return outcomes

    def _discard(self, *_):
        """The dead remove nothing, and the living need not."""

    def _die_at(self, step):
        if step == self._dies_at:
            if not self._survives:
                raise Died
            self._survives -= 1


SEEDS = [(0, 4), *(pytest.param(each, 10, marks=pytest.mark.slow) for each in range(50))]
"""And how many rounds each of them has."""


@pytest.mark.parametrize(("seed", "rounds"), SEEDS)
def test_every_record_is_in_the_table_once(spark, interpreted, delta_jars, cluster, topic, tmp_path, seed, rounds):
    del interpreted, delta_jars
    chance = random.Random(seed)
    servers, table = cluster.bootstrap_servers, str(tmp_path / "table")
    partitions = chance.choice([1, 3])
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1, {"retention.ms": "-1"})])
    target = RawTable(table, chance.choice([("day",), ("hour", "partition"), ()]))
    options = OffloadOptions(servers, (topic,), target, commit_bytes=4000, task_bytes=1500)
    sent = Sent(chance, topic, partitions)
    _offload_and_die(spark, options, chance, rounds, sent, lambda: None)
    assert in_table(spark, table) == in_log(spark, servers, topic)
    assert files_in_order(spark, table)


@pytest.mark.parametrize(("seed", "rounds"), SEEDS)
def test_the_table_has_the_last_of_each_key(spark, interpreted, delta_jars, cluster, topic, tmp_path, seed, rounds):
    """Keys come again and again, and somebody else changes the table meanwhile."""
    del interpreted, delta_jars
    chance = random.Random(seed)
    servers, table = cluster.bootstrap_servers, str(tmp_path / "table")
    partitions = chance.choice([1, 3])
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1, {"retention.ms": "-1"})])
    target = UpsertTable(table, file_bytes=chance.choice([2000, 1 << 20]), key_bytes=chance.choice([500, 1 << 20]))
    options = OffloadOptions(servers, (topic,), target, commit_bytes=4000)

    def somebody():
        if chance.random() < 0.3:
            spark.sql(chance.choice([f"optimize delta.`{table}`", f"update delta.`{table}` set offset = offset"]))

    _offload_and_die(spark, options, chance, rounds, Sent(chance, topic, partitions, keys=20), somebody)
    assert in_table(spark, table) == last_of_each_key(in_log(spark, servers, topic))


def _offload_and_die(spark, options, chance, rounds, sent, somebody):
    """Rounds of records, half of them of transactions, with a job each that may die; the last one does not."""
    servers, (topic,) = options.bootstrap_servers, options.topics
    with (
        Producer(bootstrap_servers=servers) as plain,
        Producer(bootstrap_servers=servers, transactional_id=topic) as producer,
    ):
        producer.init_transactions()
        for _ in range(rounds):
            sent.write(plain)
            producer.begin_transaction()
            sent.write(producer)

            def rival():
                if chance.random() < 0.3:
                    Job(spark, options, None, lambda: None).run()
                else:
                    somebody()

            with suppress(Overtaken):
                Job(spark, options, chance.choice([None, *STEPS]), rival).run()
            (producer.commit_transaction if chance.random() < 0.6 else producer.abort_transaction)()
    Job(spark, options, None, lambda: None).run()


NARROW = "n BIGINT NOT NULL, t STRING"
WIDE = f"{NARROW}, more STRUCT<x: INT>"


@pytest.mark.parametrize(("seed", "rounds"), SEEDS)
def test_each_record_is_a_row_or_a_dead_letter(spark, interpreted, delta_jars, cluster, topic, tmp_path, seed, rounds):
    del interpreted, delta_jars
    chance = random.Random(seed)
    servers, table, dead = cluster.bootstrap_servers, str(tmp_path / "table"), str(tmp_path / "dead")
    partitions = chance.choice([1, 3])
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1, {"retention.ms": "-1"})])

    def options(schema):
        layout = {"evolve": True, "dead_letters": dead, "partition_by": ("partition",)}
        target = DecodedTable(table, ValueFormat("json", schema), **layout)
        return OffloadOptions(servers, (topic,), target, commit_bytes=chance.choice([800, 4000]), task_bytes=1500)

    evolves = chance.randrange(rounds // 2)
    with Producer(bootstrap_servers=servers) as producer:
        sent = Sent(chance, topic, partitions, _click)
        for number in range(rounds // 2):
            schema = NARROW if number < evolves else WIDE
            sent.write(producer)

            def rival(schema=schema):
                if chance.random() < 0.3:
                    sent.write(producer)
                    Job(spark, options(schema), None, lambda: None).run()

            with suppress(Overtaken):
                dies_at = chance.choice([None, *STEPS])
                Job(spark, options(schema), dies_at, rival, survives=chance.randrange(3)).run()
    Job(spark, options(WIDE), None, lambda: None).run()
    rows, letters = _decoded(in_log(spark, servers, topic))
    assert _rows(spark, table, "n", "t") == rows
    assert _rows(spark, dead, "key", "value") == letters


def _click(chance):
    """A value by chance: one that decodes, one that does not, or none."""
    kind = chance.randrange(4)
    if kind == 0:
        return None
    return b'{"n":%d' % chance.randrange(99) + (
        b"" if kind == 1 else b',"t":"x","more":{"x":1}}' if kind == 2 else b"}"
    )


def _decoded(log):
    """What rows and dead letters are to be made of the log."""
    rows, letters = [], []
    for partition, offset, key, value, *_ in sorted(log, key=lambda row: (row[0], row[1])):
        try:
            fields = {} if value is None else json.loads(value)
            rows.append((partition, offset, fields.get("n"), fields.get("t")))
        except ValueError:
            letters.append((partition, offset, key, value))
    return rows, letters


def _rows(spark, table, *columns):
    found = spark.read.format("delta").load(table).select("partition", "offset", *columns).collect()
    return sorted(map(tuple, found), key=lambda row: (row[0], row[1]))
