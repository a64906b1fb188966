"""The reference codec in plain Python: slow, short, and what the native one must agree with."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, TypeVar

from sparklog.errors import LocalProtocolError, LogError
from sparklog.record import layout
from sparklog.record._impl.abc import (
    BatchFields,
    BinaryBuffers,
    BinaryColumn,
    DecodedColumns,
    EncodedRecords,
    HeaderBuffers,
    HeadersColumn,
    Latest,
    Record,
    RecordColumns,
    RecordPlace,
)
from sparklog.record._impl.pure_compacting import BatchRewriter as BatchRewriter
from sparklog.record._impl.pure_compacting import OffsetMap as OffsetMap
from sparklog.record._impl.pure_reading import iter_section, wrap64
from sparklog.record._impl.pure_scanner import BatchScanner as BatchScanner
from sparklog.record.varint import write_varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

name = "python"
_OF_TRANSACTION = layout.TRANSACTIONAL_BIT | layout.CONTROL_BIT
T = TypeVar("T", bound=tuple[object, ...])


def skip_plain(buffer: Buffer) -> int:
    view, at = memoryview(buffer), 0
    while len(view) - at >= layout.HEADER_SIZE:
        size = layout.OFFSET_AND_LENGTH.unpack_from(view, at)[1] + layout.LOG_OVERHEAD
        is_whole = view[at + layout.MAGIC] == layout.MAGIC_V2 and layout.HEADER_SIZE <= size <= len(view) - at
        if not is_whole or view[at + layout.ATTRIBUTES + 1] & _OF_TRANSACTION:
            break
        at += size
    return at


def check_records(payload: Buffer, fields: BatchFields) -> int:
    greatest = layout.NO_TIMESTAMP
    for record in iter_section(payload, fields, layout.MIN_INT64, layout.MAX_INT64 + 1):
        greatest = max(greatest, record.timestamp)
    return greatest


def read_records(payload: Buffer, fields: BatchFields) -> list[Record]:
    return list(iter_section(payload, fields, layout.MIN_INT64, layout.MAX_INT64 + 1))


def read_placed_records(payload: Buffer, fields: BatchFields, place: RecordPlace, kind: type[T]) -> list[T]:
    topic, partition, timestamp_type, epoch = place
    return [
        tuple.__new__(kind, (topic, partition, offset, timestamp, timestamp_type, key, value, headers, epoch))
        for offset, timestamp, key, value, headers in read_records(payload, fields)
    ]


def take_latest(buffer: Buffer, latest: Latest, undecided: dict[int, Latest]) -> int:
    del buffer, latest, undecided  # the caller's own way is the reference
    return 0


class _Binaries:
    """A growing list of byte strings and nulls."""

    def __init__(self) -> None:
        self.rows: list[bytes | None] = []
        self.size = 0

    def check_room(self, rows: Sequence[bytes | None]) -> None:
        if self.size + sum(len(row) for row in rows if row) > layout.MAX_INT32:
            raise LogError("a decoded column would exceed 2 GiB: call finish() more often")

    def extend(self, rows: Sequence[bytes | None]) -> None:
        self.rows += rows
        self.size += sum(len(row) for row in rows if row)

    def nbytes(self) -> int:
        return self.size + 4 * len(self.rows)

    def buffers(self) -> BinaryBuffers:
        lengths = [len(row or b"") for row in self.rows]
        nulls = self.rows.count(None)
        validity = _bitmap([row is not None for row in self.rows]) if nulls else None
        data = b"".join([row for row in self.rows if row])
        return BinaryBuffers(len(self.rows), nulls, validity, _offsets(lengths), data)


class RecordDecoder:
    def __init__(self, columns: frozenset[str], timestamp_scale: int) -> None:
        self._columns = columns
        self._scale = timestamp_scale
        self._clear()

    def _clear(self) -> None:
        self.rows = 0
        self._key = _Binaries()
        self._value = _Binaries()
        self._header_counts: list[int] = []
        self._header_keys = _Binaries()
        self._header_values = _Binaries()
        self._offset = array("q")
        self._timestamp = array("q")
        self._timestamp_type = array("i")

    @property
    def nbytes(self) -> int:
        binaries = (self._key, self._value, self._header_keys, self._header_values)
        fixed = 8 * len(self._offset) + 8 * len(self._timestamp) + 4 * len(self._timestamp_type)
        return sum(column.nbytes() for column in binaries) + 4 * len(self._header_counts) + fixed

    def append(self, payload: Buffer, fields: BatchFields, start_offset: int, end_offset: int) -> int:
        records = list(iter_section(payload, fields, start_offset, end_offset))
        binaries = self._binaries(records)
        for column, rows in binaries:
            column.check_room(rows)
        for column, rows in binaries:
            column.extend(rows)
        if "headers" in self._columns:
            self._header_counts += [len(record.headers) for record in records]
        if "offset" in self._columns:
            self._offset.extend(record.offset for record in records)
        if "timestamp" in self._columns:
            self._timestamp.extend(_saturate(record.timestamp * self._scale) for record in records)
        if "timestamp_type" in self._columns:
            self._timestamp_type.extend([0 if fields.append_time is None else 1] * len(records))
        self.rows += len(records)
        return len(records)

    def _binaries(self, records: list[Record]) -> list[tuple[_Binaries, Sequence[bytes | None]]]:
        binaries: list[tuple[_Binaries, Sequence[bytes | None]]] = []
        if "key" in self._columns:
            binaries.append((self._key, [record.key for record in records]))
        if "value" in self._columns:
            binaries.append((self._value, [record.value for record in records]))
        if "headers" in self._columns:
            headers = [header for record in records for header in record.headers]
            binaries.append((self._header_keys, [key.encode() for key, _ in headers]))
            binaries.append((self._header_values, [value for _, value in headers]))
        return binaries

    def finish(self) -> DecodedColumns:
        columns = self._columns
        done = DecodedColumns(
            self.rows,
            self._key.buffers() if "key" in columns else None,
            self._value.buffers() if "value" in columns else None,
            self._header_buffers() if "headers" in columns else None,
            self._offset if "offset" in columns else None,
            self._timestamp if "timestamp" in columns else None,
            self._timestamp_type if "timestamp_type" in columns else None,
        )
        self._clear()
        return done

    def _header_buffers(self) -> HeaderBuffers:
        counts = self._header_counts
        nulls = counts.count(0)
        validity = _bitmap([count > 0 for count in counts]) if nulls else None
        keys, values = self._header_keys.buffers(), self._header_values.buffers()
        return HeaderBuffers(len(counts), nulls, validity, _offsets(counts), keys, values)


def _saturate(value: int) -> int:
    return max(layout.MIN_INT64, min(layout.MAX_INT64, value))


def _bitmap(valid: list[bool]) -> bytes:
    bits = bytearray((len(valid) + 7) // 8)
    for row, is_valid in enumerate(valid):
        bits[row >> 3] |= is_valid << (row & 7)
    return bytes(bits)


def _offsets(lengths: list[int]) -> array[int]:
    offsets = array("i", [0])
    for length in lengths:
        offsets.append(offsets[-1] + length)
    return offsets


def write_record(
    out: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[str, Buffer | None]],
) -> None:
    encoded = [(header_key.encode(), header_value) for header_key, header_value in headers]
    _write_record(out, timestamp_delta, offset_delta, key, value, encoded)


def _write_record(
    out: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[bytes, Buffer | None]],
) -> None:
    body = bytearray(1)
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, key)
    _write_bytes(body, value)
    write_varint(body, len(headers))
    for header_key, header_value in headers:
        _write_bytes(body, header_key)
        _write_bytes(body, header_value)
    write_varint(out, len(body))
    out += body


def _write_bytes(out: bytearray, data: Buffer | None) -> None:
    if data is None:
        out.append(1)
    else:
        view = memoryview(data)
        write_varint(out, view.nbytes)
        out += view


class RecordEncoder:
    def __init__(self, columns: RecordColumns, rows: Buffer | None) -> None:
        self._columns = columns
        self._rows: Sequence[int] = range(columns.length) if rows is None else memoryview(rows).cast("B").cast("i")
        self._position = 0
        self._timestamps = None if columns.timestamps is None else memoryview(columns.timestamps).cast("B").cast("q")

    def next_section(self, max_bytes: int, room: int) -> EncodedRecords | None:
        if self._position >= len(self._rows):
            return None
        out = bytearray(room)
        first = self._position
        base_timestamp = max_timestamp = self._timestamp(first)
        while self._position < len(self._rows):
            before = len(out)
            timestamp = self._timestamp(self._position)
            delta = wrap64(timestamp - base_timestamp)
            row = self._row(self._position)
            columns = self._columns
            key, value = _binary(columns.key, row), _binary(columns.value, row)
            _write_record(out, delta, self._position - first, key, value, _headers(columns.headers, row))
            if before > room and len(out) - room > max_bytes:
                del out[before:]
                break
            max_timestamp = max(max_timestamp, timestamp)
            self._position += 1
        return EncodedRecords(out, self._position - first, base_timestamp, max_timestamp)

    def _row(self, position: int) -> int:
        row = self._rows[position]
        if not 0 <= row < self._columns.length:
            raise LocalProtocolError(f"row {row} is not one of the {self._columns.length} rows to encode")
        return row

    def _timestamp(self, position: int) -> int:
        row = self._row(position)
        return self._columns.now_ms if self._timestamps is None else self._timestamps[row]


def _is_null(validity: Buffer | None, row: int) -> bool:
    return validity is not None and not memoryview(validity).cast("B")[row >> 3] >> (row & 7) & 1


def _bounds(offsets: Buffer, row: int, limit: int) -> tuple[int, int]:
    ends = memoryview(offsets).cast("B").cast("i")
    if not 0 <= ends[row] <= ends[row + 1] <= limit:
        raise LocalProtocolError("a column's offsets do not fit its data")
    return ends[row], ends[row + 1]


def _binary(column: BinaryColumn | None, row: int) -> bytes | None:
    if column is None:
        return None
    row += column.offset
    if _is_null(column.validity, row):
        return None
    data = memoryview(column.data).cast("B")
    start, end = _bounds(column.offsets, row, len(data))
    return bytes(data[start:end])


def _headers(column: HeadersColumn | None, row: int) -> list[tuple[bytes, bytes | None]]:
    if column is None:
        return []
    row += column.offset
    if _is_null(column.validity, row):
        return []
    headers = []
    for element in range(*_bounds(column.offsets, row, column.keys.length)):
        key = _binary(column.keys, element)
        if key is None:
            raise LocalProtocolError(f"a header of row {row} has no key: Kafka does not allow that")
        headers.append((key, _binary(column.values, element)))
    return headers


_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFF_FFFF


def murmur2(data: Buffer) -> int:
    view = memoryview(data).cast("B")
    length = len(view)
    hashed = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        block = int.from_bytes(view[position : position + 4], "little") * _MULTIPLIER & _MASK
        block = (block ^ block >> 24) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ block
    if length != whole:
        hashed = (hashed ^ int.from_bytes(view[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def partition_rows(key: BinaryColumn, partition_count: int, null_partition: int) -> list[memoryview]:
    rows = [array("i") for _ in range(partition_count)]
    for row in range(key.length):
        data = _binary(key, row)
        partition = null_partition if data is None else (murmur2(data) & layout.MAX_INT32) % partition_count
        rows[partition].append(row)
    return [memoryview(numbers) for numbers in rows]
