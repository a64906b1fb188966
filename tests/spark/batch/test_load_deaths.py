"""Loads that die at every step, and are run again by others: in the end every row is there once, whatever the way."""

import random
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.client import Admin, Consumer, NewTopic
from sparklog.spark.batch import load
from sparklog.spark.batch.load import LoadOptions, run
from sparklog.spark.batch.sources import Source
from sparklog.structs import TopicPartition

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(900)]
PARTITIONS, ROWS, MOST_DEATHS = 2, 60, 4
STEPS = ("begun", "marked first", "built", "adopted some", "adopted", "marked again", "committed")


class Died(BaseException):
    """The job is dead: nothing more is done in its name."""


class Job:
    """A run that ends at a step; at ``None`` it does not."""

    def __init__(self, dies_at):
        self._dies_at = dies_at

    def run(self, spark, options):
        with pytest.MonkeyPatch.context() as patch, suppress(Died):
            self._wrap(patch, "_job", before="begun")
            for name in ("_build", "_build_stretches"):
                self._wrap(patch, name, after="built")
            self._wrap(patch, "_adopt_some", after="adopted some")
            self._wrap(patch, "_adopt", after="adopted")
            self._wrap(patch, "_commit", after="committed")
            add, marks = Admin.add_offsets, iter(("marked first", "marked again"))

            def add_offsets(*arguments):
                add(*arguments)
                self._die(next(marks))

            patch.setattr(Admin, "add_offsets", add_offsets)
            patch.setattr(load._Load, "_take_back", lambda *_: None)
            patch.setattr(load, "_as_told", _unless_dead(load._as_told))
            return run(spark, options)

    def _wrap(self, patch, name, before=None, after=None):
        real = getattr(load._Load, name)

        def stepped(*arguments):
            self._die(before)
            outcome = real(*arguments)
            self._die(after)
            return outcome

        patch.setattr(load._Load, name, stepped)

    def _die(self, step):
        if step is not None and step == self._dies_at:
            raise Died


def _unless_dead(told):
    return lambda error, name: error if isinstance(error, Died) else told(error, name)


@pytest.fixture
def source(tmp_path):
    for part in range(2):
        numbers = range(part, ROWS, 2)
        columns = {"k": [b"k%d" % number for number in numbers], "v": [b"%d" % number for number in numbers]}
        columns["at"] = pa.array([1000 + number for number in numbers], pa.int64())
        pq.write_table(pa.table(columns), tmp_path / f"{part}.parquet", row_group_size=10)
    return Path(tmp_path)


def read(cluster, topic, isolation="read_committed"):
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": isolation}
    with Consumer(settings | {"auto.offset.reset": "earliest"}) as consumer:
        tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(tps)
        ends, found = consumer.end_offsets(tps), []
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            found += [(each.key, each.value, each.timestamp) for each in consumer.poll(0.2)]
        return sorted(found)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed else []) for seed in range(50)])
def test_every_row_once(spark, interpreted, cluster, topic, source, seed):
    draw = random.Random(seed)
    expected = sorted((b"k%d" % number, b"%d" % number, 1000 + number) for number in range(ROWS))
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1, {"retention.ms": "-1", "segment.bytes": "2048"})])
    columns = Source(str(source), "parquet", "k", "v", "at", keep_order=draw.random() < 0.5)
    via = draw.choice(["adopt", "adopt", "produce"])
    options = LoadOptions(cluster.bootstrap_servers, topic, columns, topic, via=via)
    deaths = [draw.choice(STEPS) for _ in range(draw.randint(1, MOST_DEATHS))]
    is_there = False
    for step in (*deaths, None):
        Job(step).run(spark, options)
        is_there = is_there or step in ("committed", None)
        assert read(cluster, topic) == (expected if is_there else []), (step, via)
    assert run(spark, options).was_done
    assert read(cluster, topic) == expected
