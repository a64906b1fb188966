"""One batch: what it holds, what it is sent as, and what becomes of one that is too large."""

import pytest

from sparklog.client.producer.accumulator import RECORD_OVERHEAD, Accumulator
from sparklog.client.producer.batch import ProducerBatch, Stamp
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.sequences import ProducerId, Verdict
from sparklog.errors import ErrorCode
from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.records import iter_records
from sparklog.structs import TopicPartition

TP = TopicPartition("t", 0)
LAST = (1 << 31) - 1


def filled(*values, order=1.0, created=5.0, span=1.0):
    batch = ProducerBatch(TP, order, created, span)
    for number, value in enumerate(values):
        batch.append(100 + number, b"k", value, (("h", b"%d" % number),))
    return batch


def sent(batch, compression=CompressionType.NONE, is_transactional=False):
    return RecordBatch(batch.encode(compression, is_transactional))


def values_of(batch):
    return [each.value for each in iter_records(batch)]


def stamp_of(batch):
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


def test_a_new_batch_holds_nothing_and_was_never_sent():
    batch = ProducerBatch(TP, 3.0, 5.0)
    assert (batch.tp, batch.order, batch.created, batch.span) == (TP, 3.0, 5.0, 1.0)
    assert (batch.count, batch.charged, batch.attempts, batch.retry_at, batch.last_error) == (0, 0, 0, 0.0, "")
    assert (batch.is_doubtful, batch.stamp, batch.size) == (False, None, layout.HEADER_SIZE)


def test_a_batch_is_as_large_as_its_records_until_it_is_encoded_and_then_as_what_is_sent():
    batch = filled(b"x" * 1000)
    assert batch.size == layout.HEADER_SIZE + len(batch.records) > 1000
    data = batch.encode(CompressionType.GZIP, False)
    assert batch.size == len(data) < 200
    assert batch.encode(CompressionType.GZIP, False) is data


def test_a_batch_says_the_times_of_its_records_whichever_comes_first():
    batch = ProducerBatch(TP, 1.0, 0.0)
    for number, time in enumerate((50, 70, 60, 40)):
        future = batch.append(time, None, b"", ())
        assert (future.delivery, batch.count) == (batch.delivery, number + 1)
    found = sent(batch)
    found.validate()
    assert (found.base_timestamp, found.max_timestamp) == (50, 70)
    assert [each.timestamp for each in iter_records(found)] == [50, 70, 60, 40]


@pytest.mark.parametrize("is_transactional", [True, False])
def test_a_batch_is_sent_under_its_stamp_and_says_whether_it_is_of_a_transaction(is_transactional):
    batch = filled(b"a")
    batch.stamp = Stamp(7, 2, 9)
    found = sent(batch, is_transactional=is_transactional)
    found.validate()
    assert (stamp_of(found), found.is_transactional) == ((7, 2, 9), is_transactional)


def test_another_stamp_is_written_into_what_is_sent_and_none_too():
    batch = filled(b"a", b"b")
    assert stamp_of(sent(batch)) == (-1, -1, -1)
    for stamp in (Stamp(7, 2, 9), Stamp(7, 3, 0), None):
        batch.stamp = stamp
        for _ in range(2):
            found = sent(batch)
            found.validate()
            assert stamp_of(found) == (stamp or (-1, -1, -1))
            assert values_of(found) == [b"a", b"b"]


def test_a_batch_that_was_made_elsewhere_is_sent_as_it_is():
    builder = RecordBatchBuilder(compression=CompressionType.GZIP)
    for value in (b"a", b"b"):
        builder.append(1, None, value * 100)
    data = bytearray(builder.build())
    batch = ProducerBatch.encoded(TP, 2.0, 5.0, data)
    assert (batch.tp, batch.order, batch.created, batch.count, batch.size) == (TP, 2.0, 5.0, 2, len(data))
    assert batch.encode(CompressionType.NONE, False) is data
    assert sent(batch).compression is CompressionType.GZIP


