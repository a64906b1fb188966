"""A partition whose leader changed, and the small files of whole log directories, as Kafka 3.9.1 wrote them."""

import json
import shutil

import pytest
from golden.log_dirs import HERE, batches_of, golden, read_uncommitted, without_times

from sparklog.log.checkpoints import (
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_meta_properties,
    read_offsets,
)
from sparklog.log.inspection.verify import Verification
from sparklog.log.leader_epochs import LeaderEpochCache, read_epochs
from sparklog.log.producer_snapshot import read_snapshot
from sparklog.structs import OffsetAndEpoch, TopicPartition

NAMES = ("stopped", "killed")
ENDS = {"stopped": 22, "killed": 32}
STARTS = {"stopped": [(0, 0), (2, 6), (6, 13), (8, 22)], "killed": [(0, 0), (2, 6), (6, 13), (10, 22)]}
"""Epoch and start offset; the last one of the broker that was stopped has no record."""


@pytest.fixture(params=NAMES)
def partition(request, tmp_path):
    return golden(tmp_path, request.param, "epochs")


@pytest.fixture(params=[False, True], ids=["as-left", "recovered"])
def log(request, partition):
    log = partition.open(clean=False if request.param else None)
    yield log
    log.close()


def test_every_record_is_read(log, partition):
    assert log.log_end_offset == ENDS[partition.name]
    assert read_uncommitted(log) == partition.said("uncommitted")


def test_every_batch_bears_the_epoch_that_the_checkpoint_gives_its_offset(log):
    batches = batches_of(log)
    assert len({batch.partition_leader_epoch for batch in batches}) >= 3
    for batch in batches:
        assert log.epochs.epoch_at(batch.base_offset) == batch.partition_leader_epoch


def test_an_epoch_without_records_is_forgotten(log, partition):
    starts = [start for start in STARTS[partition.name] if start[1] < ENDS[partition.name]]
    assert log.epochs.latest == starts[-1]
    assert read_epochs(partition.path / LEADER_EPOCHS) == starts


def test_the_checkpoint_is_read_and_written_as_kafka_has_it(partition):
    kafkas = (partition.path / LEADER_EPOCHS).read_bytes()
    cache = LeaderEpochCache(partition.path)
    assert read_epochs(partition.path / LEADER_EPOCHS) == STARTS[partition.name]
    last = STARTS[partition.name][-1]
    cache.truncate_from_end(last[1])
    cache.write()
    assert (partition.path / LEADER_EPOCHS).read_bytes() != kafkas
    cache.assign(*last)
    cache.write()
    assert (partition.path / LEADER_EPOCHS).read_bytes() == kafkas


def test_epochs_end_where_kafka_says(partition):
    """Of those that have been: Kafka knows no end of later ones, where our cache names the end of the latest."""
    cache, latest = LeaderEpochCache(partition.path), STARTS[partition.name][-1][0]
    rows = [row for row in partition.said("epoch ends") if row[0] <= latest]
    assert [row[:2] for row in rows] == [[epoch, 0] for epoch in range(-1, latest + 1)]
    for epoch, _, found, offset in rows:
        kafkas = OffsetAndEpoch(offset, found) if offset >= 0 else None
        assert cache.end_offset(epoch, ENDS[partition.name]) == kafkas, epoch


def test_the_producers_of_all_runs_are_those_of_its_snapshots(partition):
    kafkas = {path.name: without_times(read_snapshot(path)) for path in partition.path.glob("*.snapshot")}
    partition.remove("*.snapshot")
    partition.open(clean=False).close()
    for name, producers in kafkas.items():
        if (partition.path / name).exists():  # those at the ends of earlier runs are no segment's
            assert without_times(read_snapshot(partition.path / name)) == producers
    assert sum((partition.path / name).exists() for name in kafkas) > 1


@pytest.mark.parametrize("name", NAMES)
def test_the_checkpoints_of_a_log_directory_are_read(name):
    directory = HERE / f"kafka-3.9-{name}"
    points = read_offsets(directory / RECOVERY_POINTS)
    assert points[TopicPartition("epochs", 0)] == {"stopped": 22, "killed": 27}[name]
    assert points[TopicPartition("txn", 0)] == 63
    assert read_offsets(directory / LOG_START_OFFSETS) == {TopicPartition("trimmed", 0): 20}
    assert read_offsets(directory / "replication-offset-checkpoint")[TopicPartition("epochs", 0)] >= 22
    identity = read_meta_properties(directory)
    assert identity["broker.id"] == "0"
    assert len(identity["cluster.id"]) == 22
    marker = directory / ".kafka_cleanshutdown"
    assert marker.exists() == (name == "stopped")
    if marker.exists():
        assert json.loads(marker.read_text())["version"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wrong_with_a_log_directory_of_kafkas(name, tmp_path):
    check = Verification([shutil.copytree(HERE / f"kafka-3.9-{name}", tmp_path / name)], records=True)
    check.prepare()
    assert [finding for finding in check.run() if finding.is_problem] == []
    assert check.summary.partitions == {"stopped": 5, "killed": 2}[name]
    assert check.summary.batches > 40
