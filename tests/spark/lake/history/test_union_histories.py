"""Readers of a table and a log while both change by chance: every offset once, in order, whatever the moment."""

import json
import random

import pytest
from deltalake import DeltaTable
from spark.lake.history.both_sides import Query, Scene, offsets

from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
STEPS = 40
SMALL = {"segment.bytes": "300", "file.delete.delay.ms": "0"}
"""A segment has a few records, and its file is gone as soon as all of them are deleted."""


@pytest.fixture(scope="module")
def eager(tmp_path_factory):
    """A broker that looks for old segments all the time: their files are deleted under the readers."""
    settings = {"log.retention.check.interval.ms": "50"}
    with ClusterHarness(tmp_path_factory.mktemp("eager"), settings=settings) as running:
        yield running


class History:
    """One run: what is done to a topic and its table, and what readers see meanwhile."""

    def __init__(self, scene, chance):
        self.scene, self.chance = scene, chance
        self.offloaded = [0] * scene.partitions
        self.query = self._new_query()
        self.streamed = {each: [] for each in range(scene.partitions)}
        self.last_batch = None

    def _new_query(self, checkpoint=None):
        limit = {"maxOffsetsPerTrigger": "17"} if self.chance.random() < 0.5 else {}
        return Query(self.scene, checkpoint, **limit)

    # What happens to topic and table

    def produce(self):
        for partition in range(self.scene.partitions):
            self.scene.send(self.chance.randrange(12), partition)

    def offload(self):
        self.scene.offload()
        self.offloaded = list(self.scene.sent)

    def optimize(self):
        self._table().optimize.compact()

    def vacuum(self):
        self._table().vacuum(0, dry_run=False, enforce_retention_duration=False)

    def checkpoint(self):
        self._table().create_checkpoint()

    def expire(self):
        """Retention deletes what is offloaded, up to an offset by chance."""
        for partition, end in enumerate(self.offloaded):
            self.scene.trim(self.chance.randint(0, end), partition)

    def _table(self):
        return DeltaTable(str(self.scene.table.path))

    def change(self):
        self.chance.choice(
            [self.produce, self.produce, self.offload, self.optimize, self.vacuum, self.checkpoint, self.expire]
        )()

    # What readers do

    def batch(self):
        """A batch read that other things happen to between plan and read, and in the midst of it."""
        starts = [self.chance.randint(0, each) for each in self.scene.sent]
        options = {"minPartitions": "4"} if self.chance.random() < 0.3 else {}
        wanted = json.dumps({self.scene.topic: {str(number): each for number, each in enumerate(starts)}})
        reader, sent = self.scene.reader(startingOffsets=wanted, **options), list(self.scene.sent)
        found = self._read(reader, reader.partitions())
        assert found == {number: [*range(starts[number], end)] for number, end in enumerate(sent)}

    def _read(self, reader, tasks):
        found = {each: [] for each in range(self.scene.partitions)}
        for task in tasks:
            self._sometimes_change()
            for batch in reader.read(task):
                for partition, offset in zip(batch["partition"].to_pylist(), offsets([batch]), strict=True):
                    found[partition].append(offset)
                self._sometimes_change()
        return found

    def _sometimes_change(self):
        if self.chance.random() < 0.3:
            self.change()

    def stream(self):
        """A micro-batch; sometimes the query was stopped before it, and runs its last batch again."""
        if self.chance.random() < 0.3:
            self._restart()
        start = json.loads(self.query.checkpoint)
        end = self.query.reader.latestOffset(start, self.query.reader.getDefaultReadLimit())
        self._sometimes_change()
        rows = self._micro_batch(start, end)
        for partition, found in rows.items():
            self.streamed[partition] += found
        self.query.checkpoint, self.last_batch = json.dumps(end), (start, end, rows)

    def _restart(self):
        self.query.stop()
        self.query = self._new_query(self.query.checkpoint)
        if self.last_batch is not None:
            start, end, rows = self.last_batch
            assert self._micro_batch(start, end) == rows

    def _micro_batch(self, start, end):
        return self._read(self.query.reader, self.query.reader.partitions(start, end))

    def catch_up(self):
        while any(len(self.streamed[number]) < end for number, end in enumerate(self.scene.sent)):
            self.stream()


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, 100))])
def test_every_offset_is_read_once_and_in_order(eager, topic, tmp_path, monkeypatch, seed):
    monkeypatch.setattr("sparklog.spark.lake.history.table_rows.BATCH_BYTES", 200)  # so that a task gives many batches
    chance = random.Random(seed)
    scene = Scene(eager.bootstrap_servers, topic, tmp_path / "table", partitions=2, **SMALL)
    history = History(scene, chance)
    for _ in range(STEPS):
        chance.choice([history.change, history.change, history.batch, history.stream])()
    history.catch_up()
    assert history.streamed == {number: [*range(end)] for number, end in enumerate(scene.sent)}
    assert sorted(scene.read()) == sorted(each for end in scene.sent for each in range(end))
    history.query.stop()
    scene.send(10)
    scene.trim(scene.sent[0] - 1)
    first = eager.directory.broker(0) / f"{topic}-0" / f"{0:020d}.log"
    eventually(lambda: not first.exists(), 60, "the file of what is deleted to go")
    scene.close()
