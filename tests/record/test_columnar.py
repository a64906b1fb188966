import struct

import pyarrow as pa
import pytest

from sparklog.errors import CorruptRecord, LocalProtocolError
from sparklog.record.batch import RecordBatch, patch_append_time
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.columnar import (
    COLUMNS,
    HEADERS_TYPE,
    ColumnarDecoder,
    ColumnarEncoder,
    encode_columns,
    partition_rows,
)
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.record.partitioning import partition_for
from sparklog.record.records import iter_records

pytestmark = pytest.mark.usefixtures("codec")

ROWS = [
    (1000, b"key", b"value", ()),
    (900, None, b"", ()),
    (2000, b"", None, (("a", b"1"), ("b", None), ("c", b""))),
    (2000, b"k" * 200, b"v" * 70_000, (("gr\u00fcn", b"x" * 300),)),
]


def build(rows=ROWS, **fields):
    builder = RecordBatchBuilder(**fields)
    for row in rows:
        builder.append(*row)
    return builder.build()


def decode(*batches, columns=COLUMNS, span=(0, 2**63 - 1), **options):
    decoder = ColumnarDecoder(columns, **options)
    for batch in batches:
        decoder.append(RecordBatch(batch), *span)
    arrays = decoder.finish()
    for array in arrays.values():
        array.validate(full=True)
    return {name: array.to_pylist() for name, array in arrays.items()}


@pytest.mark.parametrize("compression", CompressionType)
def test_decode(compression):
    columns = decode(build(base_offset=70, compression=compression))
    assert columns == {
        "key": [b"key", None, b"", b"k" * 200],
        "value": [b"value", b"", None, b"v" * 70_000],
        "headers": [
            None,
            None,
            [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "c", "value": b""}],
            [{"key": "gr\u00fcn", "value": b"x" * 300}],
        ],
        "offset": [70, 71, 72, 73],
        "timestamp": [1000, 900, 2000, 2000],
        "timestampType": [0, 0, 0, 0],
    }


def test_types_are_those_that_spark_derives():
    types = pytest.importorskip("pyspark.sql.types")
    to_arrow_schema = pytest.importorskip("pyspark.sql.pandas.types").to_arrow_schema
    header = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
    schema = (
        types.StructType()
        .add("key", types.BinaryType())
        .add("value", types.BinaryType())
        .add("headers", types.ArrayType(header))
        .add("offset", types.LongType())
        .add("timestamp", types.TimestampType())
        .add("timestampType", types.IntegerType())
    )
    decoder = ColumnarDecoder(COLUMNS, timestamp_unit="us")
    decoder.append(RecordBatch(build()))
    derived = to_arrow_schema(schema, timezone="UTC")
    assert pa.table(decoder.finish()).schema == derived
    assert derived.field("headers").type == HEADERS_TYPE


def test_microseconds_saturate():
    most = 2**63 - 1
    rows = [(1_700_000_000_123, b"", b"", ()), (most, b"", b"", ()), (-(2**63), b"", b"", ()), (-1, b"", b"", ())]
    decoder = ColumnarDecoder(["timestamp"], timestamp_unit="us")
    decoder.append(RecordBatch(build(rows[:1])))
    decoder.append(RecordBatch(build(rows[1:2])))
    decoder.append(RecordBatch(build(rows[2:3])))
    decoder.append(RecordBatch(build(rows[3:])))
    stamps = decoder.finish()["timestamp"]
    assert stamps.type == pa.timestamp("us", tz="UTC")
    assert stamps.cast(pa.int64()).to_pylist() == [1_700_000_000_123_000, most, -(2**63), -1000]


def test_log_append_time():
    data = bytearray(build())
    patch_append_time(data, 0, 4242)
    columns = decode(data, columns=["timestamp", "timestampType"])
    assert columns == {"timestamp": [4242] * 4, "timestampType": [1] * 4}


@pytest.mark.parametrize("name", COLUMNS)
def test_one_column_alone(name):
    data = build(base_offset=3)
    assert decode(data, columns=[name]) == {name: decode(data)[name]}


def test_no_columns_still_count():
    decoder = ColumnarDecoder([])
    assert decoder.append(RecordBatch(build())) == 4
    assert (decoder.rows, decoder.finish()) == (4, {})


