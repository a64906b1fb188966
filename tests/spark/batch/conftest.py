"""Fixtures: a broker with logs made by seed, each in two topics: one for the job, one for the broker's own worker."""

import shutil
from pathlib import Path

import pytest
from compaction.dump import dump
from compaction.logs import LogWriter

from sparklog.client import Admin, NewTopic
from sparklog.record.layout import CONTROL_BIT
from sparklog.testing.cluster import ClusterHarness

SEEDS = range(8)
_KEPT = ("partition.metadata",)
_LEFT = {"min.compaction.lag.ms": "0", "message.timestamp.type": "CreateTime"}


class Logs:
    """A cluster of one broker that cleans nothing unless it is asked."""

    def __init__(self, harness, home):
        self.harness = harness
        self.home = home
        self.servers = harness.bootstrap_servers

    def directory(self, topic, partition=0):
        return self.home / f"{topic}-{partition}"

    def facts(self, topic):
        """The log of a topic, without the delete horizons' dates, which are of different moments."""
        found = dump(self.directory(topic))
        segments = tuple(each._replace(batches=tuple(map(_undated, each.batches))) for each in found.segments)
        segments = (*segments[:-1], segments[-1]._replace(modified_ms=0))  # the active one was made at another moment
        return found._replace(segments=segments)

    def table(self, topic):
        """What a reader of the whole log comes to."""
        found = dump(self.directory(topic))
        records = [record for batch in found.batches if not batch.attributes & CONTROL_BIT for record in batch.records]
        latest = {record.key: record.value for record in records}
        return {key: value for key, value in latest.items() if value is not None}

    def leftovers(self, topic):
        return [each.name for each in self.directory(topic).iterdir() if each.suffix in (".tmp", ".cleaned", ".swap")]


def _undated(batch):
    if batch.delete_horizon is None:
        return batch
    return batch._replace(delete_horizon=0, base_timestamp=0, crc=None)


@pytest.fixture(scope="package")
def logs(tmp_path_factory):
    """Topics ``job-SEED`` and ``own-SEED`` with the same logs, ``spare-SEED`` beside them."""
    data = tmp_path_factory.mktemp("cluster")
    with ClusterHarness(data, settings={"log.cleaner.backoff.ms": 100}) as harness:
        home = Path(next(data.glob("broker-0")))
        names = ("job", "own", "spare", "other")
        writers = {seed: LogWriter(seed, _LEFT, without=("delete", "timestamps")) for seed in SEEDS}
        with Admin(bootstrap_servers=harness.bootstrap_servers) as admin:
            admin.create_topics(
                [
                    NewTopic(f"{name}-{seed}", 1, 1, {**writer.settings, "min.cleanable.dirty.ratio": "1"})
                    for seed, writer in writers.items()
                    for name in names
                ]
            )
        harness.stop_broker(0)
        for seed, writer in writers.items():
            made = tmp_path_factory.mktemp("made") / "t-0"
            writer.write(made, 150)
            for name in names:
                _fill(home / f"{name}-{seed}-0", made)
        harness.start_broker(0)
        yield Logs(harness, home)


def _fill(directory, made):
    for path in directory.iterdir():
        if path.name not in _KEPT:
            path.unlink()
    shutil.copytree(made, directory, dirs_exist_ok=True)
