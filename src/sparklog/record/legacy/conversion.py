"""Message sets as record batches, which is how a broker keeps them, and record batches as message sets, which is how
clients from before Kafka 0.11 read them.

Up: a set of plain messages, or of one wrapper, becomes one batch of the same compression. The log gives the offsets.
Times are kept; magic 0 has none, which is -1. Every CRC is checked.
Down: what magic 0 and 1 have no room for is left out: headers, producers, leader epochs, and markers of transactions as
a whole. Offsets stay, gaps included. A batch that was compressed is a wrapper of the same compression.

Each message is a Python object on its way, so that both belong on a thread beside the loop, and are bounded by the
bytes that they may come to. The thread hands the interpreter's lock over every millisecond or so, and not only when
the loop has waited for it as long as Python lets it wait.
Source: Kafka 3.9, ``LogValidator``, ``RecordsUtil.downConvert``, ``MemoryRecordsBuilder``.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from sparklog.errors import CorruptRecord, LogError
from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType, compress
from sparklog.record.legacy.lz4_header import with_wrong_checksum
from sparklog.record.legacy.message import NO_TIMESTAMP, LegacyMessage
from sparklog.record.legacy.message_set import iter_messages, unwrap
from sparklog.record.records import MAX_DECOMPRESSED, Record, iter_batches, iter_records

if TYPE_CHECKING:
    from typing_extensions import Buffer

_ENTRY = Struct(">qi")
_FIELDS = (Struct(">BB"), Struct(">BBq"))
"""Magic, attributes and, in magic 1, the timestamp."""
_LOG_APPEND_TIME_BIT = 8
_A_TURN, _PAUSE_S = 256, 50e-6
"""Messages; and how long others then have to take the lock."""
T = TypeVar("T")


class MessageSet(NamedTuple):
    """What batches become."""

    data: bytes
    records: int
    """Of the batches that it was made of."""
    end_offset: int
    """Behind the last batch that was looked at; the first offset of all without one."""


class UnfitRecords(LogError):
    """The other format cannot hold these records, or a broker refuses them from every client."""


class LargeRecords(UnfitRecords):
    """More bytes than a broker takes at once."""


def to_batch(
    message_set: Buffer, max_decompressed: int = MAX_DECOMPRESSED, largest: int = layout.MAX_INT32
) -> bytes | None:
    """The set as one record batch; None where no message of it is whole. A last message that is cut short is left out.

    ``largest``: bytes of one message as it was sent, and of a batch that is not compressed.

    Raises CorruptRecord where a CRC is wrong or bytes do not hold together, LargeRecords as soon as that shows, and
    UnfitRecords for a wrapper that does not stand alone or cannot be read, and for a negative time.
    """
    entries = _checked(iter_messages(message_set), largest)
    first = next(entries, None)
    if first is None:
        return None
    builder = RecordBatchBuilder(first.compression)
    for each in _in_turns(_plain(chain((first,), entries), max_decompressed)):
        if each.timestamp < NO_TIMESTAMP:
            raise UnfitRecords(f"message {builder.record_count} of the set has the time {each.timestamp} ms")
        builder.append(each.timestamp, each.key, each.value)
        if builder.compression is CompressionType.NONE and builder.size_estimate > largest:
            raise LargeRecords(f"the set becomes a batch of more than {largest} bytes")
    return builder.build()


def _checked(entries: Iterable[LegacyMessage], largest: int) -> Iterator[LegacyMessage]:
    has_wrapper = False
    for number, each in enumerate(entries):
        each.validate()
        if each.size > largest:
            raise LargeRecords(f"a message of {each.size} bytes is larger than {largest}")
        has_wrapper = has_wrapper or each.compression is not CompressionType.NONE
        if number and has_wrapper:
            raise UnfitRecords("a compressed message is to be the only one of its set")
        yield each


def _in_turns(messages: Iterable[T]) -> Iterator[T]:
    for number, each in enumerate(messages, 1):
        yield each
        if number % _A_TURN == 0:
            time.sleep(_PAUSE_S)


def _plain(entries: Iterable[LegacyMessage], max_decompressed: int) -> Iterator[LegacyMessage]:
    """The messages; those of a wrapper whose CRC is right are its sender's, so that another try does not help."""
    for each in entries:
        try:
            yield from unwrap(each, max_decompressed)
        except CorruptRecord as error:
            raise UnfitRecords(f"the records cannot be read: {error}") from error