@pytest.mark.parametrize(
    ("span", "expected"),
    [((0, 10), []), ((0, 11), [10]), ((11, 13), [11, 12]), ((13, 99), [13]), ((14, 99), []), ((12, 12), [])],
)
def test_offset_range(span, expected):
    assert decode(build(base_offset=10), span=span, columns=["offset"]) == {"offset": expected}


def test_batch_outside_the_range_is_not_decompressed():
    data = bytearray(build(base_offset=10, compression=CompressionType.ZSTD))
    data[61:] = bytes(len(data) - 61)
    assert decode(data, span=(14, 20))["offset"] == []
    with pytest.raises(CorruptRecord):
        decode(data)


def test_control_batches_contribute_nothing():
    marker = build_marker(EndTransactionMarker(ControlType.COMMIT, 1), ProducerIdAndEpoch(1, 1), 5)
    assert decode(build(), marker, build(base_offset=5))["offset"] == [0, 1, 2, 3, 5, 6, 7, 8]


def test_decoder_is_reusable_and_old_columns_stay():
    decoder = ColumnarDecoder(COLUMNS)
    assert decoder.nbytes == 0
    assert decoder.append(RecordBatch(build())) == 4
    assert decoder.rows == 4
    assert decoder.nbytes >= 70_000
    first = decoder.finish()
    assert (decoder.rows, decoder.nbytes) == (0, 0)
    decoder.append(RecordBatch(build(base_offset=100)))
    decoder.append(RecordBatch(build(base_offset=200)))
    assert first["offset"].to_pylist() == [0, 1, 2, 3]
    assert first["value"].to_pylist()[0] == b"value"
    assert decoder.finish()["offset"].to_pylist() == [100, 101, 102, 103, 200, 201, 202, 203]
    assert all(len(array) == 0 for array in decoder.finish().values())


def test_nbytes_is_what_the_columns_hold():
    decoder = ColumnarDecoder(["key", "offset"])
    decoder.append(RecordBatch(build()))
    assert decoder.nbytes == 203 + 4 * 4 + 8 * 4


@pytest.mark.parametrize("missing", [1, 299, 303, 306, 309, 70_300, 70_520, 70_540, 70_570])
def test_corrupt_batch_leaves_what_was_there(missing):
    decoder = ColumnarDecoder(COLUMNS)
    bad = bytearray(build(base_offset=50, rows=[*ROWS[:3], *ROWS])[:-missing])
    struct.pack_into(">i", bad, 8, len(bad) - 12)
    expected = decode(build(), build(base_offset=9))
    decoder.append(RecordBatch(build()))
    with pytest.raises(CorruptRecord):
        decoder.append(RecordBatch(bad))
    assert decoder.rows == 4
    decoder.append(RecordBatch(build(base_offset=9)))
    arrays = decoder.finish()
    for array in arrays.values():
        array.validate(full=True)
    assert {name: array.to_pylist() for name, array in arrays.items()} == expected


def test_header_key_that_is_not_utf8_is_repaired():
    data = build([(1, b"", b"", (("ab", b"1"),))]).replace(b"\x04ab", b"\x04\xffb")
    assert decode(data)["headers"] == [[{"key": "\ufffdb", "value": b"1"}]]
    assert next(iter_records(RecordBatch(data))).headers == (("\ufffdb", b"1"),)


def test_decompression_limit():
    data = build(compression=CompressionType.GZIP)
    with pytest.raises(CorruptRecord):
        decode(data, max_decompressed=70_000)


def test_unknown_column():
    with pytest.raises(LocalProtocolError, match=r"partition.*choose from key"):
        ColumnarDecoder(["partition"])


def test_impossible_count_allocates_nothing():
    data = bytearray(build())
    struct.pack_into(">i", data, 57, 2**31 - 1)
    with pytest.raises(CorruptRecord, match="2147483647 records"):
        decode(data)


# encoding

HEADERS = pa.array(
    [None, [], [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], [{"key": "c", "value": b""}]], HEADERS_TYPE
)
KEYS = pa.array([b"a", None, b"", b"d"], pa.binary())
VALUES = pa.array([None, b"", b"v" * 300, b"w"], pa.binary())
STAMPS = pa.array([1000, 900, 2000, 5], pa.int64())


