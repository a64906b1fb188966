"""Record batches to Arrow columns and back, without a Python object a record.

The column types are those that Spark derives for its Kafka source's schema, so a decoded batch goes to Spark as it
is: binary key and value (int32 offsets), ``list<element: struct<key: string, value: binary>>`` headers, int64 offset,
int32 timestampType. The buffers are made by the codec and handed to Arrow without copying.
"""

from __future__ import annotations

from sys import byteorder
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack

import pyarrow as pa

from sparklog.errors import LocalProtocolError
from sparklog.record import _impl, layout
from sparklog.record._impl.abc import (
    BinaryBuffers,
    BinaryColumn,
    DecodedColumns,
    EncodedRecords,
    HeaderBuffers,
    HeadersColumn,
    RecordColumns,
)
from sparklog.record.batch import increment_sequence
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType, compress
from sparklog.record.partitioning import murmur2
from sparklog.record.records import MAX_DECOMPRESSED, batch_fields, records_section

if TYPE_CHECKING:
    from collections.abc import Collection

    from typing_extensions import Buffer

    from sparklog.record.batch import RecordBatch

__all__ = [
    "COLUMNS",
    "HEADERS_TYPE",
    "ColumnarDecoder",
    "ColumnarEncoder",
    "EncodedBatch",
    "EncoderSettings",
    "as_binary",
    "encode_columns",
    "murmur2",
    "partition_rows",
]

COLUMNS = ("key", "value", "headers", "offset", "timestamp", "timestampType")
"""The columns a decoder knows, by the names of Spark's Kafka source."""

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))

TIMESTAMP_TYPES = {"ms": (pa.int64(), 1), "us": (pa.timestamp("us", tz="UTC"), 1000)}
_CODEC_NAMES = {"timestampType": "timestamp_type"}


def in_order(columns: Collection[str]) -> list[str]:
    """``columns`` in the order of COLUMNS. Raises LocalProtocolError for one that is none of them."""
    unknown = sorted(set(columns) - set(COLUMNS))
    if unknown:
        raise LocalProtocolError(f"unknown columns {', '.join(unknown)}: choose from {', '.join(COLUMNS)}")
    return [name for name in COLUMNS if name in columns]


class ColumnarDecoder:
    """Accumulates batches as Arrow columns.

    ``columns`` is some of COLUMNS. ``timestamp_unit`` "ms" gives int64 milliseconds, "us" ``timestamp[us, tz=UTC]``
    (what does not fit is the nearest that does). A row without headers has null for headers.

    ``append`` until ``nbytes`` is enough (1 to 4 MB suit Spark best), then ``finish``, then start over.
    """

    def __init__(
        self,
        columns: Collection[str],
        *,
        timestamp_unit: Literal["ms", "us"] = "ms",
        max_decompressed: int = MAX_DECOMPRESSED,
    ) -> None:
        self._columns = in_order(columns)
        self._timestamp_type, scale = TIMESTAMP_TYPES[timestamp_unit]
        self._max_decompressed = max_decompressed
        names = frozenset(_CODEC_NAMES.get(name, name) for name in columns)
        self._decoder = _impl.codec.RecordDecoder(names, scale)

    def append(self, batch: RecordBatch, start_offset: int = 0, end_offset: int = layout.MAX_INT64) -> int:
        """Decode the records with ``start_offset <= offset < end_offset``; returns how many there were.

        A control batch has none. CorruptRecord leaves what was accumulated before as it was.
        """
        count = batch.record_count
        outside = batch.last_offset < start_offset or batch.base_offset >= end_offset
        if count == 0 or outside or batch.is_control:
            return 0
        return self._decoder.append(
            records_section(batch, self._max_decompressed) if batch.compression else batch.payload,
            batch_fields(batch),
            start_offset,
            end_offset,
        )

    @property
    def rows(self) -> int:
        """Rows accumulated so far."""
        return self._decoder.rows

    @property
    def nbytes(self) -> int:
        """Bytes accumulated so far, in all columns."""
        return self._decoder.nbytes

    def finish(self) -> dict[str, pa.Array]:
        """The columns, in the order of COLUMNS; the decoder is empty again afterwards."""
        done = self._decoder.finish()
        return {name: self._array(name, done) for name in self._columns}

    def _array(self, name: str, done: DecodedColumns) -> pa.Array:
        column: Any = getattr(done, _CODEC_NAMES.get(name, name))
        if name == "headers":
            return _headers_array(column)
        if name in ("key", "value"):
            return _binary_array(pa.binary(), column)
        kinds = {"offset": pa.int64(), "timestamp": self._timestamp_type, "timestampType": pa.int32()}
        return pa.Array.from_buffers(kinds[name], done.rows, [None, pa.py_buffer(column)], 0)


