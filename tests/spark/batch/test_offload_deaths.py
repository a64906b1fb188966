"""Offloads that die at every step, two at a time, while transactions end one way or the other: the table is the log."""

import random
from contextlib import closing, suppress

import pytest

from sparklog.client import Admin, NewTopic, Producer
from sparklog.spark.batch import offload
from sparklog.spark.batch.offload import Offload, OffloadOptions
from sparklog.spark.lake.destination import Overtaken
from sparklog.spark.lake.raw_table import RawTable, RawTableIntake
from sparklog.spark.lake.table import Commit

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(900)]
STEPS = ("nothing written", "some written", "all written", "committed")
ROUNDS = 10
_FINISH = Commit.finish


class Died(Exception):
    """The job is dead: nothing more is done in its name."""


class Job:
    """One job at a time of several; ``dies_at`` is where it ends, None for one that does not."""

    def __init__(self, spark, options, dies_at, meanwhile):
        self._dies_at = dies_at
        self._meanwhile = meanwhile
        self._offload = Offload(spark, options)

    def run(self):
        """Offload once, as far as that goes."""
        with pytest.MonkeyPatch.context() as patch, closing(self._offload):
            patch.setattr(offload, "run_in_workers", self._run_tasks)
            patch.setattr(RawTableIntake, "discard", self._discard)

            def committed(commit, files, offsets):
                self._die_at("all written")
                version = _FINISH(commit, files, offsets)
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
            raise Died


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, 50))])
def test_every_record_is_in_the_table_once(spark, interpreted, delta_jars, cluster, topic, tmp_path, seed):
    del interpreted, delta_jars
    chance = random.Random(seed)
    servers, table = cluster.bootstrap_servers, str(tmp_path / "table")
    partitions = chance.choice([1, 3])
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1, {"retention.ms": "-1"})])
    options = OffloadOptions(
        servers,
        (topic,),
        RawTable(table, chance.choice([("day",), ("hour", "partition"), ()])),
        commit_bytes=4000,
        task_bytes=1500,
    )
    with (
        Producer(bootstrap_servers=servers) as plain,
        Producer(bootstrap_servers=servers, transactional_id=topic) as producer,
    ):
        producer.init_transactions()
        sent = _Sent(chance, topic, partitions)
        for _ in range(ROUNDS):
            sent.write(plain)
            producer.begin_transaction()
            sent.write(producer)

            def rival():
                if chance.random() < 0.3:
                    Job(spark, options, None, lambda: None).run()

            with suppress(Overtaken):
                Job(spark, options, chance.choice([None, *STEPS]), rival).run()
            (producer.commit_transaction if chance.random() < 0.6 else producer.abort_transaction)()
    Job(spark, options, None, lambda: None).run()
    assert _table(spark, table) == _log(spark, servers, topic)


class _Sent:
    """Makes records by chance."""

    def __init__(self, chance, topic, partitions):
        self._chance, self._topic, self._partitions = chance, topic, partitions
        self._number = 0

    def write(self, producer):
        for _ in range(self._chance.randrange(25)):
            self._number += 1
            producer.send(
                self._topic,
                self._chance.randbytes(self._chance.randrange(80)) or None,
                key=b"%d" % self._number,
                partition=self._chance.randrange(self._partitions),
                timestamp=self._chance.randrange(10**12),
            )
        producer.flush()


_COLUMNS = ("partition", "offset", "key", "value", "timestamp", "timestampType")


def _table(spark, table):
    return sorted(map(tuple, spark.read.format("delta").load(table).select(*_COLUMNS).collect()), key=repr)


def _log(spark, servers, topic):
    settings = {"kafka.bootstrap.servers": servers, "subscribe": topic, "kafka.isolation.level": "read_committed"}
    frame = spark.read.format("sparklog").options(**settings).load().select(*_COLUMNS)
    return sorted(map(tuple, frame.collect()), key=repr)
