"""Reads the types of Avro's binary encoding, with a function that is made for each place in a schema.

The functions check whatever can be wrong in the bytes: a varint has at most 10 bytes and 64 bits, an int has 32 bits;
an index is one of the enum or union; a boolean is 0 or 1; a length is not negative; text is UTF-8. The reasons tell the
place, ``where``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparklog.spark.values.decoded import Unreadable

Read = Callable[[bytes, int], tuple[Any, int]]
"""The value at a position of the bytes, and the position after it.

Raises Unreadable, and IndexError if the bytes end too early.
"""

INTS = range(-(1 << 31), 1 << 31)
LONGS = range(-(1 << 63), 1 << 63)
_FEW = 1 << 10
"""How many elements an array may have that take no bytes: a few bytes can claim any number of them."""


def wrong(where: str, what: str) -> Unreadable:
    """The error for what is at ``where``, a path of fields, or the empty text for the record itself."""
    return Unreadable(f"it is not of the schema: {where or 'the root'} {what}")


def null(_data: bytes, at: int) -> tuple[None, int]:
    return None, at


def long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > 63:
            raise Unreadable("it is not of the schema: a varint has more than 10 bytes")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    if number >> 64:
        raise Unreadable("it is not of the schema: a varint has more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def integer(where: str) -> Read:
    def read(data: bytes, at: int) -> tuple[int, int]:
        number, at = long(data, at)
        if number not in INTS:
            raise wrong(where, f"is {number}, which is no int")
        return number, at

    return read


def boolean(where: str) -> Read:
    def read(data: bytes, at: int) -> tuple[bool, int]:
        byte = data[at]
        if byte > 1:
            raise wrong(where, f"is a boolean of the byte {byte}")
        return byte == 1, at + 1

    return read


def _of_struct(layout: struct.Struct) -> Read:
    unpack, size = layout.unpack_from, layout.size

    def read(data: bytes, at: int) -> tuple[float, int]:
        end = at + size
        if end > len(data):
            raise IndexError
        return unpack(data, at)[0], end

    return read


single = _of_struct(struct.Struct("<f"))
double = _of_struct(struct.Struct("<d"))


def fixed(size: int) -> Read:
    if not isinstance(size, int) or size < 0:  # which fastavro passes
        return never(f"its schema has a fixed of size {size!r}")

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise IndexError
        return data[at:end], end

    return read


def binary(where: str) -> Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        size, at = long(data, at)
        end = at + size
        if size < 0:
            raise wrong(where, f"has the length {size}")
        if end > len(data):
            raise IndexError
        return data[at:end], end

    return read


def string(where: str) -> Read:
    read_bytes = binary(where)

    def read(data: bytes, at: int) -> tuple[str, int]:
        raw, at = read_bytes(data, at)
        try:
            return raw.decode(), at
        except UnicodeDecodeError:
            raise wrong(where, "is not UTF-8") from None

    return read


def enum(names: Sequence[str], symbols: Sequence[str | None], where: str) -> Read:
    """Reads the number of one of ``names`` as the one of ``symbols``; None is not readable."""

    def read(data: bytes, at: int) -> tuple[str, int]:
        index, at = long(data, at)
        if not 0 <= index < len(symbols):
            raise wrong(where, f"has the symbol {index} of an enum of {len(symbols)}")
        symbol = symbols[index]
        if symbol is None:
            raise wrong(where, f"is {names[index]}, which is no symbol of the schema")
        return symbol, at

    return read


def union(branches: Sequence[Read], where: str) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, at = long(data, at)
        if not 0 <= index < len(branches):
            raise wrong(where, f"has the branch {index} of a union of {len(branches)}")
        return branches[index](data, at)

    return read


def array(element: Read, where: str) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        count, at = _block(data, at, where)
        while count:
            for _ in range(count):
                value, at = element(data, at)
                found.append(value)
            count, at = _block(data, at, where)
        return found, at

    return read


def array_of_empty(element: Read | None, where: str) -> Read:
    """Reads an array whose elements take no bytes: nulls, empty records. None stands for one that is skipped."""

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        count, at = _count(data, at)
        while count:
            if element is not None:
                if len(found) + count > _FEW:
                    raise wrong(where, f"has more than {_FEW} elements that take no bytes")
                found += [element(data, at)[0] for _ in range(count)]
            count, at = _count(data, at)
        return found, at

    return read


def map_of(value_of: Read, where: str) -> Read:
    key_of = string(f"a key of {where}")

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found = {}
        count, at = _block(data, at, where)
        while count:
            for _ in range(count):
                key, at = key_of(data, at)
                found[key], at = value_of(data, at)
            count, at = _block(data, at, where)
        return found, at

    return read


def _block(data: bytes, at: int, where: str) -> tuple[int, int]:
    """``_count``, of a block whose elements take a byte each at least; a small one may end too early."""
    count, at = _count(data, at)
    if count > _FEW and count > len(data) - at:
        raise wrong(where, f"has {count} elements in the {len(data) - at} bytes that are left")
    return count, at


def _count(data: bytes, at: int) -> tuple[int, int]:
    """How many elements the block has that begins there, 0 at the end; if negative, the size in bytes follows."""
    count, at = long(data, at)
    if count < 0:
        count = -count
        _, at = long(data, at)
    return count, at


def record(fields: list[tuple[str | None, Read]], defaults: Mapping[str, Any]) -> Read:
    """Reads fields, of which those without a name are skipped; the nulls among these cost nothing."""
    fields = [each for each in fields if each != (None, null)]

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found = dict(defaults)
        for name, field in fields:
            value, at = field(data, at)
            if name is not None:
                found[name] = value
        return found, at

    return read


def never(reason: str) -> Read:
    """Reads no value, for the reason."""

    def read(_data: bytes, _at: int) -> tuple[Any, int]:
        raise Unreadable(reason)

    return read
