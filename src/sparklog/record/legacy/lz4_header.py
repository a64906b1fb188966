"""The LZ4 frames of magic 0, whose writers computed the header's checksum of the wrong bytes.

A frame is ``magic (4) | FLG | BD | content size (8, optional) | checksum of the header (1) | blocks``. The checksum
is the second byte of the xxHash-32 of what lies between the magic and itself; Kafka up to 0.9 hashed the magic too,
and kept doing so for magic 0. Source: Kafka 3.9, ``Lz4BlockOutputStream``; the LZ4 frame format, version 1.6.
"""

from __future__ import annotations

_DESCRIPTOR = 4
_CONTENT_SIZE_BIT = 0x08
_DICTIONARY_BIT = 0x01
_STRIPE = 16

_PRIME_1, _PRIME_2, _PRIME_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME_4, _PRIME_5 = 0x27D4EB2F, 0x165667B1
_MASK = 0xFFFF_FFFF


def with_right_checksum(frame: memoryview) -> memoryview:
    """``frame`` with the checksum that its header should have; what is too short for one is left for the decoder."""
    return _with_checksum(frame, hashed_from=_DESCRIPTOR)


def with_wrong_checksum(frame: memoryview) -> memoryview:
    """``frame`` with the checksum that readers of magic 0 expect."""
    return _with_checksum(frame, hashed_from=0)


def _with_checksum(frame: memoryview, hashed_from: int) -> memoryview:
    if len(frame) <= _DESCRIPTOR:
        return frame
    flags = frame[_DESCRIPTOR]
    end = _DESCRIPTOR + 2 + (8 if flags & _CONTENT_SIZE_BIT else 0) + (4 if flags & _DICTIONARY_BIT else 0)
    if len(frame) <= end:
        return frame
    checksum = _xxh32(frame[hashed_from:end]) >> 8 & 0xFF
    if frame[end] == checksum:
        return frame
    changed = bytearray(frame)
    changed[end] = checksum
    return memoryview(changed)


def _xxh32(data: memoryview) -> int:
    """xxHash-32 with seed 0 of fewer than 32 bytes."""
    stripes = len(data) // _STRIPE * _STRIPE
    hashed = len(data) + (_of_stripe(data[:stripes]) if stripes else _PRIME_5)
    whole = len(data) & ~3
    for position in range(stripes, whole, 4):
        lane = int.from_bytes(data[position : position + 4], "little")
        hashed = _rotate_left(hashed + lane * _PRIME_3, 17) * _PRIME_4
    for byte in data[whole:]:
        hashed = _rotate_left(hashed + byte * _PRIME_5, 11) * _PRIME_1
    hashed &= _MASK
    hashed = (hashed ^ hashed >> 15) * _PRIME_2 & _MASK
    hashed = (hashed ^ hashed >> 13) * _PRIME_3 & _MASK
    return hashed ^ hashed >> 16


def _of_stripe(data: memoryview) -> int:
    """Of 16 bytes, four lanes."""
    hashed = 0
    for number, seed in enumerate((_PRIME_1 + _PRIME_2, _PRIME_2, 0, -_PRIME_1)):
        lane = int.from_bytes(data[4 * number : 4 * number + 4], "little")
        mixed = _rotate_left(seed + lane * _PRIME_2, 13) * _PRIME_1
        hashed += _rotate_left(mixed, (1, 7, 12, 18)[number])
    return hashed


def _rotate_left(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (32 - bits)) & _MASK