def to_message_set(batches: Buffer, magic: int, start_offset: int, enough: int = layout.MAX_INT32) -> MessageSet:
    """What the batches hold from ``start_offset`` on, as messages of magic 0 or 1; no batch is looked at behind
    ``enough`` bytes of them. A last batch that is cut short is left out.

    A compressed batch becomes one wrapper, which holds all of its records if one of them is at ``start_offset`` or
    behind it. A batch in zstd ends the set. Raises CorruptRecord for a batch that cannot be read, UnfitRecords for one
    in zstd that no message comes before.
    """
    out, records, end_offset = bytearray(), 0, start_offset
    for batch in iter_batches(batches):
        if out and len(out) >= enough:
            break
        if not batch.is_control and batch.record_count:
            try:
                out += _messages(batch, magic, start_offset)
            except UnfitRecords:
                if not out:
                    raise
                break
            records += batch.record_count
        end_offset = batch.next_offset
    return MessageSet(bytes(out), records, end_offset)


def _messages(batch: RecordBatch, magic: int, start_offset: int) -> bytes:
    batch.validate()
    append_time = batch.max_timestamp if batch.timestamp_type else None
    records = _in_turns(iter_records(batch))
    kind = batch.compression
    if kind is CompressionType.NONE:
        return _plain_set((each for each in records if each.offset >= start_offset), magic, append_time)
    if kind is CompressionType.ZSTD:
        raise UnfitRecords("zstd is for clients that speak Fetch 10 or later")
    held = list(records)
    return _wrapper(held, magic, kind, append_time) if held[-1].offset >= start_offset else b""


def _plain_set(records: Iterable[Record], magic: int, append_time: int | None, base_offset: int = 0) -> bytes:
    out = bytearray()
    for each in records:
        timestamp = each.timestamp if append_time is None else append_time
        attributes = 0 if append_time is None else _LOG_APPEND_TIME_BIT
        out += _entry(each.offset - base_offset, magic, attributes, timestamp, each.key, each.value)
    return bytes(out)


def _wrapper(records: list[Record], magic: int, kind: CompressionType, append_time: int | None) -> bytes:
    base_offset = records[0].offset if magic else 0
    value: Buffer = compress(kind, _plain_set(records, magic, append_time, base_offset))
    if kind is CompressionType.LZ4 and magic == 0:
        value = with_wrong_checksum(memoryview(value))
    timestamp = max(each.timestamp for each in records) if append_time is None else append_time
    attributes = kind | (0 if append_time is None else _LOG_APPEND_TIME_BIT)
    return _entry(records[-1].offset, magic, attributes, timestamp, None, value)


def _entry(offset: int, magic: int, attributes: int, timestamp: int, key: Buffer | None, value: Buffer | None) -> bytes:
    if magic:
        fields = _FIELDS[1].pack(magic, attributes, timestamp)
    else:
        fields = _FIELDS[0].pack(magic, attributes & layout.COMPRESSION_MASK)
    message = b"".join((fields, *_field(key), *_field(value)))
    return b"".join(
        (_ENTRY.pack(offset, len(message) + 4), layout.UINT32.pack(zlib.crc32(message)), message),
    )


def _field(field: Buffer | None) -> tuple[Buffer, ...]:
    if field is None:
        return (layout.INT32.pack(-1),)
    return layout.INT32.pack(len(memoryview(field))), field
