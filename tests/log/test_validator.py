"""What a leader refuses, and with which code."""

import subprocess
import sys
from contextlib import nullcontext
from typing import Any

import cramjam
import crc32c
import pytest
from log.samples import batch_of

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, LogError, RecordsRefused
from sparklog.log.origin import AppendOrigin
from sparklog.log.validator import (
    LONG,
    MOST_NAMED,
    as_topic_compresses,
    batches_of_leader,
    has_to_be_prepared,
    is_short,
    prepare,
    size_to_prepare,
    validate_adopted,
    validate_appended,
    validate_restored,
)
from sparklog.record import layout
from sparklog.record.batch import RecordBatch, patch_append_time, patch_header, patch_max_timestamp
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType, compress, most_decompressed
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.record.records import iter_records


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
    "all up to the format": (batch_of()[:16], ErrorCode.CORRUPT_MESSAGE),
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
    "unknown codec": (patched(22, b"\x07"), ErrorCode.INVALID_RECORD),
    "more records than fit": (patched(57, b"\0\0\x01\0", patched(23, b"\0\0\0\xff")), ErrorCode.INVALID_RECORD),
    "count of another delta": (patched(57, b"\x7f\xff\xff\xff"), ErrorCode.INVALID_RECORD),
    "negative count": (patched(57, b"\xff\xff\xff\xff"), ErrorCode.INVALID_RECORD),
    "negative delta": (patched(23, b"\xff\xff\xff\xff"), ErrorCode.INVALID_RECORD),
    "no records": (patched(57, b"\0\0\0\0"), ErrorCode.INVALID_RECORD),
    "no records and no delta": (
        patched(57, bytes(4), patched(23, b"\xff" * 4, patched(8, (49).to_bytes(4, "big"), batch_of()[:61]))),
        ErrorCode.INVALID_RECORD,
    ),
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


HEAD = "malformed batch header: "
COMPLAINTS = {
    "format 1": "message format 1 is not accepted; only record batches (format 2) are",
    "no records": HEAD + "0 records but a last offset delta of 1",
    "delta of another count": HEAD + "2 records but a last offset delta of 5",
    "unknown codec": HEAD + "the unknown compression code 7",
    "unknown attribute": HEAD + "unknown attributes 0x100",
    "an offset": HEAD + "base offset 1, where a batch that is to be given offsets has 0",
    "control batch": HEAD + "clients may not write control batches",
    "producer without sequence": HEAD + "producer id 5 without a sequence",
    "two batches": "a partition takes exactly one batch a request",
    "too large": f"a batch of {len(batch_of(1, size=2000))} bytes is larger than max.message.bytes=1000",
}
REFUSED["unknown attribute"] = (patched(21, b"\x01"), ErrorCode.INVALID_RECORD)
REFUSED["an offset"] = (patched(0, b"\0\0\0\0\0\0\0\x01"), ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("name", COMPLAINTS)
def test_a_refusal_says_what_was_wrong(name):
    with pytest.raises(ApiError) as caught:
        check(REFUSED[name][0], parse(TopicConfig, {"max.message.bytes": "1000"}))
    assert caught.value.code is REFUSED[name][1]
    assert str(caught.value).endswith(COMPLAINTS[name])


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.ZSTD])
def test_what_cannot_be_decompressed_cannot_be_compressed_anew(codec):
    batch = RecordBatch(patched(61, b"\xff" * 8, batch_of(1, 2, size=500, codec=codec)))
    with pytest.raises(ApiError) as caught:
        as_topic_compresses(batch, parse(TopicConfig, {"compression.type": "lz4"}))
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert f"{codec.name.lower()} data of" in str(caught.value)