def int64_scalar(number: int) -> pa.Scalar:
    """An int64 of Arrow's. To make the first one of a process from a Python object has Arrow import pandas, where that
    is installed, which takes a fifth of a second.
    """
    data = pa.py_buffer(number.to_bytes(8, byteorder, signed=True))
    return pa.Array.from_buffers(pa.int64(), 1, [None, data])[0]


def _binary_array(kind: pa.DataType, column: BinaryBuffers) -> pa.Array:
    buffers = [_arrow_buffer(column.validity), pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, column.length, buffers, column.null_count)


def _headers_array(column: HeaderBuffers) -> pa.Array:
    children = [_binary_array(pa.string(), column.keys), _binary_array(pa.binary(), column.values)]
    elements = pa.Array.from_buffers(HEADERS_TYPE.value_type, column.keys.length, [None], 0, children=children)
    buffers = [_arrow_buffer(column.validity), pa.py_buffer(column.offsets)]
    return pa.Array.from_buffers(HEADERS_TYPE, column.length, buffers, column.null_count, children=[elements])


def _arrow_buffer(buffer: Buffer | None) -> pa.Buffer | None:
    return None if buffer is None else pa.py_buffer(buffer)


class EncodedBatch(NamedTuple):
    """One batch, ready to be sent; base offset 0 and leader epoch -1 are the broker's to fill in.

    ``data`` is mutable so that ``batch.patch_producer`` can stamp it later.
    """

    data: bytearray
    record_count: int
    base_timestamp: int
    max_timestamp: int
    uncompressed_size: int


class EncoderSettings(TypedDict, total=False):
    """How ColumnarEncoder makes batches.

    ``max_batch_bytes`` (default 1 MiB) bounds the batch before compression, header included; a larger record gets a
    batch of its own. ``base_sequence`` is the first batch's, later ones count on from it. A batch that compression
    would not shrink is stored uncompressed.
    """

    compression: CompressionType
    level: int | None
    max_batch_bytes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool


class ColumnarEncoder:
    """Encodes Arrow columns into batches; the sequence number runs on from one ``encode`` to the next."""

    def __init__(self, **settings: Unpack[EncoderSettings]) -> None:
        self._compression = settings.get("compression", CompressionType.NONE)
        self._level = settings.get("level")
        self._max_batch_bytes = settings.get("max_batch_bytes", 1 << 20)
        self._producer_id = settings.get("producer_id", layout.NO_PRODUCER_ID)
        self._producer_epoch = settings.get("producer_epoch", layout.NO_PRODUCER_EPOCH)
        self._is_transactional = settings.get("is_transactional", False)
        self.next_sequence = settings.get("base_sequence", layout.NO_SEQUENCE)

    def encode(
        self,
        key: pa.Array | None,
        value: pa.Array | None,
        headers: pa.Array | None,
        timestamp_ms: pa.Array | None,
        *,
        now_ms: int,
        rows: Buffer | None = None,
    ) -> list[EncodedBatch]:
        """The batches that hold ``rows`` (int32 row numbers; None for all) of the columns, in that order.

        A column that is None is null throughout; without a timestamp a record has ``now_ms``. Key and value may be
        binary or string of any width, headers anything that casts to HEADERS_TYPE, timestamps int64 ms or a timestamp.
        """
        columns = _record_columns(key, value, headers, timestamp_ms, now_ms)
        encoder = _impl.codec.RecordEncoder(columns, rows)
        batches = []
        while section := encoder.next_section(self._max_batch_bytes - layout.HEADER_SIZE, layout.HEADER_SIZE):
            batches.append(self._seal(section))
        return batches

    def _seal(self, section: EncodedRecords) -> EncodedBatch:
        """Compress a section, and write the header before it."""
        data, compression = section.buffer, self._compression
        if compression is not CompressionType.NONE:
            compressed = compress(compression, memoryview(data)[layout.HEADER_SIZE :], self._level)
            if layout.HEADER_SIZE + len(compressed) < len(data):
                data = bytearray(layout.HEADER_SIZE)
                data += compressed
            else:
                compression = CompressionType.NONE
        header = RecordBatchBuilder(
            compression,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self.next_sequence,
            is_transactional=self._is_transactional,
        )
        header.record_count = section.record_count
        header.base_timestamp, header.max_timestamp = section.base_timestamp, section.max_timestamp
        header.write_header(data)
        if self.next_sequence >= 0:
            self.next_sequence = increment_sequence(self.next_sequence, section.record_count)
        size = len(section.buffer)
        return EncodedBatch(data, section.record_count, section.base_timestamp, section.max_timestamp, size)


