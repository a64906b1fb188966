"""Whatever the bytes are, the readers give messages or raise CorruptRecord; and what they give was written so."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from record.legacy_bytes import GZIP, LZ4, SNAPPY, entry, first, first_wrapper, wrapper

from sparklog.errors import CorruptRecord
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.columnar import COLUMNS
from sparklog.record.legacy import first_format, message_set
from sparklog.record.legacy.columns import read_columns
from sparklog.record.legacy.segment import detect_format, iter_any, iter_records, unwrap
from sparklog.record.records import Record

LIMIT = 1 << 20

maybe_bytes = st.none() | st.binary(max_size=40)
rows = st.lists(st.tuples(maybe_bytes, maybe_bytes, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=12)
kinds = st.sampled_from([None, GZIP, SNAPPY, LZ4])


def message_set_of(given_rows, magic, kind, base_offset):
    start = 0 if kind and magic else base_offset
    inner = b"".join(
        entry(start + n, key, value, magic=magic, timestamp=timestamp)
        for n, (key, value, timestamp) in enumerate(given_rows)
    )
    return inner if kind is None else wrapper(base_offset + len(given_rows) - 1, inner, kind, magic=magic)


def upgraded():
    builder = RecordBatchBuilder(base_offset=20)
    builder.append(1, b"k", b"v2")
    parts = [
        message_set_of([(b"k", b"value", 5)] * 2, magic, kind, 1) for magic in (0, 1) for kind in (None, GZIP, LZ4)
    ]
    return b"".join(parts) + bytes(builder.build())


UPGRADED = upgraded()
FIRST = first(b"alone", magic=0) + first(b"one") + first_wrapper(first(b"a") + first(b"b", magic=0), SNAPPY)


def read_everything(data):
    """Every reader over ``data``; True where at least one had nothing against it."""
    accepted = False
    for read in (_detect, _messages, _first_messages, _any, _records, _columns):
        try:
            read(data)
        except CorruptRecord:
            continue
        accepted = True
    return accepted


def _detect(data):
    detect_format(data)


def _messages(data):
    for message in message_set.iter_messages(data):
        list(message_set.unwrap(message, LIMIT))


def _first_messages(data):
    for message in first_format.iter_messages(data):
        list(first_format.unwrap(message, LIMIT))


def _any(data):
    for each in iter_any(data):
        if isinstance(each, RecordBatch):
            each.validate()
        else:
            list(unwrap(each, LIMIT))


def _records(data):
    list(iter_records(data, max_decompressed=LIMIT))


def _columns(data):
    for column in read_columns(data, COLUMNS, max_decompressed=LIMIT).values():
        column.validate(full=True)


@given(rows, st.sampled_from([0, 1]), kinds, st.integers(0, 2**62))
def test_what_was_written_is_read(given_rows, magic, kind, base_offset):
    data = message_set_of(given_rows, magic, kind, base_offset)
    expected = [
        Record(base_offset + n, timestamp if magic else -1, key, value, ())
        for n, (key, value, timestamp) in enumerate(given_rows)
    ]
    assert list(iter_records(data, partial_tail=False)) == expected
    columns = read_columns(data, ["offset", "timestamp", "key", "value"])
    assert list(zip(*(column.to_pylist() for column in columns.values()), strict=True)) == [
        (record.key, record.value, record.offset, record.timestamp) for record in expected
    ]


@given(st.lists(st.tuples(st.binary(max_size=40), st.sampled_from([0, 1])), min_size=1, max_size=8), st.integers(0, 3))
def test_what_was_written_in_the_first_format_is_read(payloads, compressed):
    singles = [first(payload, magic=magic) for payload, magic in payloads]
    data = b"".join(singles[compressed:]) + (first_wrapper(b"".join(singles[:compressed])) if compressed else b"")
    expected = payloads[compressed:] + payloads[:compressed]
    assert [record.value for record in iter_records(data, partial_tail=False)] == [payload for payload, _ in expected]


@given(st.binary(max_size=200))
@example(b"")
@example(bytes(200))
def test_arbitrary_bytes(data):
    read_everything(data)


@given(st.binary(max_size=80), st.sampled_from([0, 1, 2, 3, 4, 7]), st.sampled_from([0, 1]))
def test_arbitrary_bytes_with_a_right_crc(value, attributes, magic):
    """So that what lies behind the CRC is reached: decompression, and the messages in a wrapper."""
    read_everything(entry(7, None, value, magic=magic, attributes=attributes))
    read_everything(first(value, attributes=attributes & 3))


@given(st.binary(max_size=120), st.sampled_from([GZIP, SNAPPY, LZ4]), st.sampled_from([0, 1]))
def test_arbitrary_bytes_in_a_wrapper(inner, kind, magic):
    read_everything(wrapper(7, inner, kind, magic=magic))
    if kind is not LZ4:
        read_everything(first_wrapper(inner, kind))


@pytest.mark.parametrize("data", [UPGRADED, FIRST], ids=["offsets", "first"])
def test_every_cut(data):
    for length in range(len(data)):
        read_everything(data[:length])


def test_every_flipped_bit_of_a_message_is_noticed():
    """All but the offset is under the CRC, or under what the sizes must add up to."""
    data = message_set_of([(b"k", b"value", 5)] * 2, 1, GZIP, 100)
    for bit in range(8 * 8, 8 * len(data)):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(CorruptRecord):
            list(iter_records(damaged, partial_tail=False))


@given(st.integers(0, 8 * len(UPGRADED) - 1))
def test_a_flipped_bit_of_a_file(bit):
    damaged = bytearray(UPGRADED)
    damaged[bit >> 3] ^= 1 << (bit & 7)
    read_everything(damaged)


def test_every_flipped_bit_of_the_first_format():
    """Magic and attributes are under no CRC there, so some flips go unnoticed, but none makes up a payload."""
    for bit in range(8 * len(FIRST)):
        damaged = bytearray(FIRST)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        try:
            values = [record.value for record in iter_records(damaged, partial_tail=False)]
        except CorruptRecord:
            continue
        raw = bytes(message_value(FIRST))
        assert set(values) <= {b"alone", b"one", b"a", b"b", raw}


def message_value(data):
    *_, last = first_format.iter_messages(data)
    return last.value


def test_the_samples_are_good():
    assert read_everything(UPGRADED)
    assert len(list(iter_records(UPGRADED, partial_tail=False))) == 13
    assert [record.value for record in iter_records(FIRST, partial_tail=False)] == [b"alone", b"one", b"a", b"b"]
