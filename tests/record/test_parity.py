"""The native codec does what the pure one does: the same bytes, the same columns, the same refusals."""

import random
from collections import namedtuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptRecord
from sparklog.record import _impl
from sparklog.record.batch import RecordBatch, patch_producer
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.columnar import COLUMNS, HEADERS_TYPE, ColumnarDecoder, encode_columns, partition_rows
from sparklog.record.compression import CompressionType, compress
from sparklog.record.records import Record, iter_records, placed_records

INT64 = st.integers(-(2**63), 2**63 - 1)
TIMESTAMP = st.integers(0, 2**43) | st.integers(-3, 3) | INT64
BYTES = st.none() | st.binary(max_size=12) | st.binary(min_size=120, max_size=140)
HEADER = st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), BYTES)
ROW = st.tuples(TIMESTAMP, BYTES, BYTES, st.lists(HEADER, max_size=3))
COMPRESSION = st.sampled_from(CompressionType)

Placed = namedtuple("Placed", "topic partition offset timestamp timestamp_type key value headers leader_epoch")
relaxed = settings(
    deadline=None, max_examples=2 * settings().max_examples, suppress_health_check=[HealthCheck.too_slow]
)


def under_each(action):
    """What ``action`` gives under the two codecs; a refusal counts as a result."""
    results = []
    for name in ("python", "native"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_impl, "codec", _impl.load(name))
            try:
                results.append(action())
            except CorruptRecord:
                results.append(CorruptRecord)
    return results


def columns_of(batches, columns=COLUMNS, span=(0, 2**63 - 1), unit="ms"):
    decoder = ColumnarDecoder(columns, timestamp_unit=unit)
    for batch in batches:
        decoder.append(batch, *span)
    found = decoder.nbytes, pa.table(decoder.finish())
    found[1].validate(full=True)
    return found


def gapped(rows, gaps, compression, base_offset):
    """A batch as compaction leaves it: offsets with gaps, and a last offset delta beyond the last record's."""
    codec, records, delta, base = _impl.load("python"), bytearray(), 0, rows[0][0]
    for (timestamp, key, value, headers), gap in zip(rows, gaps, strict=False):
        delta += gap
        wrapped = (timestamp - base + 2**63) % 2**64 - 2**63
        codec.write_record(records, wrapped, delta, key, value, headers)
        delta += 1
    builder = RecordBatchBuilder(compression, base_offset=base_offset)
    builder.base_timestamp, builder.max_timestamp = base, max(row[0] for row in rows)
    builder.record_count = delta + 5
    out = bytearray(61) + compress(compression, records)
    builder.write_header(out)
    out[57:61] = len(rows).to_bytes(4, "big")
    patch_producer(out, 0, -1, -1, -1)
    return RecordBatch(out)


@relaxed
@given(
    st.data(), st.lists(ROW, min_size=1, max_size=12), COMPRESSION, st.integers(0, 2**40), st.sampled_from(["ms", "us"])
)
def test_decoding(data, rows, compression, base_offset, unit):
    gaps = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    low, high = sorted(data.draw(st.tuples(st.integers(-2, 50), st.integers(-2, 50))))
    columns = data.draw(st.sets(st.sampled_from(COLUMNS)))
    batch = gapped(rows, gaps, compression, base_offset)
    batch.validate()
    span = (base_offset + low, base_offset + high)
    pure, native = under_each(lambda: columns_of([batch, batch], columns, span, unit))
    assert native == pure
    pure, native = under_each(lambda: list(iter_records(batch)))
    assert native == pure
    assert [record[2:4] for record in native] == [row[1:3] for row in rows]
    assert [record.timestamp for record in native] == [row[0] for row in rows]
    assert [len(record.headers) for record in native] == [len(row[3]) for row in rows]
    expected, offset = [], base_offset
    for gap in gaps:
        expected.append(offset + gap)
        offset += gap + 1
    assert [record.offset for record in native] == expected


@relaxed
@given(st.data(), st.lists(ROW, min_size=1, max_size=25), COMPRESSION, st.integers(62, 700))
def test_encoding(data, rows, compression, limit):
    times, keys, values, headers = zip(*rows, strict=True)
    pairs = [[{"key": key, "value": value} for key, value in row] or None for row in headers]
    start = data.draw(st.integers(0, len(rows) - 1))
    columns = [
        pa.array(keys, pa.binary())[start:],
        pa.array(values, pa.binary())[start:],
        pa.array(pairs, HEADERS_TYPE)[start:],
        pa.array(times, pa.int64())[start:],
    ]
    order = data.draw(st.lists(st.integers(0, len(rows) - start - 1), max_size=30) | st.none())
    index = None if order is None else pa.array(order, pa.int32()).buffers()[1] or b""
    index = index if index is None else bytes(index)[: 4 * len(order)]
    pure, native = under_each(
        lambda: encode_columns(*columns, now_ms=1, rows=index, compression=compression, max_batch_bytes=limit)
    )
    assert native == pure
    expected = [rows[start:][row] for row in (range(len(rows) - start) if order is None else order)]
    found = [record for batch in native for record in iter_records(RecordBatch(batch.data))]
    assert [tuple(record[1:4]) for record in found] == [row[:3] for row in expected]
    assert [record.headers for record in found] == [tuple(row[3]) for row in expected]


@relaxed
@given(st.lists(ROW, min_size=1, max_size=8), COMPRESSION)
def test_building(rows, compression):
    def build():
        builder = RecordBatchBuilder(compression)
        for timestamp, *rest in rows:
            builder.append(timestamp % 2**62, *rest)
        return builder.build()

    pure, native = under_each(build)
    assert native == pure


@relaxed
@given(st.lists(BYTES, max_size=40), st.integers(1, 9))
def test_partitioning(keys, count):
    array = pa.array(keys, pa.binary())
    pure, native = under_each(lambda: [list(rows) for rows in partition_rows(array, count, null_partition=count - 1)])
    assert native == pure


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_mutated_batches_fare_alike(seed):
    chance = random.Random(seed)
    builder = RecordBatchBuilder(base_offset=100)
    for n in range(12):
        headers = [(f"h{n}", b"x" * n), ("gr\u00fcn", None)][: n % 3]
        builder.append(1000 - n, b"key" if n % 2 else None, b"v" * (n * 13), headers)
    data = builder.build()
    refused = 0
    for _ in range(2500):
        mutated = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            mutated[chance.randrange(21, len(data))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        mutated[22] &= 0xF8
        batch = RecordBatch(mutated)
        pure, native = under_each(lambda: columns_of([RecordBatch(data), batch]))  # noqa: B023
        assert native == pure
        refused += native is CorruptRecord
        pure, native = under_each(lambda: list(iter_records(batch)))  # noqa: B023
        assert native == pure
        pure, placed = under_each(lambda: placed_records(batch, "t", 1, Placed))  # noqa: B023
        assert placed == pure
        if native is CorruptRecord:
            assert placed is CorruptRecord
        else:
            assert [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in placed] == native
    assert 0 < refused < 2500


def test_record_is_a_named_tuple_of_plain_values():
    (pure, native) = under_each(lambda: list(iter_records(RecordBatch(_one()))))
    assert pure == native == [Record(0, 5, b"k", None, (("h", b""),))]
    assert [type(field) for field in native[0]] == [int, int, bytes, type(None), tuple]


def _one():
    builder = RecordBatchBuilder()
    builder.append(5, b"k", None, [("h", b"")])
    return builder.build()
