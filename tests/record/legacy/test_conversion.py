import pytest
from golden.samples import golden_records
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from record.legacy_bytes import APPEND_TIME, GZIP, LZ4, SNAPPY, entry, sealed, with_old_checksum, wrapper

from sparklog.errors import CorruptRecord
from sparklog.record import layout
from sparklog.record.batch import RecordBatch, patch_append_time, patch_header
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType, compress
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.record.legacy.conversion import LargeRecords, UnfitRecords, to_batch, to_message_set
from sparklog.record.legacy.lz4_header import with_wrong_checksum
from sparklog.record.legacy.message_set import iter_messages, unwrap
from sparklog.record.records import iter_records

KINDS = [CompressionType.NONE, GZIP, SNAPPY, LZ4]
MAGICS = [0, 1]
FIELDS = st.none() | st.binary(max_size=30)
RECORDS = st.lists(st.tuples(st.integers(-1, 2**40), FIELDS, FIELDS), min_size=1, max_size=20)


def batch_of(records, kind=CompressionType.NONE, base_offset=0, **header):
    builder = RecordBatchBuilder(kind, base_offset=base_offset, **header)
    for time, key, value in records:
        builder.append(time, key, value, [("left", b"out")])
    return builder.build()


def down(*arguments, **settings):
    return to_message_set(*arguments, **settings).data


def messages(message_set):
    return [message for each in iter_messages(message_set, partial_tail=False) for message in unwrap(each)]


def told(message_set):
    """Offset, time, key and value of each message."""
    return [
        (each.offset, each.timestamp, *(None if f is None else bytes(f) for f in (each.key, each.value)))
        for each in messages(message_set)
    ]


def of_batch(data):
    return [(each.timestamp, each.key, each.value) for each in iter_records(RecordBatch(data))]


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("kind", KINDS)
@given(records=RECORDS, base_offset=st.integers(0, 2**40))
def test_down_and_up_again_is_the_same(kind, magic, records, base_offset):
    message_set = down(batch_of(records, kind, base_offset), magic, 0)
    kept = [(time if magic else -1, key, value) for time, key, value in records]
    assert told(message_set) == [(base_offset + number, *each) for number, each in enumerate(kept)]
    again = to_batch(message_set)
    assert of_batch(again) == kept
    batch = RecordBatch(again)
    batch.validate()
    assert (batch.compression, batch.base_offset, batch.producer_id) == (kind, 0, layout.NO_PRODUCER_ID)
    assert batch.max_timestamp == max(time for time, _, _ in kept)


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("kind", [CompressionType.NONE, GZIP])  # it wants libraries for the others
def test_another_projects_reader_reads_what_is_made(kind, magic):
    records = [(1000 + number, b"key %d" % number, b"value" * number) for number in range(10)]
    made = MemoryRecords(down(batch_of(records, kind), magic, 0))
    read = [record for each in iter(made.next_batch, None) for record in each]
    assert [(each.offset, each.key, each.value) for each in read] == [
        (number, key, value) for number, (_, key, value) in enumerate(records)
    ]
    if magic:
        assert [each.timestamp for each in read] == [time for time, _, _ in records]


def test_the_bytes_of_a_plain_message():
    data = batch_of([(1000, b"k", b"v"), (1001, None, None)], base_offset=5)
    assert down(data, 0, 0) == entry(5, b"k", b"v") + entry(6, None, None)
    assert down(data, 1, 0) == (
        entry(5, b"k", b"v", magic=1, timestamp=1000) + entry(6, None, None, magic=1, timestamp=1001)
    )


def test_offsets_in_a_wrapper_are_absolute_in_magic_0_and_relative_in_magic_1():
    data = batch_of([(7, None, b"a"), (9, None, b"b")], GZIP, base_offset=40)
    inner_0 = entry(40, None, b"a") + entry(41, None, b"b")
    assert down(data, 0, 0) == wrapper(41, inner_0)
    inner_1 = entry(0, None, b"a", magic=1, timestamp=7) + entry(1, None, b"b", magic=1, timestamp=9)
    assert down(data, 1, 0) == wrapper(41, inner_1, magic=1, timestamp=9)


@pytest.mark.parametrize("size", [0, 3, 70_000])
def test_lz4_of_magic_0_has_the_checksum_of_its_time(size):
    frame = compress(LZ4, b"x" * size)
    assert with_wrong_checksum(memoryview(frame)) == with_old_checksum(frame)


def test_a_plain_batch_begins_where_it_is_asked_and_a_wrapper_has_all():
    records = [(0, None, b"%d" % number) for number in range(4)]
    plain, packed = batch_of(records, base_offset=10), batch_of(records, GZIP, base_offset=14)
    assert [each.offset for each in messages(down(plain + packed, 1, 12))] == [12, 13, 14, 15, 16, 17]
    assert [each.offset for each in messages(down(packed, 1, 16))] == [14, 15, 16, 17]
    assert [to_message_set(each, 1, 18) for each in (plain, packed, b"")] == [(b"", 4, 14), (b"", 4, 18), (b"", 0, 18)]


def test_no_batch_is_looked_at_behind_enough():
    first = batch_of([(0, None, b"first")])
    damaged = bytearray(batch_of([(0, None, b"second")], base_offset=1))
    damaged[-1] ^= 1
    for enough in (0, 1):
        assert told(down(first + bytes(damaged), 1, 0, enough=enough)) == [(0, 0, None, b"first")]
    with pytest.raises(CorruptRecord):
        down(first + bytes(damaged), 1, 0)