@pytest.mark.parametrize("values", [(b"a",), ()])
def test_what_cannot_be_halved(values):
    batch = filled(*values)
    batch.encode(CompressionType.NONE, False)
    assert batch.halves() is None
    assert filled(b"a", b"b").halves() is None, "it was not sent, so nobody can have found it too large"


def test_the_halves_of_a_batch_are_all_of_it():
    batch = filled(b"a", b"b", b"c", b"d", b"e", order=3.0, created=5.0, span=0.5)
    batch.charged = 101
    batch.stamp = Stamp(7, 2, LAST - 1)
    whole = list(iter_records(sent(batch)))
    halves = batch.halves()
    first, second = halves
    assert [(each.tp, each.order, each.span, each.created) for each in halves] == [
        (TP, 3.0, 0.25, 5.0),
        (TP, 3.25, 0.25, 5.0),
    ]
    assert [each.charged for each in halves] == [50, 51]
    assert [each.stamp for each in halves] == [(7, 2, LAST - 1), (7, 2, 0)], "behind the last number comes 0"
    found = [list(iter_records(sent(each))) for each in halves]
    assert [len(each) for each in found] == [2, 3]
    content = [(each.timestamp, each.key, each.value, each.headers) for half in found for each in half]
    assert content == [(each.timestamp, each.key, each.value, each.headers) for each in whole]
    assert (first.attempts, second.attempts) == (0, 0)


def test_the_halves_of_a_batch_without_a_number_have_none():
    batch = filled(b"a", b"b")
    batch.encode(CompressionType.NONE, False)
    assert [each.stamp for each in batch.halves()] == [None, None]


def test_the_memory_of_a_batch_that_is_halved_is_given_back_with_each_half():
    accumulator = Accumulator(ProducerConfig.of(bootstrap_servers="h:1", linger_ms=0))
    for _ in range(3):
        accumulator.append(TP, 0, None, b"", (), 0.0)
    used = 3 * RECORD_OVERHEAD
    left = [used]
    for code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE, ErrorCode.NONE):
        batch = accumulator.take(next(accumulator.due(0.0)), ProducerId(1, 0))
        batch.encode(CompressionType.NONE, False)
        accumulator.answered(batch, code, 0.0)
        left.append(accumulator.used)
    assert left == [used, used, used - used // 2, 0]


def test_who_settles_a_batch_is_known_to_those_that_wait_for_it():
    accumulator = Accumulator(ProducerConfig.of(bootstrap_servers="h:1"))
    accumulator.settler, accumulator.is_interrupted = 77, lambda: True
    future = accumulator.append(TP, 0, None, b"", (), 0.0)
    assert (future.delivery.settler, future.delivery.is_interrupted) == (77, accumulator.is_interrupted)
    builder = RecordBatchBuilder()
    builder.append(1, None, b"a")
    whole = accumulator.add_encoded(TP, bytearray(builder.build()), 0.0)
    assert (whole.delivery.settler, whole.delivery.is_interrupted) == (77, accumulator.is_interrupted)


def test_a_record_is_counted_for_its_headers_as_for_what_they_can_take():
    accumulator = Accumulator(ProducerConfig.of(bootstrap_servers="h:1"))
    accumulator.append(TP, 0, b"key", b"value", (("name", b"12345"), ("n", None)), 0.0)
    assert accumulator.used == RECORD_OVERHEAD + 3 + 5 + (10 + 4 * 4 + 5) + (10 + 4)


def test_a_batch_that_fails_for_good_is_done_with():
    accumulator = Accumulator(ProducerConfig.of(bootstrap_servers="h:1", linger_ms=0))
    accumulator.append(TP, 0, None, b"", (), 0.0)
    batch = accumulator.take(next(accumulator.due(0.0)), ProducerId(1, 0))
    assert accumulator.answered(batch, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0.0) is Verdict.FAIL
    assert (accumulator.used, accumulator.is_empty) == (0, True)
