"""Message sets, magic 0 (Kafka 0.8 and 0.9) and magic 1 (0.10).

A set is entries one after another, big-endian throughout::

    offset size  field
         0    8  offset
         8    4  size: bytes that follow this field
        12    4  CRC-32 of everything from the magic to the end of the entry
        16    1  magic, 0 or 1
        17    1  attributes: bits 0-2 compression (0 none, 1 gzip, 2 snappy, 3 lz4); in magic 1, bit 3 log append time
        18    8  timestamp, ms, -1 for none; magic 1 alone
                 key length (4), -1 for null | key | value length (4), -1 for null | value

A wrapper's value is a compressed set, its offset is that of the set's last message. Within a magic 0 wrapper the
messages have their own offsets; within a magic 1 wrapper they have relative ones, which compaction leaves as they
are, so that only the difference from the last one counts. (A wrapper at offset 0 is the exception: some producers
sent 0 whatever the set, and its offsets are taken as they are.) Where a wrapper has log append time, its timestamp
is that of every message in it. LZ4 within magic 0 has a wrong header checksum, see ``lz4_header``.

Stricter than Java's reader: fields must fill their entry and entries their wrapper exactly. As lenient: a negative
length is null, unknown attribute bits are ignored, and a wrapper may hold messages of the other magic.
Source: Kafka 3.9, ``LegacyRecord`` and ``AbstractLegacyRecordBatch``.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import TYPE_CHECKING

from sparklog.errors import CorruptRecord
from sparklog.record import layout
from sparklog.record.compression import CompressionType
from sparklog.record.legacy.message import (
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    NO_TIMESTAMP_TYPE,
    SMALLEST_ENTRY,
    Format,
    LegacyMessage,
)
from sparklog.record.records import MAX_DECOMPRESSED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

_FORMATS = (Format.MAGIC_0, Format.MAGIC_1)
_HEADER = Struct(">qiIBB")
_TIMESTAMP = _HEADER.size
_KEYS = (_HEADER.size, _HEADER.size + 8)


def iter_messages(buffer: Buffer, position: int = 0, *, partial_tail: bool = True) -> Iterator[LegacyMessage]:
    """The entries of a set from ``position`` on, wrappers as they are.

    With ``partial_tail`` an incomplete last entry ends the iteration quietly; without it, it raises CorruptRecord.
    """
    view = memoryview(buffer)
    while position < len(view):
        if partial_tail and is_cut_short(view, position):
            return
        message = read_message(view, position)
        yield message
        position += message.size


def unwrap(message: LegacyMessage, max_decompressed: int = MAX_DECOMPRESSED) -> Iterator[LegacyMessage]:
    """The message itself, or the messages in it with the offset and timestamp that the wrapper gives them.

    Every CRC is checked; CorruptRecord also where there is no message in a wrapper, or another wrapper.
    """
    message.validate()
    if message.compression is CompressionType.NONE:
        yield message
        return
    inner_set = message.decompressed(max_decompressed)
    shift = _offset_shift(inner_set, message)
    for inner in iter_messages(inner_set, partial_tail=False):
        inner.validate()
        inner.refuse_nested()
        yield _resolved(inner, message, shift)


def read_message(view: memoryview, position: int) -> LegacyMessage:
    """The entry at ``position``, which must lie within ``view`` whole. Raises CorruptRecord where it does not."""
    available = len(view) - position
    if position < 0 or available < layout.LOG_OVERHEAD + SMALLEST_ENTRY:
        raise CorruptRecord(f"no room for a message at position {position} of {len(view)} bytes")
    offset, size, crc, magic, attributes = _HEADER.unpack_from(view, position)
    if magic >= len(_FORMATS):
        raise CorruptRecord(f"message at position {position} has magic {magic}; a message set has 0 or 1")
    total = layout.LOG_OVERHEAD + size
    if not layout.LOG_OVERHEAD + SMALLEST_ENTRY <= total <= available:
        raise CorruptRecord(f"message at position {position} claims {total} of the {available} bytes left")
    entry = view[position : position + total]
    key, end = _read_bytes(entry, _KEYS[magic])
    value, end = _read_bytes(entry, end)
    if end != total:
        raise CorruptRecord(f"message at position {position} is {total - end} bytes longer than its fields")
    return LegacyMessage(
        position,
        total,
        offset,
        _FORMATS[magic],
        magic,
        attributes,
        crc,
        zlib.crc32(entry[layout.MAGIC :]) == crc,
        layout.INT64.unpack_from(entry, _TIMESTAMP)[0] if magic else NO_TIMESTAMP,
        attributes >> 3 & 1 if magic else NO_TIMESTAMP_TYPE,
        key,
        value,
    )


def is_cut_short(view: memoryview, position: int) -> bool:
    """Whether the entry at ``position``, of whichever magic from 0 to 2, ends behind the end of ``view``.

    Raises CorruptRecord where there can be no entry.
    """
    available = len(view) - position
    if position < 0:
        raise CorruptRecord(f"there is no entry at position {position}")
    if available < layout.LOG_OVERHEAD:
        return True
    size = layout.OFFSET_AND_LENGTH.unpack_from(view, position)[1]
    if size < SMALLEST_ENTRY:
        raise CorruptRecord(f"entry at position {position} has the size {size}")
    return bool(available < layout.LOG_OVERHEAD + size)


def _read_bytes(entry: memoryview, position: int) -> tuple[memoryview | None, int]:
    start = position + 4
    if start > len(entry):
        raise CorruptRecord(f"message of {len(entry)} bytes ends within a length")
    length = layout.INT32.unpack_from(entry, position)[0]
    if length < 0:
        return None, start
    end = start + length
    if end > len(entry):
        raise CorruptRecord(f"field of {length} bytes in {len(entry) - start}")
    return entry[start:end], end


def _offset_shift(inner_set: memoryview, wrapper: LegacyMessage) -> int:
    """What to add to the offsets in ``inner_set``; reads its sizes alone, so that nothing is kept."""
    last = None
    position = 0
    while position < len(inner_set):
        if is_cut_short(inner_set, position):
            raise CorruptRecord(f"compressed message at offset {wrapper.offset} ends within a message")
        last, size = layout.OFFSET_AND_LENGTH.unpack_from(inner_set, position)
        position += layout.LOG_OVERHEAD + size
    if last is None:
        raise CorruptRecord(f"compressed message at offset {wrapper.offset} holds no messages")
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    if wrapper.offset < last:
        raise CorruptRecord(f"compressed message at offset {wrapper.offset} ends with the relative offset {last}")
    return int(wrapper.offset - last)


def _resolved(inner: LegacyMessage, wrapper: LegacyMessage, shift: int) -> LegacyMessage:
    offset = inner.offset + shift
    if not layout.MIN_INT64 <= offset <= layout.MAX_INT64:
        raise CorruptRecord(f"relative offset {inner.offset} in the compressed message at offset {wrapper.offset}")
    if inner.magic == 0:
        return inner._replace(offset=offset)
    kind = wrapper.timestamp_type
    timestamp = wrapper.timestamp if kind == LOG_APPEND_TIME else inner.timestamp
    return inner._replace(offset=offset, timestamp=timestamp, timestamp_type=kind)
