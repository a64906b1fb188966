"""The wire format of schema registries: a zero byte, the schema's id in four bytes, high to low, and the value."""

from __future__ import annotations

import struct

from sparklog.errors import SerializationError

FRAME = struct.Struct(">bi")
_BY_GUID = 1
"""What a value begins with whose schema is named by a GUID of 16 bytes, in Confluent's newer format."""


def framed(schema_id: int) -> bytes:
    """What stands before a value of that schema."""
    return FRAME.pack(0, schema_id)


def schema_id_of(data: bytes) -> int:
    """The id that a value begins with. Raises SerializationError for bytes that begin otherwise."""
    if len(data) < FRAME.size:
        raise SerializationError(
            f"it has {len(data)} bytes, and the wire format of a schema registry has 5 before the value"
        )
    first, found = FRAME.unpack_from(data)
    if first == _BY_GUID:
        raise SerializationError("it begins with byte 1: its schema is named by a GUID, which is not read here")
    if first != 0:
        raise SerializationError(
            f"it begins with byte {data[0]}, not with 0: it was not written by a schema registry's serializer"
        )
    return int(found)
