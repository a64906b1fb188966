import pytest

from sparklog.errors import CorruptRecord
from sparklog.fetch.scan import scan
from sparklog.protocol.hot.fetch import FetchedPartition
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import IsolationLevel, TopicPartition

_TP = TopicPartition("t", 0)


def _batch(base_offset, count=2, producer=-1, *, transactional=False, control=False):
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        is_transactional=transactional,
        is_control=control,
    )
    for number in range(count):
        builder.append(1000, b"\0\0\0\0" if control else b"k", b"%d" % (base_offset + number))
    return builder.build()


def _answer(*batches, aborted=()):
    fetched = FetchedPartition("t", ZERO_UUID, 0, aborted=list(aborted))
    fetched.records.append(memoryview(b"".join(batches)))
    return fetched


def _visible(fetched, isolation=IsolationLevel.READ_COMMITTED):
    found = scan(_TP, fetched, 0, isolation)
    return [batch.base_offset for batch in found.batches], found.next_offset


def _transactions():
    """Producer 7 aborts, producer 8 commits, then 7 commits."""
    return _answer(
        _batch(0, producer=7, transactional=True),
        _batch(2, producer=8, transactional=True),
        _batch(4, producer=7, transactional=True),
        _batch(6, 1, producer=7, transactional=True, control=True),
        _batch(7, 1, producer=8, transactional=True, control=True),
        _batch(8, producer=7, transactional=True),
        _batch(10, 1, producer=7, transactional=True, control=True),
        _batch(11),
        aborted=[(7, 0)],
    )


def test_read_committed_hides_aborted_transactions_and_no_other():
    assert _visible(_transactions()) == ([2, 8, 11], 13)


def test_read_uncommitted_sees_aborted_records_but_no_control_records():
    assert _visible(_transactions(), IsolationLevel.READ_UNCOMMITTED) == ([0, 2, 4, 8, 11], 13)


def test_an_abort_that_begins_later_leaves_what_came_before():
    answer = _answer(
        _batch(0, producer=7, transactional=True),
        _batch(2, 1, producer=7, transactional=True, control=True),
        _batch(3, producer=7, transactional=True),
        aborted=[(7, 3)],
    )
    assert _visible(answer) == ([0], 5)


def test_a_batch_cut_short_is_left_for_the_next_fetch():
    whole, cut = _batch(0), _batch(2)[:-1]
    assert _visible(_answer(whole, cut)) == ([0], 2)


def test_a_damaged_batch_is_refused():
    damaged = bytearray(_batch(0))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecord, match=r"^partition t-0 at offset 0: .*CRC"):
        scan(_TP, _answer(bytes(damaged)), 0, IsolationLevel.READ_UNCOMMITTED)


def test_what_stands_before_damage_is_given():
    damaged = bytearray(_batch(2))
    damaged[-1] ^= 1
    assert _visible(_answer(_batch(0), bytes(damaged), _batch(4)), IsolationLevel.READ_UNCOMMITTED) == ([0], 2)
