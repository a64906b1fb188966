"""A partition of Kafka 3.9.1 whose first records were deleted by request, opened and read by our log."""

import pytest
from golden.log_dirs import HERE, golden, read_committed, read_uncommitted

from sparklog.errors import ApiError, ErrorCode
from sparklog.log.checkpoints import LEADER_EPOCHS, LOG_START_OFFSETS, read_offsets
from sparklog.log.leader_epochs import read_epochs
from sparklog.log.producer_snapshot import read_snapshot
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition

START, END = 20, 29


@pytest.fixture
def partition(tmp_path):
    return golden(tmp_path, "stopped", "trimmed")


@pytest.fixture(params=[True, False], ids=["clean", "recovered"])
def log(request, partition):
    start = read_offsets(HERE / "kafka-3.9-stopped" / LOG_START_OFFSETS)[TopicPartition("trimmed", 0)]
    log = partition.open(clean=request.param, log_start_offset=start)
    yield log
    log.close()


@pytest.fixture
def clean_log(partition):
    """Not a recovered one: what its only good snapshot knows of offsets before the start is lost then, in Kafka too."""
    log = partition.open(log_start_offset=START)
    yield log
    log.close()


def producers_of(partition):
    return read_snapshot(partition.path / f"{END:020d}.snapshot")


def test_it_begins_where_the_checkpoint_says(log):
    assert log.log_start_offset == START
    assert log.log_end_offset == END
    with pytest.raises(ApiError) as refused:
        log.read(START - 1, 1, log.end, min_one_batch=True)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_every_record_from_there_on_is_read(log, partition):
    expected = partition.said("uncommitted")
    assert expected[0][0] == START
    assert [row for row in read_uncommitted(log) if row[0] >= START] == expected


def test_segments_before_are_gone_and_that_of_the_start_is_whole(log, partition):
    bases = sorted(int(path.stem) for path in partition.path.glob("*.log"))
    assert 0 < bases[0] < START
    assert log.position_of(bases[0]).offset == bases[0]
    assert not list(partition.path.glob("*.deleted"))


def test_its_leader_epoch_begins_with_it(log, partition):
    assert read_epochs(partition.path / LEADER_EPOCHS) == [(0, START)]
    assert log.epochs.epoch_at(START) == 0


def test_a_transaction_that_began_before_it_holds_readers_at_its_start(clean_log, partition):
    open_since = {entry.transaction_first_offset for entry in producers_of(partition).values()} - {-1}
    assert max(open_since) < START
    clean_log.on_high_watermark(END)
    assert {row[3] for row in partition.said("fetches")} == {START}
    assert clean_log.first_unstable_offset == START
    assert [row for row in read_committed(clean_log) if row[0] >= START] == partition.said("committed") == []


def test_a_producer_whose_batches_are_all_gone_is_remembered(clean_log, partition):
    last = next(entry.batches[-1] for entry in producers_of(partition).values() if not entry.in_transaction)
    assert last.last_offset < START
    producer_id = next(id_ for id_, entry in producers_of(partition).items() if not entry.in_transaction)
    builder = RecordBatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=last.first_sequence)
    for _ in range(last.last_sequence - last.first_sequence + 1):
        builder.append(1, b"key", b"again")
    again = clean_log.append_as_leader(memoryview(bytearray(builder.build())), 0)
    assert (again.first_offset, again.last_offset) == (last.first_offset, last.last_offset)
    assert clean_log.log_end_offset == END
