"""Transactions that Kafka 3.9.1 wrote, stopped in order and killed, opened and read by our log."""

from collections import Counter

import pytest
from golden.log_dirs import CONFIG, HERE, batches_of, golden, read_committed, read_uncommitted, without_times

from sparklog.errors import ApiError, ErrorCode
from sparklog.log.checkpoints import RECOVERY_POINTS, read_offsets
from sparklog.log.indexes.transaction_index import read_aborted
from sparklog.log.origin import AppendOrigin
from sparklog.log.producer_snapshot import read_snapshot
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker, read_marker
from sparklog.record.layout import NO_PRODUCER_ID, NO_SEQUENCE
from sparklog.structs import TopicPartition

END = 63
OPEN_SINCE = 55
EPOCH = 0
INDEXES = ("*.index", "*.timeindex", "*.txnindex")


@pytest.fixture(params=["stopped", "killed"])
def partition(request, tmp_path):
    """The same transactions, as a broker left them that was stopped, or that was killed."""
    return golden(tmp_path, request.param, "txn" if request.param == "stopped" else "txn-killed")


@pytest.fixture(params=[False, True], ids=["as-left", "recovered"])
def log(request, partition):
    log = partition.open(clean=False if request.param else None)
    yield log
    log.close()


def snapshots_of(partition):
    return {int(path.stem): without_times(read_snapshot(path)) for path in partition.path.glob("*.snapshot")}


def data_batch(producer_id, sequence, *, epoch=0, transactional=True):
    builder = RecordBatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=transactional
    )
    builder.append(1, b"key", b"ours")
    return memoryview(bytearray(builder.build()))


def marker(kind, producer_id, epoch=0):
    built = build_marker(EndTransactionMarker(kind, 9), ProducerIdAndEpoch(producer_id, epoch), 1)
    return memoryview(bytearray(built))


def producer_of_open_transaction(log):
    return next(batch.producer_id for batch in batches_of(log) if batch.base_offset == OPEN_SINCE)


def test_the_capture_holds_what_it_is_for(partition):
    kinds = Counter(how for _, how, _ in partition.transaction_ends())
    assert kinds["abort"] > 5
    assert kinds["commit"] == 3
    assert kinds["take over"] == 2
    indexes = {int(path.stem): read_aborted(path) for path in partition.path.glob("*.txnindex")}
    assert len(indexes) > 2
    assert any(entry.first_offset < base for base, entries in indexes.items() for entry in entries)
    assert any(entry.last_stable_offset <= entry.first_offset for entries in indexes.values() for entry in entries)


def test_uncommitted_readers_are_given_every_record(log, partition):
    assert log.recovered_bytes_dropped == 0
    assert log.segment_count > 3
    assert log.log_end_offset == END
    assert read_uncommitted(log) == partition.said("uncommitted")


def test_committed_readers_are_given_what_kafka_gave_them(log, partition):
    expected = partition.said("committed")
    assert 0 < len(expected) < len(partition.said("uncommitted"))
    assert read_committed(log) == expected


def test_the_last_stable_offset_is_where_the_open_transaction_began(log, partition):
    log.on_high_watermark(END)
    assert {row[3] for row in partition.said("fetches")} == {OPEN_SINCE}
    assert log.first_unstable_offset == OPEN_SINCE


def test_transactions_are_unstable_until_their_markers_are_replicated(log, partition):
    firsts = {each.first_offset for path in partition.path.glob("*.txnindex") for each in read_aborted(path)}
    log.on_high_watermark(0)
    unstable = log.first_unstable_offset
    assert unstable in firsts | {OPEN_SINCE}
    log.on_high_watermark(END)
    assert log.first_unstable_offset == OPEN_SINCE


def test_each_fetch_is_told_the_aborted_transactions_that_kafka_told(log, partition):
    """Kafka looks as far as the offset index lets it, so it may name some behind what it gives; none that is given."""
    fetches = partition.said("fetches")
    assert max(len(row[4]) for row in fetches) > 2
    for offset, size, last, _, aborted in fetches:
        ours = [[each.producer_id, each.first_offset] for each in log.aborted_transactions(offset, last + 1)]
        assert ours == [each for each in aborted if each[1] <= last], (offset, size)


def test_every_marker_is_what_the_producer_asked_for(log, partition):
    batches = {batch.base_offset: batch for batch in batches_of(log)}
    assert sum(batch.is_control for batch in batches.values()) == len(partition.transaction_ends())
    epochs = {}
    for who, how, offset in partition.transaction_ends():
        batch = batches[offset]
        batch.validate()
        assert read_marker(batch).type is (ControlType.COMMIT if how == "commit" else ControlType.ABORT)
        if how == "take over":
            assert batch.producer_epoch == epochs.get(who, 0) + 1
        epochs[who] = batch.producer_epoch


def test_its_indexes_are_those_that_we_would_build(tmp_path):
    partition = golden(tmp_path, "stopped", "txn")
    kafkas = {name: data for pattern in INDEXES for name, data in partition.files(pattern).items()}
    for pattern in INDEXES:
        partition.remove(pattern)
    partition.open(clean=False).close()
    assert {name: data for pattern in INDEXES for name, data in partition.files(pattern).items()} == kafkas


def test_a_lost_transaction_index_is_built_anew(partition):
    """Kafka preallocates the other indexes, so only this one is comparable where it was killed."""
    kafkas = partition.files("*.txnindex")
    assert len(kafkas) > 2
    partition.remove("*.txnindex")
    partition.open(clean=False).close()
    assert partition.files("*.txnindex") == kafkas


