import struct

import cramjam
import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from record.legacy_bytes import APPEND_TIME, GZIP, LZ4, SNAPPY, entry, sealed, with_old_checksum, wrapper

from sparklog.errors import CorruptRecord
from sparklog.record.compression import CompressionType, compress
from sparklog.record.legacy.lz4_header import with_right_checksum
from sparklog.record.legacy.message import Format
from sparklog.record.legacy.message_set import iter_messages, unwrap
from sparklog.record.records import Record

# offset 5, size 16 | CRC, magic, attributes | key | value
MAGIC_0 = bytes.fromhex("0000000000000005 00000010 1fecd70a 00 00 00000001 6b 00000001 76")
# offset 6, size 22 | CRC, magic, attributes, timestamp 1000 | null | null
MAGIC_1 = bytes.fromhex("0000000000000006 00000016 40e6aeb7 01 08 00000000000003e8 ffffffff ffffffff")


def one(data):
    (message,) = iter_messages(data, partial_tail=False)
    return message


def deep(data, **settings):
    return [record for message in iter_messages(data, partial_tail=False) for record in unwrap(message, **settings)]


def records(data):
    return [message.record() for message in deep(data)]


def offsets(data):
    return [message.offset for message in deep(data)]


def test_each_field_of_magic_0():
    assert one(MAGIC_0) == (0, 28, 5, Format.MAGIC_0, 0, 0, 0x1FECD70A, True, -1, -1, b"k", b"v")


def test_each_field_of_magic_1():
    assert one(MAGIC_1) == (0, 34, 6, Format.MAGIC_1, 1, 8, 0x40E6AEB7, True, 1000, 1, None, None)


def test_the_entries_of_a_set():
    messages = list(iter_messages(MAGIC_0 + MAGIC_1 + MAGIC_0, partial_tail=False))
    assert [(each.position, each.size, each.magic) for each in messages] == [(0, 28, 0), (28, 34, 1), (62, 28, 0)]
    assert [each.position for each in iter_messages(MAGIC_0 + MAGIC_1, 28)] == [28]
    assert list(iter_messages(b"")) == []


def test_a_message_as_a_record():
    assert records(MAGIC_0 + MAGIC_1) == [Record(5, -1, b"k", b"v", ()), Record(6, 1000, None, None, ())]


def test_fields_are_views_of_the_buffer():
    data = bytearray(MAGIC_0)
    message = one(data)
    data[-1:] = b"w"
    assert message.value == b"w"


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_any_negative_length_is_null(magic, length):
    head = bytes((magic, 0)) + bytes(8 * magic)
    message = one(sealed(0, head + struct.pack(">ii", length, length)))
    assert (message.key, message.value) == (None, None)
    assert message.crc_ok


def test_empty_is_not_null():
    assert records(entry(0, b"", b"")) == [Record(0, -1, b"", b"", ())]


def test_unknown_attribute_bits_are_ignored():
    assert records(entry(0, b"k", b"v", attributes=0xF0)) == [Record(0, -1, b"k", b"v", ())]
    assert one(entry(0, None, b"", magic=0, attributes=APPEND_TIME)).timestamp_type == -1


