import pyarrow as pa
import pytest
from record.legacy_bytes import APPEND_TIME, entry, first, first_wrapper, wrapper

from sparklog.errors import CorruptRecord, LocalProtocolError, LogError
from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.columnar import COLUMNS, HEADERS_TYPE, ColumnarDecoder
from sparklog.record.legacy.columns import LegacyColumnarDecoder, read_columns
from sparklog.record.legacy.message_set import iter_messages

ROWS = [(b"k", b"value"), (None, b""), (b"", None), (b"key" * 50, b"v" * 500)]


def messages(offset=0, *, magic=1, attributes=0):
    return b"".join(
        entry(offset + n, key, value, magic=magic, attributes=attributes, timestamp=1000 + n)
        for n, (key, value) in enumerate(ROWS)
    )


def batch(offset=0):
    builder = RecordBatchBuilder(base_offset=offset)
    for n, (key, value) in enumerate(ROWS):
        builder.append(1000 + n, key, value)
    return bytes(builder.build())


def of_batch(columns=COLUMNS, offset=0, **settings):
    decoder = ColumnarDecoder(columns, **settings)
    decoder.append(RecordBatch(batch(offset)))
    return decoder.finish()


def validated(columns):
    for column in columns.values():
        column.validate(full=True)
    return columns


@pytest.mark.parametrize("unit", ["ms", "us"])
@pytest.mark.parametrize("data", [messages(), wrapper(3, messages(), magic=1)], ids=["plain", "compressed"])
def test_the_same_columns_as_of_a_batch(data, unit):
    found = validated(read_columns(data, COLUMNS, timestamp_unit=unit))
    expected = of_batch(timestamp_unit=unit)
    assert list(found) == list(expected)
    assert {name: column.type for name, column in found.items()} == {n: c.type for n, c in expected.items()}
    assert found == expected


@pytest.mark.parametrize("columns", [["value"], ["offset", "key"], ["timestampType", "headers"], ["timestamp"], []])
def test_only_the_columns_that_are_asked_for(columns):
    assert read_columns(messages(), columns) == of_batch(columns)


def test_what_a_format_does_not_have():
    found = validated(read_columns(messages(magic=0), COLUMNS))
    assert found["timestamp"].to_pylist() == [-1] * 4
    assert found["timestampType"].to_pylist() == [-1] * 4
    assert found["headers"] == pa.nulls(4, HEADERS_TYPE)
    found = read_columns(messages(attributes=APPEND_TIME), COLUMNS)
    assert found["timestampType"].to_pylist() == [1] * 4


def test_the_first_format():
    data = first(b"a") + first_wrapper(first(b"b") + first(b"c"))
    found = validated(read_columns(data, COLUMNS, base_offset=100))
    assert found["offset"].to_pylist() == [100, 111, 111]
    assert found["value"].to_pylist() == [b"a", b"b", b"c"]
    assert found["key"].to_pylist() == [None] * 3


def test_a_file_that_changes_its_format_twice():
    data = messages(0) + batch(4) + wrapper(11, messages(8, magic=0)) + batch(12)
    found = validated(read_columns(data, COLUMNS))
    assert found["offset"].to_pylist() == list(range(16))
    assert found["key"].to_pylist() == [key for key, _ in ROWS] * 4
    assert found["timestampType"].to_pylist() == [0] * 8 + [-1] * 4 + [0] * 4


@pytest.mark.parametrize("data", [b"", batch()[:0]])
def test_no_rows(data):
    found = read_columns(data, COLUMNS)
    assert {name: column.type for name, column in found.items()} == {n: c.type for n, c in of_batch().items()}
    assert [len(column) for column in found.values()] == [0] * len(COLUMNS)


def test_a_damaged_batch_among_messages():
    data = bytearray(messages() + batch(4))
    data[-2] ^= 1
    with pytest.raises(CorruptRecord, match="CRC"):
        read_columns(data, COLUMNS)


def test_a_range_of_offsets():
    (message,) = iter_messages(wrapper(13, messages(), magic=1))
    decoder = LegacyColumnarDecoder(["offset"])
    assert decoder.append(message, 11, 13) == 2
    assert decoder.append(message, 14) == 0
    assert decoder.append(message, end_offset=11) == 1
    assert decoder.rows == 3
    assert decoder.finish()["offset"].to_pylist() == [11, 12, 10]
    assert decoder.rows == 0
    assert decoder.finish()["offset"].to_pylist() == []


def test_bytes_are_counted():
    decoder = LegacyColumnarDecoder(COLUMNS)
    reference = ColumnarDecoder(COLUMNS)
    assert decoder.nbytes == 0
    for message in iter_messages(messages()):
        decoder.append(message)
    reference.append(RecordBatch(batch()))
    assert decoder.nbytes == pytest.approx(reference.nbytes, abs=20)
    decoder.finish()
    assert decoder.nbytes == 0


def test_a_damaged_message_leaves_the_decoder_as_it_was():
    inner = bytearray(messages())
    inner[-1] ^= 1
    (bad,) = iter_messages(wrapper(3, bytes(inner), magic=1))
    decoder = LegacyColumnarDecoder(COLUMNS)
    good = list(iter_messages(messages()))
    decoder.append(good[0])
    before = decoder.nbytes
    with pytest.raises(CorruptRecord):
        decoder.append(bad)
    assert (decoder.rows, decoder.nbytes) == (1, before)
    for message in good[1:]:
        decoder.append(message)
    assert validated(decoder.finish()) == of_batch()


def test_a_column_that_outgrows_arrow(monkeypatch):
    monkeypatch.setattr(layout, "MAX_INT32", 1200)
    decoder = LegacyColumnarDecoder(["value"])
    (message,) = iter_messages(wrapper(3, messages(), magic=1))
    assert decoder.append(message) == 4
    assert decoder.append(message) == 4
    with pytest.raises(LogError, match="finish"):
        decoder.append(message)
    assert decoder.finish()["value"].to_pylist() == [value for _, value in ROWS] * 2


def test_a_bomb_is_refused():
    data = wrapper(0, entry(0, None, bytes(5000)))
    assert len(read_columns(data, COLUMNS)["value"]) == 1
    with pytest.raises(CorruptRecord):
        read_columns(data, COLUMNS, max_decompressed=5000)


@pytest.mark.parametrize("timestamp", [2**63 - 1, -(2**63), -1])
def test_timestamps_that_do_not_fit(timestamp):
    found = read_columns(entry(0, None, b"", magic=1, timestamp=timestamp), ["timestamp"], timestamp_unit="us")
    builder = RecordBatchBuilder()
    builder.append(timestamp, None, b"")
    decoder = ColumnarDecoder(["timestamp"], timestamp_unit="us")
    decoder.append(RecordBatch(builder.build()))
    assert found == decoder.finish()


def test_unknown_columns_are_refused():
    with pytest.raises(LocalProtocolError, match="topic"):
        LegacyColumnarDecoder(["value", "topic"])