def test_indexes_that_were_preallocated_are_cut_to_size(tmp_path):
    partition = golden(tmp_path, "killed", "txn-killed")
    twin = golden(tmp_path, "stopped", "txn")
    last = max(partition.files("*.index"))
    assert len(partition.files("*.index")[last]) == CONFIG.segment_index_bytes
    partition.open().close()
    assert partition.files("*.index") == twin.files("*.index")


def test_only_what_lies_beyond_the_recovery_point_is_scanned(tmp_path):
    partition = golden(tmp_path, "killed", "txn-killed")
    point = read_offsets(HERE / "kafka-3.9-killed" / RECOVERY_POINTS)[TopicPartition("txn-killed", 0)]
    assert point == 47
    log = partition.open(recovery_point=point)
    assert log.scanned_bytes == len(partition.files("*.log")[f"{point:020d}.log"])
    assert read_committed(log) == partition.said("committed")
    log.close()
    assert snapshots_of(partition)[END] == snapshots_of_twin(tmp_path, partition)


def snapshots_of_twin(tmp_path, partition):
    """The producers at the end, from the twin that was stopped: other producer ids and coordinator epochs."""
    twin = golden(tmp_path, "stopped", "txn")
    ids = dict(zip(snapshots_of(twin)[END], sorted(snapshots_of(partition)[END]), strict=True))
    return {
        ids[id_]: (epoch, batches, 2 if coordinator >= 0 else -1, first)
        for id_, (epoch, batches, coordinator, first) in snapshots_of(twin)[END].items()
    }


def test_the_producers_are_those_of_its_snapshots(partition):
    """Replayed from the log alone, at each offset for which Kafka wrote a snapshot."""
    kafkas = snapshots_of(partition)
    assert len(kafkas) == (3 if partition.is_killed else 4)
    assert any(producer[3] >= 0 for producers in kafkas.values() for producer in producers.values())
    partition.remove("*.snapshot")
    partition.open(clean=False).close()
    ours = snapshots_of(partition)
    assert {offset: ours.get(offset) for offset in kafkas} == kafkas


def test_the_newest_snapshot_is_believed_after_a_clean_stop(tmp_path):
    partition = golden(tmp_path, "stopped", "txn")
    kafkas = snapshots_of(partition)[END]
    log = partition.open()
    log.append_as_leader(data_batch(NO_PRODUCER_ID, NO_SEQUENCE, epoch=-1, transactional=False), EPOCH)
    log.close()
    assert snapshots_of(partition)[END + 1] == kafkas


def test_the_open_transaction_goes_on_and_is_committed(log):
    producer = producer_of_open_transaction(log)
    sequence = max(b.last_sequence for b in batches_of(log) if b.producer_id == producer) + 1
    more = log.append_as_leader(data_batch(producer, sequence), EPOCH, AppendOrigin.COORDINATOR)
    assert more.first_offset == END
    log.on_high_watermark(log.log_end_offset)
    assert log.first_unstable_offset == OPEN_SINCE
    log.append_as_leader(marker(ControlType.COMMIT, producer), EPOCH, AppendOrigin.COORDINATOR)
    log.on_high_watermark(log.log_end_offset)
    assert log.first_unstable_offset is None
    read = read_committed(log)
    assert [row[0] for row in read[-6:]] == [55, 56, 57, 58, 62, 63]


def test_the_open_transaction_is_aborted(log):
    producer = producer_of_open_transaction(log)
    log.append_as_leader(marker(ControlType.ABORT, producer), EPOCH, AppendOrigin.COORDINATOR)
    (aborted,) = log.aborted_transactions(OPEN_SINCE, OPEN_SINCE + 1)
    assert aborted == (producer, OPEN_SINCE, END, END + 1)
    assert [row[0] for row in read_committed(log)[-3:]] == [57, 58, 62]


def test_a_producer_that_was_fenced_is_refused(log, partition):
    offset = next(offset for who, how, offset in partition.transaction_ends() if (who, how) == ("d", "take over"))
    fenced = next(batch for batch in batches_of(log) if batch.base_offset == offset)
    assert fenced.producer_epoch == 1
    for sequence, epoch, code in (
        (1, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ):
        with pytest.raises(ApiError) as refused:
            log.append_as_leader(data_batch(fenced.producer_id, sequence, epoch=epoch, transactional=False), EPOCH)
        assert refused.value.code is code
    successor = data_batch(fenced.producer_id, 0, epoch=2, transactional=False)
    assert log.append_as_leader(successor, EPOCH).first_offset == END


def test_an_idempotent_producer_may_send_its_last_batch_again(log):
    last = next(batch for batch in reversed(batches_of(log)) if not batch.is_transactional and batch.producer_id >= 0)
    again = data_batch(last.producer_id, last.base_sequence, transactional=False)
    assert log.append_as_leader(again, EPOCH).first_offset == last.base_offset
    assert log.log_end_offset == END


def test_truncation_reopens_what_it_cuts_the_end_of(log, partition):
    """To before the marker of the transaction that lies across segments."""
    across = next(each for each in log.aborted_transactions(13, 14) if each.first_offset == 13)
    log.truncate_to(across.last_offset)
    assert log.log_end_offset == across.last_offset
    log.on_high_watermark(log.log_end_offset)
    assert log.first_unstable_offset == 13
    assert across not in log.aborted_transactions(0, END)
    aborted = {each.last_offset for each in log.aborted_transactions(0, END)}
    ends = {offset for _, how, offset in partition.transaction_ends() if how != "commit"}
    assert aborted == {offset for offset in ends if offset < across.last_offset}