def records(batches):
    for batch in batches:
        RecordBatch(batch.data).validate()
    return [tuple(record)[1:] for batch in batches for record in iter_records(RecordBatch(batch.data))]


EXPECTED = [
    (1000, b"a", None, ()),
    (900, None, b"", ()),
    (2000, b"", b"v" * 300, (("a", b"1"), ("b", None))),
    (5, b"d", b"w", (("c", b""),)),
]


@pytest.mark.parametrize("compression", CompressionType)
def test_encode(compression):
    (batch,) = encode_columns(KEYS, VALUES, HEADERS, STAMPS, now_ms=1, compression=compression)
    view = RecordBatch(batch.data)
    assert records([batch]) == EXPECTED
    assert (batch.record_count, batch.base_timestamp, batch.max_timestamp) == (4, 1000, 2000)
    assert (view.record_count, view.base_timestamp, view.max_timestamp, view.base_offset) == (4, 1000, 2000, 0)
    assert view.compression is compression
    assert (batch.uncompressed_size > len(batch.data)) == (compression is not CompressionType.NONE)


def test_encoded_bytes_are_the_builders():
    (batch,) = encode_columns(KEYS, VALUES, HEADERS, STAMPS, now_ms=1, producer_id=3, producer_epoch=0, base_sequence=8)
    builder = RecordBatchBuilder(producer_id=3, producer_epoch=0, base_sequence=8)
    for row in EXPECTED:
        builder.append(*row)
    assert batch.data == builder.build()


def test_absent_columns():
    (batch,) = encode_columns(None, VALUES, None, None, now_ms=77)
    assert records([batch]) == [(77, None, value, ()) for value in VALUES.to_pylist()]
    with pytest.raises(LocalProtocolError, match="absent"):
        encode_columns(None, None, None, None, now_ms=77)


def test_no_rows():
    assert encode_columns(KEYS[:0], None, None, None, now_ms=1) == []
    assert encode_columns(KEYS, None, None, None, now_ms=1, rows=b"") == []


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.large_binary(), pa.binary_view(), pa.string_view()]
)
def test_other_types(kind):
    (batch,) = encode_columns(KEYS.cast(kind), VALUES.cast(kind), HEADERS, STAMPS, now_ms=1)
    assert records([batch]) == EXPECTED


def test_headers_of_other_types():
    kind = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    (batch,) = encode_columns(KEYS, VALUES, HEADERS.cast(kind), STAMPS, now_ms=1)
    assert records([batch]) == EXPECTED


def test_slices_and_chunks():
    double = [pa.concat_arrays([column, column]) for column in (KEYS, VALUES, HEADERS, STAMPS)]
    (batch,) = encode_columns(*[column[3:6] for column in double], now_ms=1)
    assert records([batch]) == [EXPECTED[3], EXPECTED[0], EXPECTED[1]]
    (batch,) = encode_columns(
        *[pa.chunked_array([column, column]) for column in (KEYS, VALUES, HEADERS, STAMPS)], now_ms=1
    )
    assert records([batch]) == EXPECTED * 2


def test_timestamps():
    stamps = pa.array([1_700_000_000_123_456, None, 0, 999], pa.timestamp("us", tz="UTC"))
    (batch,) = encode_columns(KEYS, None, None, stamps.take(pa.array([0, 1, 2, 3, 0]))[1:], now_ms=42)
    assert [row[0] for row in records([batch])] == [42, 0, 0, 1_700_000_000_123]
    (batch,) = encode_columns(KEYS, None, None, stamps, now_ms=42)
    assert [row[0] for row in records([batch])] == [1_700_000_000_123, 42, 0, 0]


def test_rows_in_the_order_given():
    rows = struct.pack("=4i", 3, 0, 3, 1)
    (batch,) = encode_columns(KEYS, VALUES, HEADERS, STAMPS, now_ms=1, rows=rows)
    assert records([batch]) == [EXPECTED[3], EXPECTED[0], EXPECTED[3], EXPECTED[1]]


@pytest.mark.parametrize("row", [-1, 4])
def test_row_out_of_range(row):
    with pytest.raises(LocalProtocolError, match="row"):
        encode_columns(KEYS, None, None, None, now_ms=1, rows=struct.pack("=2i", 0, row))


