"""Reading one records section in plain Python: what the reference codec's operations have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparklog.errors import CorruptRecord
from sparklog.record import layout
from sparklog.record._impl.abc import BatchFields, Record
from sparklog.record.varint import read_varint, read_varlong

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

RawHeaders = tuple[tuple[bytes, bytes | None], ...]


class Prefix(NamedTuple):
    """A record up to its offset: where its key begins, where the record ends, its timestamp, delta and offset."""

    position: int
    end: int
    timestamp: int
    offset_delta: int
    offset: int


def iter_section(payload: Buffer, fields: BatchFields, start_offset: int, end_offset: int) -> Iterator[Record]:
    """The records with ``start_offset <= offset < end_offset``; others are read only as far as their offset."""
    view = memoryview(payload)
    for prefix in iter_prefixes(view, fields):
        if start_offset <= prefix.offset < end_offset:
            yield read_body(view, prefix)


def iter_prefixes(view: memoryview, fields: BatchFields) -> Iterator[Prefix]:
    """The prefix of every record; whoever takes them all knows that the records fill the section.

    Raises CorruptRecord where they do not.
    """
    layout.check_record_count(fields.record_count, len(view))
    position, delta = 0, -1
    for _ in range(fields.record_count):
        prefix = _read_prefix(view, position, fields)
        if not delta < prefix.offset_delta <= fields.last_offset_delta:
            raise CorruptRecord(
                f"record with the offset delta {prefix.offset_delta}, behind one with {delta} in a batch"
                f" whose last is {fields.last_offset_delta}"
            )
        position, delta = prefix.end, prefix.offset_delta
        yield prefix
    if fields.record_count and position != len(view):
        raise CorruptRecord(f"{len(view) - position} bytes follow the last of {fields.record_count} records")


def _read_prefix(view: memoryview, position: int, fields: BatchFields) -> Prefix:
    length, size = read_varint(view, position)
    position += size
    end = position + length
    if length < 0 or end > len(view):
        raise CorruptRecord(f"record of {length} bytes in {len(view) - position}")
    body = view[:end]
    position += 1
    timestamp_delta, size = read_varlong(body, position)
    position += size
    offset_delta, size = read_varint(body, position)
    timestamp = fields.append_time
    if timestamp is None:
        timestamp = wrap64(fields.base_timestamp + timestamp_delta)
    return Prefix(position + size, end, timestamp, offset_delta, wrap64(fields.base_offset + offset_delta))


class RawBody(NamedTuple):
    """The rest of a record, the names of its headers as they stand there."""

    key: bytes | None
    value: bytes | None
    headers: RawHeaders


def read_body(view: memoryview, prefix: Prefix) -> Record:
    key, value, raw = read_raw_body(view, prefix)
    headers = tuple((name.decode("utf-8", "replace"), content) for name, content in raw)
    return Record(prefix.offset, prefix.timestamp, key, value, headers)


def read_raw_body(view: memoryview, prefix: Prefix) -> RawBody:
    """Raises CorruptRecord where the fields do not fill the record."""
    body = view[: prefix.end]
    key, position = _read_bytes(body, prefix.position)
    value, position = _read_bytes(body, position)
    headers, position = _read_headers(body, position)
    if position != prefix.end:
        raise CorruptRecord(f"record at offset {prefix.offset} is {prefix.end - position} bytes longer than its fields")
    return RawBody(key, value, headers)


def _read_bytes(view: memoryview, position: int) -> tuple[bytes | None, int]:
    length, size = read_varint(view, position)
    position += size
    if length < 0:
        return None, position
    if position + length > len(view):
        raise CorruptRecord(f"field of {length} bytes in {len(view) - position}")
    return bytes(view[position : position + length]), position + length


def _read_headers(view: memoryview, position: int) -> tuple[RawHeaders, int]:
    count, size = read_varint(view, position)
    position += size
    if not 0 <= count <= len(view) - position:
        raise CorruptRecord(f"record claims {count} headers in {len(view) - position} bytes")
    headers = []
    for _ in range(count):
        key, position = _read_bytes(view, position)
        if key is None:
            raise CorruptRecord("record header has no key")
        value, position = _read_bytes(view, position)
        headers.append((key, value))
    return tuple(headers), position


def wrap64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