def test_a_batch_must_fit_as_its_topic_compresses_it():
    batch = RecordBatch(batch_of(1, size=5000, codec=CompressionType.GZIP))
    plain = parse(TopicConfig, {"compression.type": "uncompressed", "max.message.bytes": "1000"})
    with pytest.raises(ApiError, match=r"larger than max\.message\.bytes=1000") as caught:
        as_topic_compresses(batch, plain)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_what_is_compressed_as_the_topic_wants_stays_as_it_is():
    gzip = RecordBatch(batch_of(1, codec=CompressionType.GZIP))
    marker = RecordBatch(
        memoryview(build_marker(EndTransactionMarker(ControlType.ABORT, 3), ProducerIdAndEpoch(7, 0), NOW))
    )
    for batch, kind in ((gzip, "gzip"), (gzip, "producer"), (marker, "zstd")):
        assert as_topic_compresses(batch, parse(TopicConfig, {"compression.type": kind})) is batch
    assert as_topic_compresses(gzip, parse(TopicConfig, {"compression.type": "uncompressed"})).compression == 0


def test_a_prepared_batch_keeps_what_the_client_sent():
    records, config = batch_of(1, 2), parse(TopicConfig, {"compression.type": "zstd"})
    prepared = prepare(records, config, NOW)
    assert prepared.records is records
    assert prepared.config is config
    assert prepared.batch.compression is CompressionType.ZSTD
    with pytest.raises(ApiError):
        prepare(REFUSED["control batch"][0], config, NOW)


