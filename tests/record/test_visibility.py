from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.visibility import Visibility
from sparklog.structs import IsolationLevel


def _batch(base_offset, producer=-1, *, control=False):
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        is_transactional=producer >= 0,
        is_control=control,
    )
    builder.append(1, b"\0\0\0\0", b"")
    return RecordBatch(builder.build())


def _shown(batches, aborted, isolation=IsolationLevel.READ_COMMITTED):
    visibility = Visibility(aborted, isolation)
    return [batch.base_offset for batch in batches if visibility.shows(batch)]


def test_an_aborted_transaction_ends_with_its_producers_marker():
    batches = [_batch(0, 7), _batch(1, 7), _batch(2, 7, control=True), _batch(3, 7), _batch(4, 7, control=True)]
    assert _shown(batches, [(7, 0)]) == [3]
    assert _shown(batches, [(7, 3)]) == [0, 1]


def test_transactions_that_overlap_are_told_apart_by_their_producer():
    batches = [
        _batch(0, 7),
        _batch(1, 8),
        _batch(2, 8, control=True),
        _batch(3, 7),
        _batch(4),
        _batch(5, 7, control=True),
    ]
    assert _shown(batches, [(7, 0)]) == [1, 4]
    assert _shown(batches, [(8, 1), (7, 0)]) == [4]


def test_who_reads_uncommitted_records_is_spared_only_the_markers():
    batches = [_batch(0, 7), _batch(1, 7, control=True)]
    assert _shown(batches, [(7, 0)], IsolationLevel.READ_UNCOMMITTED) == [0]