def test_batches_stay_within_the_limit():
    values = pa.array([b"x" * (n % 97) for n in range(1000)])
    whole = encode_columns(None, values, None, None, now_ms=1)
    batches = encode_columns(None, values, None, None, now_ms=1, max_batch_bytes=1000)
    assert len(whole) == 1
    assert records(batches) == records(whole)
    sizes = [len(batch.data) for batch in batches]
    assert max(sizes) <= 1000
    assert min(sizes[:-1]) > 1000 - 97 - 8, "a batch is closed only when the next record does not fit"
    exact = encode_columns(None, values, None, None, now_ms=1, max_batch_bytes=sizes[0])
    assert len(exact[0].data) == sizes[0]


def test_large_record_has_its_own_batch():
    values = pa.array([b"a", b"b", b"x" * 5000, b"c"])
    batches = encode_columns(None, values, None, None, now_ms=1, max_batch_bytes=500)
    assert [batch.record_count for batch in batches] == [2, 1, 1]
    assert [row[2] for row in records(batches)] == values.to_pylist()


def test_sequences_run_on():
    encoder = ColumnarEncoder(
        max_batch_bytes=80, producer_id=9, producer_epoch=1, base_sequence=2**31 - 2, is_transactional=True
    )
    values = pa.array([b"12345", b"12345", b"12345"])
    batches = [RecordBatch(batch.data) for batch in encoder.encode(None, values, None, None, now_ms=1)]
    batches += [RecordBatch(batch.data) for batch in encoder.encode(None, values, None, None, now_ms=1)]
    assert [batch.base_sequence for batch in batches] == [2**31 - 2, 2**31 - 1, 0, 1, 2, 3]
    assert {(batch.producer_id, batch.producer_epoch, batch.is_transactional) for batch in batches} == {(9, 1, True)}


def test_what_compression_would_not_shrink_is_stored():
    (batch,) = encode_columns(None, pa.array([b"tiny"]), None, None, now_ms=1, compression=CompressionType.GZIP)
    assert RecordBatch(batch.data).compression is CompressionType.NONE
    assert records([batch]) == [(1, None, b"tiny", ())]


def test_header_without_a_key():
    headers = pa.array([[{"key": None, "value": b"1"}]], HEADERS_TYPE)
    with pytest.raises(LocalProtocolError, match="no key"):
        encode_columns(None, None, headers, None, now_ms=1)
    with pytest.raises(LocalProtocolError, match="is null"):
        encode_columns(None, None, pa.array([[None]], HEADERS_TYPE), None, now_ms=1)


def test_columns_that_cannot_be_encoded():
    with pytest.raises(LocalProtocolError, match="one length"):
        encode_columns(KEYS, VALUES[:2], None, None, now_ms=1)
    with pytest.raises(LocalProtocolError, match="int64 cannot be encoded"):
        encode_columns(STAMPS, None, None, None, now_ms=1)


def test_column_whose_offsets_do_not_fit_its_data():
    wrong = pa.Array.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(struct.pack("=3i", 0, 9, 3)), pa.py_buffer(b"abc")]
    )
    with pytest.raises(LocalProtocolError, match="offsets"):
        encode_columns(wrong, None, None, None, now_ms=1)


def test_partition_rows():
    keys = pa.array([None if n % 10 == 0 else b"key-%d" % n for n in range(500)])
    partitions = partition_rows(keys[7:], 7, null_partition=3)
    assert sorted(row for rows in partitions for row in rows) == list(range(493))
    for partition, rows in enumerate(partitions):
        assert (rows.format, rows.itemsize, list(rows)) == ("i", 4, sorted(rows))
        for row in rows:
            key = keys[7 + row].as_py()
            assert partition == (3 if key is None else partition_for(key, 7))


def test_partition_rows_feed_the_encoder():
    keys = pa.array(["a", "b", "c", None, "d"])
    found = []
    for rows in partition_rows(keys, 2):
        found += [row[1] for row in records(encode_columns(keys, None, None, None, now_ms=1, rows=rows))]
    assert sorted(found, key=str) == sorted([b"a", b"b", b"c", None, b"d"], key=str)


@pytest.mark.parametrize(("count", "null_partition"), [(0, 0), (3, 3), (3, -1)])
def test_partitions_that_do_not_exist(count, null_partition):
    with pytest.raises(LocalProtocolError):
        partition_rows(KEYS, count, null_partition=null_partition)
