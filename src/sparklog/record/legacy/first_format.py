"""The first format (Kafka 0.7): messages that are a payload and nothing else.

A log is messages one after another, big-endian throughout::

    length (4): bytes that follow | magic (1) | attributes (1), magic 1 alone | CRC-32 of the payload (4) | payload

Attributes: bits 0-1 compression (0 none, 1 gzip, 2 snappy). The CRC covers neither magic nor attributes. There is no
key and no timestamp, and no offset either: a message's offset is its byte position in the log, and a segment file is
named by the position of its first byte. The messages in a wrapper have no position of their own, so they all have
the wrapper's offset, the only one from which a consumer could start again. An empty wrapper is allowed.
Source: Kafka 0.7.2, ``Message``, ``ByteBufferMessageSet`` and ``FileMessageSet``.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import TYPE_CHECKING

from sparklog.errors import CorruptRecord
from sparklog.record import layout
from sparklog.record.compression import CompressionType
from sparklog.record.legacy.message import NO_TIMESTAMP, NO_TIMESTAMP_TYPE, Format, LegacyMessage
from sparklog.record.records import MAX_DECOMPRESSED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

_LENGTH_SIZE = 4
_LEAST_LENGTHS = (5, 6)
_MAGIC_0 = Struct(">iBI")
_MAGIC_1 = Struct(">iBBI")


def iter_messages(
    buffer: Buffer, position: int = 0, *, base_offset: int = 0, partial_tail: bool = True
) -> Iterator[LegacyMessage]:
    """The messages from ``position`` on, wrappers as they are; ``base_offset`` is that of the buffer's first byte.

    With ``partial_tail`` an incomplete last message ends the iteration quietly; without it, it raises CorruptRecord.
    """
    view = memoryview(buffer)
    while position < len(view):
        if partial_tail and _is_cut_short(view, position):
            return
        message = read_message(view, position, base_offset)
        yield message
        position += message.size


def unwrap(message: LegacyMessage, max_decompressed: int = MAX_DECOMPRESSED) -> Iterator[LegacyMessage]:
    """The message itself, or the messages in it, all at the wrapper's offset.

    Every CRC is checked; CorruptRecord also where there is a wrapper in a wrapper.
    """
    message.validate()
    if message.compression is CompressionType.NONE:
        yield message
        return
    for inner in iter_messages(message.decompressed(max_decompressed), partial_tail=False):
        inner.validate()
        inner.refuse_nested()
        yield inner._replace(offset=message.offset)


def read_message(view: memoryview, position: int, base_offset: int = 0) -> LegacyMessage:
    """The message at ``position``, which must lie within ``view`` whole. Raises CorruptRecord where it does not."""
    available = len(view) - position
    if position < 0 or available < _MAGIC_0.size:
        raise CorruptRecord(f"no room for a message at position {position} of {len(view)} bytes")
    length, magic, crc = _MAGIC_0.unpack_from(view, position)
    if magic >= len(_LEAST_LENGTHS):
        raise CorruptRecord(f"message at position {position} has magic {magic}; the first format has 0 or 1")
    size = _LENGTH_SIZE + length
    if not _LENGTH_SIZE + _LEAST_LENGTHS[magic] <= size <= available:
        raise CorruptRecord(f"message at position {position} claims {size} of the {available} bytes left")
    attributes = 0
    if magic:
        _, _, attributes, crc = _MAGIC_1.unpack_from(view, position)
    payload = view[position + _LENGTH_SIZE + _LEAST_LENGTHS[magic] : position + size]
    return LegacyMessage(
        position,
        size,
        base_offset + position,
        Format.FIRST,
        magic,
        attributes,
        crc,
        zlib.crc32(payload) == crc,
        NO_TIMESTAMP,
        NO_TIMESTAMP_TYPE,
        None,
        payload,
    )


def _is_cut_short(view: memoryview, position: int) -> bool:
    available = len(view) - position
    if position < 0:
        raise CorruptRecord(f"there is no message at position {position}")
    if available < _LENGTH_SIZE:
        return True
    length = layout.INT32.unpack_from(view, position)[0]
    if length < _LEAST_LENGTHS[0]:
        raise CorruptRecord(f"message at position {position} has the length {length}")
    return bool(available < _LENGTH_SIZE + length)
