"""The primitive types, read and written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import LocalProtocolError, RemoteProtocolError
from sparklog.protocol.wire import MOST_OF_STRING, MOST_TAGS, MOST_TAGS_IN_ALL, WireReader, WireWriter, frame
from sparklog.structs import FileSlice

FLEXIBLE = pytest.mark.parametrize("flexible", [False, True])


def written(writer):
    return memoryview(b"".join(writer.chunks()))


@FLEXIBLE
@given(
    numbers=st.tuples(
        st.integers(-(2**7), 2**7 - 1),
        st.integers(-(2**15), 2**15 - 1),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(0, 2**32 - 1),
    ),
    text=st.none() | st.text(max_size=300),
    identity=st.uuids(),
)
def test_what_is_written_is_read(flexible, numbers, text, identity):
    writer = WireWriter(flexible=flexible)
    kinds = ("int8", "int16", "int32", "int64", "uvarint")
    for kind, number in zip(kinds, numbers, strict=True):
        getattr(writer, kind)(number)
    writer.string(text)
    writer.uuid(identity)
    writer.tags()
    data = written(writer)
    reader = WireReader(data, flexible=flexible)
    assert tuple(getattr(reader, kind)() for kind in kinds) == numbers
    assert reader.string_or_none() == text
    assert reader.uuid() == identity
    reader.skip_tags()
    assert reader.position == len(data)


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**31, "8080808008"), (2**32 - 1, "ffffffff0f")],
)
def test_unsigned_varints_are_the_protocols(value, data):
    writer = WireWriter(flexible=True)
    writer.uvarint(value)
    assert written(writer).hex() == data
    assert WireReader(memoryview(bytes.fromhex(data))).uvarint() == value


@pytest.mark.parametrize("data", ["", "80", "ffffffff", "808080808001", "ffffffffffffffff"])
def test_a_varint_that_does_not_end_is_refused(data):
    with pytest.raises(RemoteProtocolError, match="varint"):
        WireReader(memoryview(bytes.fromhex(data))).uvarint()


@pytest.mark.parametrize("read", ["int8", "int16", "int32", "int64", "uuid", "string", "bytes_or_none"])
@FLEXIBLE
def test_nothing_is_read_past_the_end(read, flexible):
    with pytest.raises(RemoteProtocolError):
        getattr(WireReader(memoryview(b""), flexible=flexible), read)()


@pytest.mark.parametrize(
    ("flexible", "data"),
    [(False, b"\x7f\xff\xff\xff12345"), (True, b"\xff\xff\xff\xff\x0f12345"), (False, b"\0\0\0\x06\0\0\0\0\0")],
)
def test_a_length_beyond_the_message_is_refused_before_anything_is_made_for_it(flexible, data):
    for read in ("bytes_or_none", "array_length"):
        with pytest.raises(RemoteProtocolError, match="claims"):
            getattr(WireReader(memoryview(data), flexible=flexible), read)()


@FLEXIBLE
def test_null_and_empty_differ(flexible):
    writer = WireWriter(flexible=flexible)
    for text in (None, ""):
        writer.string(text)
    for size in (None, 0):
        writer.array_length(size)
    reader = WireReader(written(writer), flexible=flexible)
    assert [reader.string_or_none(), reader.string_or_none()] == [None, ""]
    assert [reader.array_length(), reader.array_length()] == [0, 0]


def test_a_string_that_must_be_there_may_not_be_null():
    with pytest.raises(RemoteProtocolError, match="null"):
        WireReader(memoryview(b"\xff\xff")).string()


def test_a_string_is_utf_8():
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        WireReader(memoryview(b"\0\x02\xff\xfe")).string()


def test_a_string_is_as_long_as_two_bytes_can_say_in_either_encoding():
    for flexible in (False, True):
        writer = WireWriter(flexible=flexible)
        writer.string("a" * MOST_OF_STRING)
        assert WireReader(written(writer), flexible=flexible).string() == "a" * MOST_OF_STRING
    longer = WireWriter(flexible=True)
    longer.uvarint(MOST_OF_STRING + 2)
    longer.raw(b"a" * (MOST_OF_STRING + 1))
    reader = WireReader(written(longer), flexible=True)
    with pytest.raises(RemoteProtocolError, match="a string of 32768 bytes is longer than 32767"):
        reader.string_or_none()


def with_tags(count):
    writer = WireWriter(flexible=True)
    writer.tagged(dict.fromkeys(range(count), b"??"))
    return writer.data()


@FLEXIBLE
def test_no_longer_string_is_written_than_is_read(flexible):
    writer = WireWriter(flexible=flexible)
    writer.string("é" * (MOST_OF_STRING // 2))
    with pytest.raises(LocalProtocolError, match="a string of 32768 bytes is longer than 32767"):
        writer.string("é" * (MOST_OF_STRING // 2 + 1))


def test_a_structure_has_a_hundred_tagged_fields_at_most():
    reader = WireReader(memoryview(with_tags(MOST_TAGS)), flexible=True)
    reader.skip_tags()
    assert reader.position == len(reader.buffer)
    with pytest.raises(RemoteProtocolError, match="101 tagged fields"):
        WireReader(memoryview(with_tags(MOST_TAGS + 1)), flexible=True).skip_tags()


def test_the_structures_of_a_message_have_fifty_thousand_tagged_fields_at_most():
    reader = WireReader(memoryview(with_tags(MOST_TAGS)), flexible=True)
    for _ in range(MOST_TAGS_IN_ALL // MOST_TAGS):
        reader.position = 0
        reader.skip_tags()
    reader.position = 0
    with pytest.raises(RemoteProtocolError, match="a message 50000"):
        reader.skip_tags()


def test_bytes_are_a_view_of_the_message():
    data = bytearray(b"\0\0\0\x03abc")
    view = WireReader(memoryview(data)).bytes_or_none()
    data[4] = ord("X")
    assert bytes(view) == b"Xbc"


def test_records_pass_through_uncopied():
    payload = memoryview(bytearray(b"records"))
    writer = WireWriter()
    writer.int8(1)
    writer.records([payload, FileSlice(None, 0, 100)])
    writer.int8(2)
    head, records, piece, tail = writer.chunks()
    assert bytes(head) == b"\x01\0\0\0\x6b"
    assert records is payload
    assert piece == FileSlice(None, 0, 100)
    assert bytes(tail) == b"\x02"


def test_a_frame_counts_file_slices_too():
    piece = FileSlice(None, 5, 1000)
    assert frame([b"ab", piece, b"c"]) == [b"\0\0\x03\xebab", piece, b"c"]
    assert frame([piece]) == [b"\0\0\x03\xe8", piece]
    assert frame([]) == [b"\0\0\0\0"]