def encode_columns(
    key: pa.Array | None,
    value: pa.Array | None,
    headers: pa.Array | None,
    timestamp_ms: pa.Array | None,
    *,
    now_ms: int,
    rows: Buffer | None = None,
    **settings: Unpack[EncoderSettings],
) -> list[EncodedBatch]:
    """``ColumnarEncoder(**settings).encode(...)``."""
    return ColumnarEncoder(**settings).encode(key, value, headers, timestamp_ms, now_ms=now_ms, rows=rows)


def partition_rows(key: pa.Array, partition_count: int, *, null_partition: int = 0) -> list[memoryview]:
    """For each partition the row numbers (int32, ascending) that Kafka's default partitioner gives it.

    Rows with a null key go to ``null_partition``. The result is what ``encode`` takes as ``rows``. Raises
    LocalProtocolError where there is no such partition.
    """
    if partition_count < 1 or not 0 <= null_partition < partition_count:
        raise LocalProtocolError(f"there is no partition {null_partition} among {partition_count}")
    return _impl.codec.partition_rows(_binary_column(key), partition_count, null_partition)


def _record_columns(
    key: pa.Array | None, value: pa.Array | None, headers: pa.Array | None, timestamp_ms: pa.Array | None, now_ms: int
) -> RecordColumns:
    lengths = {len(column) for column in (key, value, headers, timestamp_ms) if column is not None}
    if len(lengths) != 1:
        raise LocalProtocolError(f"the columns to encode must be of one length, not {sorted(lengths) or 'all absent'}")
    return RecordColumns(
        lengths.pop(),
        None if key is None else _binary_column(key),
        None if value is None else _binary_column(value),
        None if headers is None else _headers_column(headers),
        None if timestamp_ms is None else _milliseconds(timestamp_ms, now_ms),
        now_ms,
    )


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.type == kind:
        return array
    try:
        return array.cast(kind, safe=not pa.types.is_timestamp(array.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise LocalProtocolError(f"a column of type {array.type} cannot be encoded as {kind}: {error}") from error


def as_binary(array: pa.Array) -> pa.Array:
    """Keys or values as binary or string with int32 offsets, uncopied where they are that already.

    Raises LocalProtocolError for a type that is neither bytes nor text.
    """
    is_plain = pa.types.is_binary(array.type) or pa.types.is_string(array.type)
    return array if is_plain and not isinstance(array, pa.ChunkedArray) else _cast(array, pa.binary())


def _binary_column(array: pa.Array) -> BinaryColumn:
    array = as_binary(array)
    validity, offsets, data = array.buffers()
    return BinaryColumn(len(array), array.offset, validity, _present(offsets), _present(data))


def _headers_column(array: pa.Array) -> HeadersColumn:
    array = _cast(array, HEADERS_TYPE)
    elements = array.values
    if elements.null_count:
        raise LocalProtocolError("a header to encode is null: leave it out, or null the whole list")
    validity, offsets = array.buffers()[:2]
    keys, values = _binary_column(elements.field(0)), _binary_column(elements.field(1))
    return HeadersColumn(len(array), array.offset, validity, _present(offsets), keys, values)


def _milliseconds(array: pa.Array, now_ms: int) -> Buffer:
    if pa.types.is_timestamp(array.type):
        array = _cast(array, pa.timestamp("ms", tz=array.type.tz))
    array = _cast(array, pa.int64())
    if array.null_count:
        array = array.fill_null(now_ms)
    buffer: Buffer = _present(array.buffers()[1])[array.offset * 8 :]
    return buffer


def _present(buffer: pa.Buffer | None) -> Any:
    return b"" if buffer is None else buffer