def test_what_is_neither_compressed_nor_large_is_short():
    assert is_short(batch_of(1))
    assert not is_short(batch_of(1, codec=CompressionType.GZIP))
    assert not is_short(batch_of(1)[:60])
    assert is_short(batch_of()[:61])
    filler = LONG - len(batch_of(1, size=LONG // 2))
    exact = batch_of(1, size=LONG // 2 + filler)
    assert is_short(exact[:LONG])
    assert len(exact) >= LONG
    assert not is_short(memoryview(bytes(exact) + b"\0")[: LONG + 1])


COMPACTED = {"cleanup.policy": "compact"}


@pytest.mark.parametrize("codec", list(CompressionType))
def test_what_is_compressed_or_decoded_has_to_be_prepared(codec):
    records = batch_of(1, key=b"k", codec=codec)
    for settings in ({}, COMPACTED):
        has_to_be = codec is not CompressionType.NONE or bool(settings)
        assert has_to_be_prepared(records, parse(TopicConfig, settings)) is has_to_be
        assert bool(size_to_prepare(records, parse(TopicConfig, settings))) is has_to_be


def test_what_is_refused_for_its_size_or_format_does_not_have_to_be_prepared():
    records = batch_of(1, size=500, codec=CompressionType.GZIP)
    fits, too_large = (parse(TopicConfig, {"max.message.bytes": str(len(records) - less)}) for less in (0, 1))
    assert has_to_be_prepared(records, fits)
    assert has_to_be_prepared(records[:61], fits), "a header alone may claim anything"
    for each, config in ((records, too_large), (records[:60], fits), (patched(16, b"\1", records), fits)):
        assert not has_to_be_prepared(each, config)
        assert size_to_prepare(each, config) == 0


@pytest.mark.parametrize(("settings", "part"), [({}, 8), (COMPACTED, 1)], ids=["walked", "decoded"])
def test_the_work_of_a_preparation_is_told_in_bytes_that_are_compressed_anew(settings, part):
    """So many are walked in the time of one that is decoded. What is more than long is not told further."""
    config = parse(TopicConfig, settings | {"max.message.bytes": "10000000"})
    some, much = batch_of(1, codec=CompressionType.GZIP), batch_of(1, size=16 * LONG, codec=CompressionType.ZSTD)
    most = most_decompressed(CompressionType.GZIP, some[layout.HEADER_SIZE :], 1 << 40)
    assert repr(size_to_prepare(some, config)) == repr(most // part)
    assert size_to_prepare(much, config) > LONG


def test_what_is_decoded_without_being_compressed_is_as_much_work_as_it_is_large():
    records = batch_of(*range(3000), key=b"k")
    assert size_to_prepare(records, parse(TopicConfig, COMPACTED)) == len(records)


def placed(offset, *times, delta=None):
    """A batch as a leader sends it to a follower."""
    records = bytearray(batch_of(*times))
    if delta is not None:
        records = bytearray(patched(23, delta.to_bytes(4, "big"), records))
    patch_header(records, 0, offset, 0)
    return bytes(records)


def taken(*batches, end=0):
    return [batch.base_offset for batch in batches_of_leader(memoryview(b"".join(batches)), end)]


def test_a_followers_batches_lie_behind_its_end_and_one_another():
    assert taken(placed(5, 1, 2), placed(7, 1), placed(20, 1), end=5) == [5, 7, 20]
    with pytest.raises(LogError, match="the leader sent offset 4 where at least 5 is due"):
        taken(placed(4, 1), end=5)
    with pytest.raises(LogError, match="the leader sent offset 6 where at least 7 is due"):
        taken(placed(5, 1, 2), placed(6, 1), end=5)


def test_what_one_segment_cannot_hold_is_fetched_again():
    assert taken(placed(0, 1), placed(2**31 - 1, 1)) == [0, 2**31 - 1]
    assert taken(placed(0, 1), placed(2**31, 1)) == [0]
    assert taken(placed(0, 1), placed(2**31 - 1, 1, delta=1)) == [0]
    assert taken(placed(2**40, 1), placed(2**40 + 2**31 - 1, 1)) == [2**40, 2**40 + 2**31 - 1]


def test_no_batch_ends_beyond_all_offsets():
    last = 2**63 - 1
    assert taken(placed(last - 1, 1)) == [last - 1]
    with pytest.raises(CorruptRecord, match=f"at offset {last} that ends beyond all offsets"):
        taken(placed(last, 1))


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


def keyless_of(time, count):
    builder = RecordBatchBuilder(compression=CompressionType.ZSTD)
    for _ in range(count):
        builder.append(time, None, None)
    return builder.build()


@pytest.mark.parametrize(
    ("settings", "time"),
    [
        ({"cleanup.policy": "compact"}, NOW),
        ({"message.timestamp.before.max.ms": "10"}, NOW - 11),
        ({"message.timestamp.after.max.ms": "10"}, NOW + 11),
    ],
)
@pytest.mark.parametrize("more", [0, 1, 5000])
def test_of_many_records_to_blame_the_first_are_named(settings, time, more):
    batch = memoryview(bytearray(keyless_of(time, MOST_NAMED + more)))
    with pytest.raises(RecordsRefused) as caught:
        check(batch, parse(TopicConfig, settings))
    assert caught.value.records == tuple(range(MOST_NAMED))
    told = f"; {MOST_NAMED + more} records are to blame, of which the first {MOST_NAMED} are named"
    assert caught.value.reason.endswith(told) == bool(more)


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
    assert caught.value.code is ErrorCode.INVALID_RECORD


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


def lying(max_timestamp, *times, codec=CompressionType.NONE):
    """A batch whose header says another max timestamp than its records have."""
    return patched(layout.MAX_TIMESTAMP, max_timestamp.to_bytes(8, "big", signed=True), batch_of(*times, codec=codec))


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("told", [2**62, NOW + 1, NOW - 1, 0, -1, -(2**63)])
def test_a_max_timestamp_that_is_none_of_the_records_is_put_right(codec, told):
    records = lying(told, NOW - 9, NOW, NOW - 5, codec=codec)
    batch = check(records, TopicConfig())
    assert batch.max_timestamp == NOW
    stored = RecordBatch(records)
    stored.validate()
    assert bytes(records[: layout.CRC]) == bytes(batch_of(1, 2, 3, codec=codec)[: layout.CRC])
    assert bytes(records) == bytes(lying(NOW, NOW - 9, NOW, NOW - 5, codec=codec))
    assert prepare(lying(told, NOW, codec=codec), TopicConfig(), NOW).batch.max_timestamp == NOW


def test_where_no_record_has_a_time_the_header_says_so():
    assert check(lying(2**62, -1, -1), TopicConfig()).max_timestamp == -1


def test_a_right_header_is_left_alone():
    records = batch_of(5, 9, 7)
    as_sent = bytes(records)
    assert check(records.toreadonly(), TopicConfig()).max_timestamp == 9
    assert bytes(records) == as_sent


def test_the_header_is_put_right_before_the_batch_is_compressed_anew():
    prepared = prepare(lying(2**62, NOW), parse(TopicConfig, {"compression.type": "zstd"}), NOW)
    prepared.batch.validate()
    assert (prepared.batch.compression, prepared.batch.max_timestamp) == (CompressionType.ZSTD, NOW)


def test_bounds_on_times_do_not_have_pandas_imported():
    """Which takes a fifth of a second, in a process that may have to serve others."""
    program = f"""
import sys
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import RecordsRefused
from sparklog.log.validator import prepare
bounded = parse(TopicConfig, {{"message.timestamp.before.max.ms": "0"}})
prepare(memoryview(bytearray.fromhex("{bytes(batch_of(NOW)).hex()}")), bounded, {NOW})
try:
    prepare(memoryview(bytearray.fromhex("{bytes(batch_of(NOW, 1)).hex()}")), bounded, {NOW})
except RecordsRefused as refused:
    print(refused.records, "pandas" in sys.modules)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "(1,) False"


def claiming_append_time(*times, codec):
    batch = batch_of(*times, codec=codec)
    flag = batch[layout.ATTRIBUTES + 1] | layout.LOG_APPEND_TIME_BIT
    claimed = patched(layout.ATTRIBUTES + 1, bytes([flag]), batch)
    return patched(layout.MAX_TIMESTAMP, (2**62).to_bytes(8, "big"), claimed)


@pytest.mark.parametrize("codec", list(CompressionType))
def test_records_keep_their_own_times_whatever_a_client_says_of_the_log(codec):
    batch = check(claiming_append_time(NOW - 9, NOW, codec=codec), TopicConfig())
    assert (batch.timestamp_type, batch.max_timestamp) == (0, NOW)
    batch.validate()
    assert [record.timestamp for record in iter_records(batch)] == [NOW - 9, NOW]


@pytest.mark.parametrize("codec", list(CompressionType))
def test_only_a_log_may_say_that_it_gave_records_their_time(codec):
    stamped = parse(TopicConfig, {"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(ApiError, match="LogAppendTime") as caught:
        check(claiming_append_time(NOW, codec=codec), stamped)
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


# What another process has written, and is adopted


def adoptable(*times, key=b"k", codec=CompressionType.NONE, **header):
    how = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True} | header
    builder = RecordBatchBuilder(compression=codec, **how)
    for time in times or (NOW,):
        builder.append(time, key, b"v")
    return memoryview(bytearray(builder.build()))


def adopt(records, settings=None):
    validate_adopted(RecordBatch(records), parse(TopicConfig, settings or {}), NOW)


@pytest.mark.parametrize("codec", list(CompressionType))
def test_what_a_client_could_send_is_adopted(codec):
    records = adoptable(NOW - 5, NOW, NOW - 9, codec=codec)
    patch_header(records, 0, 1000, 3)
    adopt(records, {"max.message.bytes": str(len(records)), "cleanup.policy": "compact"})


MALFORMED = "malformed batch header: "
NO_PRODUCER = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
NOT_ADOPTED: dict[str, tuple[dict[str, Any], dict[str, str], ErrorCode, str]] = {
    "too large": ({}, {"max.message.bytes": "60"}, ErrorCode.MESSAGE_TOO_LARGE, r"larger than max\.message\.bytes=60"),
    "a marker": ({"is_control": True}, {}, ErrorCode.INVALID_RECORD, f"{MALFORMED}clients may not write control"),
    "no producer": (NO_PRODUCER, {}, ErrorCode.INVALID_RECORD, f"{MALFORMED}a transaction without a producer id"),
    "no sequence": ({"base_sequence": -1}, {}, ErrorCode.INVALID_RECORD, f"{MALFORMED}producer id 7 without a seq"),
    "no key": ({"key": None}, {"cleanup.policy": "compact,delete"}, ErrorCode.INVALID_RECORD, "without a key"),
    "too early": ({"times": (NOW - 11,)}, {"message.timestamp.before.max.ms": "10"}, ErrorCode.INVALID_TIMESTAMP, "11"),
}


@pytest.mark.parametrize("name", NOT_ADOPTED)
def test_what_a_client_could_not_send_is_not_adopted(name):
    changes, settings, code, complaint = NOT_ADOPTED[name]
    changes = changes.copy()
    with pytest.raises(ApiError, match=complaint) as refused:
        adopt(adoptable(*changes.pop("times", ()), **changes), settings)
    assert refused.value.code is code


def test_nothing_is_put_right_of_what_is_adopted():
    late = adoptable(NOW, NOW + 3)
    patch_max_timestamp(late, 0, NOW + 4)
    with pytest.raises(ApiError, match=f"max timestamp {NOW + 4}, its records' is {NOW + 3}") as refused:
        adopt(late)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    stamped = adoptable(NOW)
    patch_append_time(stamped, 0, NOW)
    with pytest.raises(ApiError, match="malformed batch header: it says that its time is LogAppendTime") as refused:
        adopt(stamped)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    wrong = patched(layout.LAST_OFFSET_DELTA, b"\0\0\0\x05", adoptable(NOW))
    with pytest.raises(ApiError, match="malformed batch header: 1 records but a last offset delta of 5"):
        adopt(wrong)


def test_what_cannot_be_read_is_neither_adopted_nor_restored():
    records = adoptable(NOW, NOW)
    broken = patched(61, b"\xff" * (len(records) - 61), records)
    for look in (adopt, lambda each: validate_restored(RecordBatch(each))):
        with pytest.raises(ApiError, match="the records cannot be read") as refused:
            look(broken)
        assert refused.value.code is ErrorCode.INVALID_RECORD


def test_what_javas_clients_do_not_read_is_not_taken_and_yet_restored():
    """They would get no further in the partition; librdkafka's and ours do."""
    plain = adoptable(NOW, NOW)
    header, section = plain[:61], plain[61:]
    linked = bytes(cramjam.lz4.compress(section))
    halves = compress(CompressionType.LZ4, section[:9]) + compress(CompressionType.LZ4, section[9:])
    for payload, why in ((linked, "dependent blocks"), (halves, "behind the LZ4 frame")):
        length = (len(header) + len(payload) - layout.LOG_OVERHEAD).to_bytes(4, "big")
        whole = patched(layout.LENGTH, length, memoryview(bytearray(header) + payload), seal=False)
        records = patched(layout.ATTRIBUTES, bytes([0, 0x10 | CompressionType.LZ4]), whole)
        for look in (lambda each: check(each, TopicConfig()), adopt):
            with pytest.raises(ApiError, match=why) as refused:
                look(records)
            assert refused.value.code is ErrorCode.INVALID_RECORD
        validate_restored(RecordBatch(records))


def test_what_was_in_a_log_before_is_restored_though_no_client_could_send_it():
    marker = build_marker(EndTransactionMarker(ControlType.ABORT, 3), ProducerIdAndEpoch(7, 0), NOW)
    hole = patched(layout.LAST_OFFSET_DELTA, b"\0\0\0\x05", adoptable(NOW))
    empty = adoptable(NOW)[:61]
    empty[8:12] = (49).to_bytes(4, "big")
    empty[layout.RECORD_COUNT : layout.RECORD_COUNT + 4] = bytes(4)
    for records in (marker, hole, empty, adoptable(NOW, key=None)):
        validate_restored(RecordBatch(records))
    with pytest.raises(CorruptRecord):
        validate_restored(RecordBatch(adoptable(NOW, key=b"no marker", is_control=True)))
    emptied = patched(layout.RECORD_COUNT, bytes(4), marker)
    validate_restored(RecordBatch(emptied))
