"""A topic that Kafka 3.9.1's cleaner went through, opened and read by our log."""

import pytest
from golden.log_dirs import COMPACTED, HERE, batches_of, golden, read_committed, read_uncommitted, without_times

from sparklog.log.checkpoints import read_offsets
from sparklog.log.indexes.transaction_index import read_aborted
from sparklog.log.producer_snapshot import read_snapshot
from sparklog.record.records import iter_records
from sparklog.structs import TopicPartition

END = 48
SURVIVING = (0, 25, 31, 40, 44, 46)
"""Base offsets of the segments that are left."""
INDEXES = ("*.index", "*.timeindex", "*.txnindex")


@pytest.fixture
def partition(tmp_path):
    return golden(tmp_path, "stopped", "compacted")


@pytest.fixture(params=[True, False], ids=["clean", "recovered"])
def log(request, partition):
    log = partition.open(clean=request.param, config=COMPACTED)
    yield log
    log.close()


def test_the_capture_holds_what_it_is_for(partition):
    offsets = [row[0] for row in partition.said("uncommitted")]
    assert len(offsets) < END // 2
    assert any(row[3] is None for row in partition.said("uncommitted"))
    assert any(partition.path.glob("*.log.deleted"))


def test_every_record_is_read(log, partition):
    assert log.recovered_bytes_dropped == 0
    assert log.log_end_offset == END
    assert log.log_start_offset == 0
    assert read_uncommitted(log) == partition.said("uncommitted")


def test_committed_readers_are_given_what_kafka_gave_them(log, partition):
    assert read_committed(log) == partition.said("committed")


def test_segments_are_those_that_are_not_deleted(log, partition):
    assert log.segment_count == len(SURVIVING)
    assert sorted(int(path.stem) for path in partition.path.glob("*.log")) == list(SURVIVING)
    assert not list(partition.path.glob("*.deleted"))


def test_batches_keep_the_offsets_of_the_records_they_lost(log):
    batches = batches_of(log)
    for batch in batches:
        batch.validate()
        offsets = [record.offset for record in iter_records(batch)]
        assert len(offsets) == batch.record_count
        assert all(batch.base_offset <= offset <= batch.last_offset for offset in offsets)
    shorter = [batch for batch in batches if 0 < batch.record_count <= batch.last_offset_delta]
    lost_its_last = [batch for batch in shorter if list(iter_records(batch))[-1].offset < batch.last_offset]
    assert shorter
    assert lost_its_last
    assert batches[0].base_offset > 0


def test_tombstones_bear_the_time_they_will_be_removed(log):
    horizons = [batch for batch in batches_of(log) if batch.has_delete_horizon]
    assert horizons
    for batch in horizons:
        assert batch.base_timestamp > batch.max_timestamp
        assert any(record.value is None for record in iter_records(batch))


def test_every_offset_is_answered_with_the_next_batch_there_is(log):
    batches = batches_of(log)
    for offset in range(END):
        found = log.read(offset, 1, log.end, min_one_batch=True)
        first = int.from_bytes(found.file.read(found.position, 8), "big")
        assert first == next(batch.base_offset for batch in batches if batch.last_offset >= offset)


def test_each_fetch_is_told_the_aborted_transactions_that_kafka_told(log, partition):
    fetches = partition.said("fetches")
    assert any(row[4] for row in fetches)
    for offset, size, last, _, aborted in fetches:
        ours = [[each.producer_id, each.first_offset] for each in log.aborted_transactions(offset, last + 1)]
        assert ours == [each for each in aborted if each[1] <= last], (offset, size)


def test_a_batch_without_records_keeps_its_producers_sequence(log, partition):
    """The cleaner leaves it for this alone: a producer would otherwise be refused when it goes on."""
    empty = [batch for batch in batches_of(log) if batch.record_count == 0]
    assert len(empty) == 2
    log.close()
    (kafkas,) = (read_snapshot(path) for path in partition.path.glob(f"*{END}.snapshot"))
    for batch in empty:
        assert kafkas[batch.producer_id].last_sequence == batch.last_sequence


@pytest.mark.parametrize("pattern", ["*.snapshot", "*.txnindex"])
def test_what_is_lost_is_built_anew_from_what_compaction_left(partition, pattern):
    before = _facts(partition)
    partition.remove(pattern)
    partition.open(clean=False, config=COMPACTED).close()
    assert _facts(partition) == before


def _facts(partition):
    (last,) = partition.path.glob(f"*{END}.snapshot")
    aborted = [each for path in sorted(partition.path.glob("*.txnindex")) for each in read_aborted(path)]
    return without_times(read_snapshot(last)), aborted


def test_its_indexes_are_those_that_we_would_build(partition):
    kafkas = {name: data for pattern in INDEXES for name, data in partition.files(pattern).items()}
    for pattern in INDEXES:
        partition.remove(pattern)
    partition.open(clean=False, config=COMPACTED).close()
    assert {name: data for pattern in INDEXES for name, data in partition.files(pattern).items()} == kafkas


def test_the_cleaner_had_been_as_far_as_the_active_segment():
    cleaned = read_offsets(HERE / "kafka-3.9-stopped" / "cleaner-offset-checkpoint")
    assert cleaned == {TopicPartition("compacted", 0): SURVIVING[-1]}
