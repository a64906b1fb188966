import struct

import pytest
from record.legacy_bytes import GZIP, SNAPPY, first, first_wrapper

from sparklog.errors import CorruptRecord
from sparklog.record.legacy.first_format import iter_messages, unwrap
from sparklog.record.legacy.message import Format
from sparklog.record.records import Record

# length 7 | magic | CRC | payload
MAGIC_0 = bytes.fromhex("00000007 00 d8932aac") + b"hi"
# length 8 | magic, attributes | CRC | payload
MAGIC_1 = bytes.fromhex("00000008 01 00 d8932aac") + b"hi"


def one(data):
    (message,) = iter_messages(data, partial_tail=False)
    return message


def deep(data, **settings):
    return [record for message in iter_messages(data, partial_tail=False) for record in unwrap(message, **settings)]


def test_each_field_of_magic_0():
    assert one(MAGIC_0) == (0, 11, 0, Format.FIRST, 0, 0, 0xD8932AAC, True, -1, -1, None, b"hi")


def test_each_field_of_magic_1():
    assert one(MAGIC_1) == (0, 12, 0, Format.FIRST, 1, 0, 0xD8932AAC, True, -1, -1, None, b"hi")


def test_an_offset_is_a_byte_position():
    messages = list(iter_messages(MAGIC_0 + MAGIC_1 + MAGIC_0, base_offset=1000))
    assert [(each.position, each.offset) for each in messages] == [(0, 1000), (11, 1011), (23, 1023)]
    assert [each.offset for each in iter_messages(MAGIC_0 + MAGIC_1, 11, base_offset=1000)] == [1011]


@pytest.mark.parametrize("kind", [GZIP, SNAPPY])
def test_compressed_messages_have_the_wrappers_offset(kind):
    data = MAGIC_0 + first_wrapper(first(b"a") + first(b"", magic=0) + first(b"c"), kind) + MAGIC_1
    end = len(data) - len(MAGIC_1)
    values = [(0, b"hi"), (11, b"a"), (11, b""), (11, b"c"), (end, b"hi")]
    assert [message.record() for message in deep(data)] == [Record(at, -1, None, value, ()) for at, value in values]


def test_an_empty_wrapper_holds_nothing():
    assert deep(first_wrapper(b"")) == []


def test_magic_0_has_no_attributes():
    message = one(first(bytes([GZIP]) * 3, magic=0))
    assert (message.attributes, message.value) == (0, b"\x01\x01\x01")


def test_unknown_attribute_bits_are_ignored():
    assert [message.value for message in deep(first(b"v", attributes=0xFC))] == [b"v"]


def test_a_compression_of_later_formats_is_refused():
    with pytest.raises(CorruptRecord, match="code 3"):
        deep(first(b"v", attributes=3))


@pytest.mark.parametrize("data", [MAGIC_0, MAGIC_1])
def test_the_crc_is_the_payloads(data):
    damaged = data[:-1] + b"o"
    assert one(damaged).crc_ok is False
    with pytest.raises(CorruptRecord, match="CRC"):
        deep(damaged)
    with pytest.raises(CorruptRecord, match="CRC"):
        deep(first_wrapper(damaged))


def test_a_wrapper_in_a_wrapper_is_refused():
    with pytest.raises(CorruptRecord, match="within a compressed message"):
        deep(first_wrapper(first_wrapper(first(b"v"))))


def test_a_wrapper_must_hold_whole_messages():
    with pytest.raises(CorruptRecord):
        deep(first_wrapper(MAGIC_1 + MAGIC_1[:-1]))


def test_a_bomb_is_refused():
    inner = first(bytes(100_000))
    assert len(deep(first_wrapper(inner), max_decompressed=len(inner))) == 1
    with pytest.raises(CorruptRecord):
        deep(first_wrapper(inner), max_decompressed=len(inner) - 1)


def test_a_tail_may_be_incomplete():
    for missing in range(1, len(MAGIC_1)):
        cut = MAGIC_0 + MAGIC_1[:-missing]
        assert [each.offset for each in iter_messages(cut)] == [0]
        with pytest.raises(CorruptRecord):
            list(iter_messages(cut, partial_tail=False))


@pytest.mark.parametrize("partial_tail", [True, False])
@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(">i", -1) + MAGIC_0[4:],
        struct.pack(">i", 4) + MAGIC_0[4:],
        struct.pack(">i", 5) + MAGIC_1[4:],
        MAGIC_0[:4] + b"\x02" + MAGIC_0[5:],
    ],
    ids=["negative length", "too short", "too short with attributes", "magic 2"],
)
def test_what_cannot_be_a_message_is_refused(bad, partial_tail):
    with pytest.raises(CorruptRecord):
        list(iter_messages(bad, partial_tail=partial_tail))


def test_an_impossible_length_is_not_an_incomplete_tail():
    with pytest.raises(CorruptRecord, match="length 4"):
        list(iter_messages(MAGIC_0 + struct.pack(">i", 4)))


def test_a_position_outside_the_buffer():
    assert list(iter_messages(MAGIC_0, len(MAGIC_0) + 1)) == []
    for partial_tail in (True, False):
        with pytest.raises(CorruptRecord):
            list(iter_messages(MAGIC_0, -1, partial_tail=partial_tail))