def test_markers_and_empty_batches_are_left_out_and_a_cut_end_is():
    control = bytearray(build_marker(EndTransactionMarker(ControlType.COMMIT, 0), ProducerIdAndEpoch(7, 0), 1000))
    patch_header(control, 0, 1, 0)
    empty = bytearray(batch_of([(0, None, b"gone")], base_offset=2)[: layout.HEADER_SIZE])
    layout.INT32.pack_into(empty, layout.LENGTH, layout.HEADER_SIZE - layout.LOG_OVERHEAD)
    layout.INT32.pack_into(empty, layout.HEADER_SIZE - 4, 0)
    last = batch_of([(0, None, b"there")], base_offset=3)
    data = batch_of([(0, None, b"here")]) + bytes(control) + bytes(empty) + last + last[:-1]
    assert [each.offset for each in messages(down(data, 1, 0))] == [0, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_the_time_that_the_log_gave_is_every_messages(kind):
    data = bytearray(batch_of([(1, None, b"a"), (2, None, b"b")], kind))
    patch_append_time(data, 0, 5000)
    made = messages(down(bytes(data), 1, 0))
    assert [(each.timestamp, each.timestamp_type) for each in made] == [(5000, 1), (5000, 1)]
    assert [each.timestamp for each in messages(down(bytes(data), 0, 0))] == [-1, -1]


def test_zstd_has_no_old_form():
    with pytest.raises(UnfitRecords, match="zstd is for clients that speak Fetch 10"):
        down(batch_of([(0, None, b"z")], CompressionType.ZSTD), 1, 0)


def test_what_lies_before_a_batch_in_zstd_is_given():
    data = batch_of([(0, None, b"a")]) + batch_of([(0, None, b"z")], CompressionType.ZSTD, base_offset=1)
    assert told(down(data, 1, 0)) == [(0, 0, None, b"a")]
    with pytest.raises(UnfitRecords):
        down(data, 1, 1)


def test_what_golden_records_become():
    records = [each._replace(headers=()) for each in golden_records()]
    data = batch_of([(each.timestamp, each.key, each.value) for each in records])
    assert of_batch(to_batch(down(data, 1, 0))) == [(e.timestamp, e.key, e.value) for e in records]


def test_a_set_without_a_whole_message_is_nothing():
    assert to_batch(b"") is None
    assert to_batch(entry(0, None, b"cut")[:-1]) is None
    assert of_batch(to_batch(entry(0, None, b"whole") + entry(1, None, b"cut")[:-1])) == [(-1, None, b"whole")]


def test_magics_may_be_mixed():
    data = entry(0, None, b"0") + entry(0, None, b"1", magic=1, timestamp=9)
    assert of_batch(to_batch(data)) == [(-1, None, b"0"), (9, None, b"1")]


def flipped(data):
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("data", "error", "why"),
    [
        (flipped(entry(0, None, b"x")), CorruptRecord, "CRC"),
        (flipped(wrapper(0, entry(0, None, b"x"))), CorruptRecord, "CRC"),
        (wrapper(0, flipped(entry(0, None, b"x"))), UnfitRecords, "cannot be read: .*CRC"),
        (wrapper(0, b""), UnfitRecords, "holds no messages"),
        (wrapper(0, wrapper(0, entry(0, None, b"x"))), UnfitRecords, "within a compressed message"),
        (entry(0, None, b"no gzip", attributes=GZIP), UnfitRecords, "cannot be read"),
        (entry(0, None, None, attributes=GZIP), UnfitRecords, "has no value"),
        (wrapper(0, entry(0, None, b"x")) * 2, UnfitRecords, "the only one of its set"),
        (entry(0, None, b"x") + wrapper(1, entry(1, None, b"y")), UnfitRecords, "the only one of its set"),
        (entry(0, None, b"x", magic=1, timestamp=-2), UnfitRecords, "message 0 of the set has the time -2 ms"),
        (sealed(0, b"\x02" + bytes(20)), CorruptRecord, "magic 2"),
        (entry(0, None, b"x", attributes=5), CorruptRecord, "compression code 5"),
    ],
)
def test_what_is_refused(data, error, why):
    with pytest.raises(error, match=why):
        to_batch(data)


def test_a_wrapper_may_not_become_more_than_is_allowed():
    bomb = wrapper(0, entry(0, None, bytes(1 << 20)))
    with pytest.raises(UnfitRecords, match="cannot be read"):
        to_batch(bomb, max_decompressed=1 << 16)


def test_what_is_too_large_is_left_as_soon_as_that_shows():
    """Damage behind it is not come to."""
    damage = flipped(entry(0, None, b"x"))
    for large in (entry(0, None, bytes(200)), entry(0, None, bytes(60)) * 2):
        with pytest.raises(LargeRecords):
            to_batch(large + damage, largest=150)
    assert of_batch(to_batch(wrapper(0, entry(0, None, bytes(200))), largest=150)) == [(-1, None, bytes(200))]


def test_a_claim_of_the_logs_time_is_not_believed():
    data = entry(0, None, b"x", magic=1, attributes=APPEND_TIME, timestamp=4)
    assert RecordBatch(to_batch(data)).timestamp_type == 0
