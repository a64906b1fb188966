"""Zigzag varints: seven bits a byte, lowest first; the high bit says that more follow.

Readers take ``(buffer, offset)`` and give ``(value, size)``, the size being the bytes consumed. As in Kafka's
``ByteUtils``, a varint holds at most 5 bytes and a varlong at most 10, and bits beyond the type's width are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.errors import CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_VARINT_SIZE = 5
_MAX_VARLONG_SIZE = 10


def read_varint(buffer: Sequence[int], offset: int) -> tuple[int, int]:
    """A signed 32-bit integer."""
    raw, size = _read_unsigned(buffer, offset, _MAX_VARINT_SIZE)
    raw &= 0xFFFF_FFFF
    return (raw >> 1) ^ -(raw & 1), size


def read_varlong(buffer: Sequence[int], offset: int) -> tuple[int, int]:
    """A signed 64-bit integer."""
    raw, size = _read_unsigned(buffer, offset, _MAX_VARLONG_SIZE)
    raw &= 0xFFFF_FFFF_FFFF_FFFF
    return (raw >> 1) ^ -(raw & 1), size


def write_varint(out: bytearray, value: int) -> int:
    """Append a signed integer of up to 64 bits (a varlong is written alike); returns the bytes written."""
    raw = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    before = len(out)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return len(out) - before


def size_of_varint(value: int) -> int:
    """Bytes that ``write_varint`` would write."""
    raw = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    return max(1, (raw.bit_length() + 6) // 7)


def _read_unsigned(buffer: Sequence[int], offset: int, max_size: int) -> tuple[int, int]:
    raw = 0
    for size in range(max_size):
        if not 0 <= offset + size < len(buffer):
            raise CorruptRecord(f"varint at {offset} runs past the end of {len(buffer)} bytes")
        byte = buffer[offset + size]
        raw |= (byte & 0x7F) << (7 * size)
        if byte < 0x80:
            return raw, size + 1
    raise CorruptRecord(f"varint at {offset} is longer than {max_size} bytes")
