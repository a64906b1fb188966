"""The primitive types of the wire, for the codecs that are written by hand.

Kafka's two encodings of lengths stand side by side: fixed width in the older versions of a message, unsigned varints
plus one ("compact") in its flexible versions, which also end each structure with tagged fields.
"""

from __future__ import annotations

import struct
from uuid import UUID

from sparklog.errors import LocalProtocolError, RemoteProtocolError
from sparklog.structs import Chunk, FileSlice, chunk_size

_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
ZERO_UUID = UUID(int=0)
MOST_OF_STRING = 0x7FFF
"""Bytes of one string, whose length could say more where it is a varint; Kafka refuses those too."""
MOST_TAGS = 100
"""Of one structure: what Kafka's own have is a handful."""
MOST_TAGS_IN_ALL = 50_000
"""Of one message: two of each partition that a large one may name, and some."""


class WireReader:
    """Reads primitives from ``buffer``; anything past its end raises RemoteProtocolError."""

    __slots__ = ("_tags_left", "buffer", "flexible", "position")

    def __init__(self, buffer: memoryview, position: int = 0, *, flexible: bool = False) -> None:
        self.buffer = buffer
        self.position = position
        self.flexible = flexible
        self._tags_left = MOST_TAGS_IN_ALL

    def int8(self) -> int:
        return self.numbers(_I8)[0]

    def int16(self) -> int:
        return self.numbers(_I16)[0]

    def int32(self) -> int:
        return self.numbers(_I32)[0]

    def int64(self) -> int:
        return self.numbers(_I64)[0]

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        """Several numbers of fixed width that follow one another, in one step.

        Raises RemoteProtocolError where the message ends in the midst of one.
        """
        try:
            values = form.unpack_from(self.buffer, self.position)
        except struct.error as error:
            raise RemoteProtocolError(f"message ends at byte {len(self.buffer)}, in the middle of a number") from error
        self.position += form.size
        return values

    def uvarint(self) -> int:
        """An unsigned varint of at most 32 bits. Raises RemoteProtocolError for a longer one."""
        value = shift = 0
        buffer, position = self.buffer, self.position
        while True:
            if position >= len(buffer) or shift > 28:
                raise RemoteProtocolError("malformed unsigned varint")
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return value
            shift += 7

    def take(self, size: int) -> memoryview:
        end = self.position + size
        if size < 0 or end > len(self.buffer):
            raise RemoteProtocolError(f"a field claims {size} bytes, {len(self.buffer) - self.position} are left")
        view = self.buffer[self.position : end]
        self.position = end
        return view

    def bytes_or_none(self) -> memoryview | None:
        """Nullable bytes or records: a view, not a copy."""
        size = self.uvarint() - 1 if self.flexible else self.int32()
        return None if size < 0 else self.take(size)

    def string_or_none(self) -> str | None:
        size = self.uvarint() - 1 if self.flexible else self.int16()
        if size < 0:
            return None
        if size > MOST_OF_STRING:
            raise RemoteProtocolError(f"a string of {size} bytes is longer than {MOST_OF_STRING}")
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"a string is not UTF-8: {error}") from error

    def string(self) -> str:
        text = self.string_or_none()
        if text is None:
            raise RemoteProtocolError("a string that may not be null is null")
        return text

    def array_length(self) -> int:
        """Length of an array, 0 for null; never more than the bytes left could hold.

        Else it raises RemoteProtocolError.
        """
        size = self.uvarint() - 1 if self.flexible else self.int32()
        if size > len(self.buffer) - self.position:
            raise RemoteProtocolError(
                f"an array claims {size} elements, {len(self.buffer) - self.position} bytes are left"
            )
        return max(size, 0)

    def uuid(self) -> UUID:
        return UUID(bytes=bytes(self.take(16)))

    def skip_tags(self) -> None:
        """Pass over the tagged fields of a structure; nothing in the fixed-width encoding."""
        if self.flexible:
            count = self.uvarint()
            if count:
                self.count_tags(count)
                for _ in range(count):
                    self.uvarint()
                    self.take(self.uvarint())

    def count_tags(self, count: int) -> None:
        """Count the tagged fields that a structure says it has. Raises RemoteProtocolError if these are too many."""
        self._tags_left -= count
        if count > MOST_TAGS or self._tags_left < 0:
            raise RemoteProtocolError(
                f"a structure has {count} tagged fields; it may have {MOST_TAGS}, and a message {MOST_TAGS_IN_ALL}"
            )


