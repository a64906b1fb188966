"""What a leader refuses, and with which code."""

from contextlib import nullcontext

import crc32c
import pytest
from log.samples import batch_of

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode, RecordsRefused
from sparklog.log.origin import AppendOrigin
from sparklog.log.validator import validate_appended
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker


def patched(position, data, batch=None, *, seal=True):
    """A batch with some bytes replaced, and its CRC made right again."""
    out = bytearray(batch or batch_of(1, 2))
    out[position : position + len(data)] = data
    if seal:
        out[17:21] = crc32c.crc32c(out[21:]).to_bytes(4, "big")
    return memoryview(out)


NOW = 1_000_000


def check(records, config, origin=AppendOrigin.CLIENT):
    return validate_appended(records, config, origin, NOW)


def keyless(key):
    return batch_of(1, 2, key=key, codec=CompressionType.GZIP)


REFUSED = {
    "nothing": (memoryview(b""), ErrorCode.CORRUPT_MESSAGE),
    "half a header": (batch_of()[:60], ErrorCode.CORRUPT_MESSAGE),
    "cut short": (batch_of()[:-1], ErrorCode.CORRUPT_MESSAGE),
    "format 0": (patched(16, b"\0"), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "format 1": (patched(16, b"\1"), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "format 3": (patched(16, b"\3"), ErrorCode.CORRUPT_MESSAGE),
    "length too small": (patched(8, b"\0\0\0\x05"), ErrorCode.CORRUPT_MESSAGE),
    "length negative": (patched(8, b"\xff\xff\xff\xff"), ErrorCode.CORRUPT_MESSAGE),
    "length huge": (patched(8, b"\x7f\xff\xff\xff"), ErrorCode.CORRUPT_MESSAGE),
    "wrong CRC": (patched(17, b"\0\0\0\0", seal=False), ErrorCode.CORRUPT_MESSAGE),
    "flipped record": (patched(70, b"\xff", seal=False), ErrorCode.CORRUPT_MESSAGE),
    "unknown codec": (patched(22, b"\x07"), ErrorCode.CORRUPT_MESSAGE),
    "more records than fit": (patched(57, b"\0\0\x01\0", patched(23, b"\0\0\0\xff")), ErrorCode.INVALID_RECORD),
    "count of another delta": (patched(57, b"\x7f\xff\xff\xff"), ErrorCode.INVALID_RECORD),
    "negative count": (patched(57, b"\xff\xff\xff\xff"), ErrorCode.INVALID_RECORD),
    "negative delta": (patched(23, b"\xff\xff\xff\xff"), ErrorCode.INVALID_RECORD),
    "no records": (patched(57, b"\0\0\0\0"), ErrorCode.INVALID_RECORD),
    "delta of another count": (patched(23, b"\0\0\0\5"), ErrorCode.INVALID_RECORD),
    "control batch": (patched(22, b"\x20"), ErrorCode.INVALID_RECORD),
    "producer without sequence": (patched(43, b"\0" * 7 + b"\5"), ErrorCode.INVALID_RECORD),
    "two batches": (memoryview(bytes(batch_of()) * 2), ErrorCode.INVALID_RECORD),
    "a batch and a byte": (memoryview(bytes(batch_of()) + b"\0"), ErrorCode.INVALID_RECORD),
    "too large": (batch_of(1, size=2000), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    records, code = REFUSED[name]
    with pytest.raises(ApiError) as caught:
        check(records, parse(TopicConfig, {"max.message.bytes": "1000"}))
    assert caught.value.code is code
    assert str(caught.value)


def test_a_batch_may_be_as_large_as_the_limit():
    records = batch_of(1, size=500)
    limit = {"max.message.bytes": str(len(records))}
    assert check(records, parse(TopicConfig, limit)).size_in_bytes == len(records)


@pytest.mark.parametrize("codec", list(CompressionType))
def test_good_batches_are_taken(codec):
    batch = check(batch_of(1, 2, 3, codec=codec), TopicConfig())
    assert batch.record_count == 3


def test_an_idempotent_producers_batch_is_taken():
    builder = RecordBatchBuilder(producer_id=5, producer_epoch=0, base_sequence=0)
    builder.append(1, None, b"v")
    assert check(memoryview(bytearray(builder.build())), TopicConfig()).producer_id == 5


def test_a_compacted_topic_takes_no_record_without_a_key():
    compacted = parse(TopicConfig, {"cleanup.policy": "compact"})
    assert check(keyless(b"k"), compacted).record_count == 2
    check(keyless(None), TopicConfig())
    with pytest.raises(ApiError) as caught:
        check(keyless(None), compacted)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_the_records_to_blame_for_a_refusal_are_named():
    compacted = parse(TopicConfig, {"cleanup.policy": "compact"})
    builder = RecordBatchBuilder(compression=CompressionType.ZSTD)
    for key in (b"k", None, b"", None):
        builder.append(NOW, key, b"v")
    with pytest.raises(RecordsRefused) as caught:
        check(memoryview(bytearray(builder.build())), compacted)
    assert caught.value.records == (1, 3), "an empty key is a key"


@pytest.mark.parametrize("bound", ["message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"])
def test_the_records_whose_times_are_out_of_bounds_are_named(bound):
    with pytest.raises(RecordsRefused) as caught:
        check(batch_of(NOW - 11, -1, NOW - 10, NOW - 5000), parse(TopicConfig, {bound: "10"}))
    assert caught.value.records == (0, 3), "a record without a time has none that is out of bounds"


@pytest.mark.parametrize(("before", "refused"), [("20", ()), ("9223372036854775807", (0,)), ("5", (0, 1))])
def test_a_bound_of_one_side_comes_before_the_bound_of_both(before, refused):
    settings = {"message.timestamp.difference.max.ms": "10", "message.timestamp.before.max.ms": before}
    with pytest.raises(RecordsRefused) if refused else nullcontext() as caught:
        check(batch_of(NOW - 15, NOW - 8, NOW), parse(TopicConfig, settings))
    if refused:
        assert caught.value.records == refused


@pytest.mark.parametrize("codec", list(CompressionType))
def test_records_of_a_compacted_topic_that_cannot_be_read_are_refused(codec):
    compacted = parse(TopicConfig, {"cleanup.policy": "compact"})
    batch = batch_of(1, 2, key=b"k", codec=codec)
    with pytest.raises(ApiError) as caught:
        check(patched(61, b"\xff" * (len(batch) - 61), batch), compacted)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize(
    ("times", "complaint"),
    [
        ((NOW - 100, NOW, NOW + 50), None),
        ((NOW, NOW - 101, NOW + 1), "101 ms before"),
        ((NOW, NOW + 51, NOW), "51 ms after"),
        ((NOW, -1), None),
        ((-1, -1), None),
    ],
)
def test_a_record_whose_time_is_out_of_bounds_is_refused(codec, times, complaint):
    bounded = parse(TopicConfig, {"message.timestamp.before.max.ms": "100", "message.timestamp.after.max.ms": "50"})
    records = batch_of(*times, codec=codec)
    if complaint is None:
        check(records, bounded)
        return
    with pytest.raises(ApiError, match=complaint) as caught:
        check(records, bounded)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_the_brokers_own_time_has_no_bounds():
    stamped = parse(TopicConfig, {"message.timestamp.before.max.ms": "0", "message.timestamp.type": "LogAppendTime"})
    assert check(batch_of(1), stamped).record_count == 1


def test_a_coordinator_may_write_markers_and_transactions_and_a_client_may_not():
    marker = build_marker(EndTransactionMarker(ControlType.ABORT, 3), ProducerIdAndEpoch(7, 0), NOW)
    data = RecordBatchBuilder(producer_id=7, producer_epoch=0, is_transactional=True)
    data.append(NOW, b"k", b"v")
    compacted = parse(TopicConfig, {"cleanup.policy": "compact"})
    for records in (marker, data.build()):
        view = memoryview(bytearray(records))
        assert check(view, compacted, AppendOrigin.COORDINATOR).producer_id == 7
        with pytest.raises(ApiError) as caught:
            check(view, compacted)
        assert caught.value.code is ErrorCode.INVALID_RECORD