@pytest.mark.parametrize("kind", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_every_compression(magic, kind):
    inner = b"".join(entry(n, b"%d" % n, b"v" * n, magic=magic, timestamp=n * 10) for n in range(100))
    data = wrapper(99, inner, kind, magic=magic)
    assert one(data).compression is kind
    assert records(data) == [Record(n, n * 10 if magic else -1, b"%d" % n, b"v" * n, ()) for n in range(100)]


def test_magic_0_messages_have_their_own_offsets():
    assert offsets(wrapper(9, entry(3, None, b"") + entry(7, None, b"") + entry(9, None, b""))) == [3, 7, 9]
    assert offsets(wrapper(9, entry(3, None, b"") + entry(7, None, b""))) == [3, 7]


@pytest.mark.parametrize(
    ("wrapper_offset", "relative", "absolute"),
    [
        (107, [0, 1, 2], [105, 106, 107]),
        (107, [2, 5], [104, 107]),
        (2, [0, 1, 2], [0, 1, 2]),
        (0, [0, 1, 2], [0, 1, 2]),
    ],
    ids=["fresh", "compacted", "first", "offset 0 sent for all"],
)
def test_magic_1_messages_have_relative_offsets(wrapper_offset, relative, absolute):
    inner = b"".join(entry(offset, None, b"", magic=1) for offset in relative)
    assert offsets(wrapper(wrapper_offset, inner, magic=1)) == absolute


def test_a_wrappers_offset_cannot_precede_its_last_message():
    with pytest.raises(CorruptRecord, match="relative offset 3"):
        deep(wrapper(2, entry(3, None, b"", magic=1), magic=1))


def test_a_relative_offset_cannot_leave_64_bits():
    inner = entry(2**63 - 1, None, b"", magic=1) + entry(0, None, b"", magic=1)
    with pytest.raises(CorruptRecord, match="relative offset"):
        deep(wrapper(5, inner, magic=1))


def test_log_append_time_is_the_wrappers():
    inner = entry(0, None, b"", magic=1, timestamp=10) + entry(1, None, b"", magic=1, timestamp=20)
    created = deep(wrapper(1, inner, magic=1, timestamp=77))
    assert [(each.timestamp, each.timestamp_type) for each in created] == [(10, 0), (20, 0)]
    appended = deep(wrapper(1, inner, magic=1, timestamp=77, attributes=APPEND_TIME))
    assert [(each.timestamp, each.timestamp_type) for each in appended] == [(77, 1), (77, 1)]


def test_a_wrapper_may_hold_the_other_magic():
    inner = entry(0, None, b"old") + entry(1, None, b"new", magic=1, timestamp=20)
    mixed = deep(wrapper(11, inner, magic=1, timestamp=77, attributes=APPEND_TIME))
    assert [(each.offset, each.timestamp, each.timestamp_type) for each in mixed] == [(10, -1, -1), (11, 77, 1)]
    mixed = deep(wrapper(1, inner, magic=0))
    assert [(each.offset, each.timestamp, each.timestamp_type) for each in mixed] == [(0, -1, -1), (1, 20, -1)]


def test_a_wrong_crc_is_seen_and_refused():
    data = bytearray(MAGIC_0)
    data[-1] ^= 1
    assert one(data).crc_ok is False
    with pytest.raises(CorruptRecord, match="CRC"):
        deep(data)


def test_a_wrong_crc_in_a_wrapper_is_refused():
    inner = bytearray(MAGIC_0)
    inner[-1] ^= 1
    with pytest.raises(CorruptRecord, match="CRC"):
        deep(wrapper(5, bytes(inner)))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_in_a_wrapper_is_refused(magic):
    inner = wrapper(0, entry(0, None, b"", magic=magic), SNAPPY, magic=magic)
    with pytest.raises(CorruptRecord, match="within a compressed message"):
        deep(wrapper(0, inner, magic=magic))


@pytest.mark.parametrize("code", [4, 5, 6, 7])
@pytest.mark.parametrize("magic", [0, 1])
def test_an_unknown_compression_is_refused(magic, code):
    with pytest.raises(CorruptRecord, match=f"code {code}"):
        deep(entry(0, None, compress(CompressionType.ZSTD, MAGIC_0), magic=magic, attributes=code))


def test_a_wrapper_must_hold_something():
    with pytest.raises(CorruptRecord, match="no value"):
        deep(entry(0, None, None, attributes=GZIP))
    with pytest.raises(CorruptRecord, match="no messages"):
        deep(wrapper(0, b""))


@pytest.mark.parametrize("cut", [1, 11, 20])
def test_a_wrapper_must_hold_whole_messages(cut):
    with pytest.raises(CorruptRecord, match="ends within a message"):
        deep(wrapper(5, MAGIC_0 + MAGIC_0[:-cut]))


@pytest.mark.parametrize("kind", [GZIP, SNAPPY, LZ4])
def test_a_bomb_is_refused(kind):
    inner = entry(0, None, bytes(100_000))
    bomb = wrapper(0, inner, kind)
    assert len(deep(bomb, max_decompressed=len(inner))) == 1
    with pytest.raises(CorruptRecord):
        deep(bomb, max_decompressed=len(inner) - 1)


def test_a_tail_may_be_incomplete():
    for missing in range(1, len(MAGIC_1)):
        cut = MAGIC_0 + MAGIC_1[:-missing]
        assert [each.offset for each in iter_messages(cut)] == [5]
        with pytest.raises(CorruptRecord):
            list(iter_messages(cut, partial_tail=False))


@pytest.mark.parametrize("partial_tail", [True, False])
@pytest.mark.parametrize(
    "bad",
    [
        MAGIC_0[:8] + bytes.fromhex("ffffffff") + MAGIC_0[12:],
        MAGIC_0[:8] + bytes.fromhex("0000000d") + MAGIC_0[12:],
        MAGIC_1[:8] + bytes.fromhex("00000015") + MAGIC_1[12:],
        MAGIC_0[:16] + b"\x02" + MAGIC_0[17:],
        sealed(0, bytes(2) + struct.pack(">i", 5) + b"1234"),
        sealed(0, bytes(2) + struct.pack(">ii", 2**31 - 1, 0)),
        sealed(0, bytes(2) + struct.pack(">ii", 0, 1)),
        sealed(0, bytes(2) + struct.pack(">ii", 0, 0) + b"more"),
    ],
    ids=["negative size", "too small", "too small with timestamp", "magic 2", "key", "long key", "value", "slack"],
)
def test_what_cannot_be_a_message_is_refused(bad, partial_tail):
    with pytest.raises(CorruptRecord):
        list(iter_messages(bad, partial_tail=partial_tail))


def test_an_impossible_size_is_not_an_incomplete_tail():
    with pytest.raises(CorruptRecord, match="size 13"):
        list(iter_messages(MAGIC_0 + bytes(8) + struct.pack(">i", 13)))


def test_a_length_beyond_the_message_is_named():
    with pytest.raises(CorruptRecord, match="field of 7 bytes in 4"):
        one(sealed(0, bytes(2) + struct.pack(">ii", 7, 0)))


def test_a_position_outside_the_buffer():
    assert list(iter_messages(MAGIC_0, len(MAGIC_0) + 1)) == []
    for partial_tail in (True, False):
        with pytest.raises(CorruptRecord):
            list(iter_messages(MAGIC_0, -1, partial_tail=partial_tail))


def test_only_magic_0_may_have_the_old_lz4_checksum():
    frame = with_old_checksum(compress(LZ4, entry(0, None, b"v", magic=1)))
    assert len(deep(entry(0, None, frame, attributes=LZ4))) == 1
    with pytest.raises(CorruptRecord):
        deep(entry(0, None, frame, magic=1, attributes=LZ4))


@pytest.mark.parametrize("data", [b"", b"a", b"abc" * 50_000])
def test_the_right_lz4_checksum(data):
    frame = compress(LZ4, data)
    for wrong in (b"\0", b"\xff"):
        assert with_right_checksum(memoryview(frame[:6] + wrong + frame[7:])) == frame


@pytest.mark.parametrize("size", [9, 2**40 + 9])
def test_the_right_lz4_checksum_behind_a_content_size(size):
    """The checksum is right where the decoder, which checks it, gets as far as the content."""
    frame = compress(LZ4, b"some data")
    sized = b"".join((frame[:4], bytes([frame[4] | 0x08]), frame[5:6], struct.pack("<Q", size), b"\0", frame[7:]))
    with pytest.raises(cramjam.DecompressionError, match=r"(?i)header"):
        cramjam.lz4.decompress(sized)
    repaired = with_right_checksum(memoryview(sized))
    if size == 9:
        assert bytes(cramjam.lz4.decompress(repaired)) == b"some data"
    else:
        with pytest.raises(cramjam.DecompressionError, match=r"(?i)size"):
            cramjam.lz4.decompress(repaired)


@pytest.mark.parametrize("length", range(15))
def test_a_short_lz4_frame_is_left_alone(length):
    frame = (b"\x04\x22\x4d\x18\x68\x40" + bytes(9))[:length]
    assert with_right_checksum(memoryview(frame)) == frame


@pytest.mark.parametrize("compression", [0, GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_what_kafka_python_writes(magic, compression):
    builder = LegacyRecordBatchBuilder(magic, int(compression), 1 << 20)
    written = [(b"key", b"value"), (None, b""), (b"", None), (b"k" * 300, b"v" * 3000)]
    for offset, (key, value) in enumerate(written):
        builder.append(offset, 1000 + offset, key, value)
    expected = [Record(n, 1000 + n if magic else -1, key, value, ()) for n, (key, value) in enumerate(written)]
    assert records(builder.build()) == expected