class Budget:
    """How many elements the arrays of some messages may still have together."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class BoundedReader(WireReader):
    """For what a stranger wrote and is read in one go: its arrays have no more elements than ``budget`` has left."""

    __slots__ = ("_budget",)

    def __init__(self, buffer: memoryview, budget: Budget) -> None:
        super().__init__(buffer)
        self._budget = budget

    def array_length(self) -> int:
        size = super().array_length()
        if size > self._budget.left:
            raise RemoteProtocolError(f"an array of {size} elements is too long to be read here")
        self._budget.left -= size
        return size


class WireStream(WireReader):
    """For a decoder that reads from a file: of the buffer no more is copied than it asks for."""

    __slots__ = ()

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes, or what is left."""
        data = bytes(self.buffer[self.position : self.position + size])
        self.position += len(data)
        return data


class WireWriter:
    """Builds a message as a list of chunks: bytes, and slices that are not copied."""

    __slots__ = ("_chunks", "_tail", "flexible")

    def __init__(self, *, flexible: bool = False) -> None:
        self.flexible = flexible
        self._chunks: list[Chunk] = []
        self._tail = bytearray()

    def int8(self, value: int) -> None:
        self._tail += _I8.pack(value)

    def int16(self, value: int) -> None:
        self._tail += _I16.pack(value)

    def int32(self, value: int) -> None:
        self._tail += _I32.pack(value)

    def int64(self, value: int) -> None:
        self._tail += _I64.pack(value)

    def raw(self, data: bytes) -> None:
        self._tail += data

    def uvarint(self, value: int) -> None:
        while value >= 0x80:
            self._tail.append(value & 0x7F | 0x80)
            value >>= 7
        self._tail.append(value)

    def string(self, text: str | None) -> None:
        """Raises LocalProtocolError for more bytes than a reader takes."""
        data = None if text is None else text.encode()
        if data is not None and len(data) > MOST_OF_STRING:
            raise LocalProtocolError(f"a string of {len(data)} bytes is longer than {MOST_OF_STRING}")
        if self.flexible:
            self.uvarint(0 if data is None else len(data) + 1)
        else:
            self.int16(-1 if data is None else len(data))
        if data:
            self._tail += data

    def array_length(self, size: int | None) -> None:
        if self.flexible:
            self.uvarint(0 if size is None else size + 1)
        else:
            self.int32(-1 if size is None else size)

    def uuid(self, value: UUID) -> None:
        self._tail += value.bytes

    def records(self, chunks: list[Chunk]) -> None:
        """A records field whose content is ``chunks``, handed on uncopied."""
        size = sum(map(chunk_size, chunks))
        if self.flexible:
            self.uvarint(size + 1)
        else:
            self.int32(size)
        if size:
            self._chunks.append(self._tail)
            self._chunks.extend(chunks)
            self._tail = bytearray()

    def tags(self) -> None:
        """No tagged fields; nothing in the fixed-width encoding."""
        if self.flexible:
            self._tail.append(0)

    def tagged(self, fields: dict[int, bytes]) -> None:
        """These tagged fields, by rising number; nothing in the fixed-width encoding."""
        if self.flexible:
            self.uvarint(len(fields))
            for tag, value in fields.items():
                self.uvarint(tag)
                self.uvarint(len(value))
                self._tail += value

    def data(self) -> bytes:
        """What was written, where no records are in it."""
        return bytes(self._tail)

    def chunks(self) -> list[Chunk]:
        """What was written, in order."""
        return [*self._chunks, self._tail] if self._tail else list(self._chunks)

    def joined(self) -> bytes:
        """All that was written, for a message that holds no slice of a file."""
        return b"".join(map(_plain, self.chunks()))


def _plain(chunk: Chunk) -> bytes | bytearray | memoryview:
    assert not isinstance(chunk, FileSlice)
    return chunk


def frame(chunks: list[Chunk]) -> list[Chunk]:
    """The chunks behind the four bytes that say their length."""
    size = _I32.pack(sum(map(chunk_size, chunks)))
    first = chunks[0] if chunks else b""
    if isinstance(first, FileSlice):
        return [size, *chunks]
    return [size + bytes(first), *chunks[1:]]
