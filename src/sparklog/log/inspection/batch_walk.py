"""Walking through a ``.log`` file that a broker may own: read only, in blocks, nothing locked, nothing mapped.

Not mapped, because the owner may truncate the file at any moment: a read is then short, a mapping fatal (SIGBUS).
The size is that at the time of opening; what is appended later is not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import crc32c

from sparklog.log.scan import OffsetRange, next_good
from sparklog.record import layout

BLOCK = 4 << 20
HEAD = 32
"""Bytes of a tail that are shown."""

Header = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of ``layout.HEADER``."""


class TailKind(StrEnum):
    """What bytes are that are no whole batch."""

    CUT = "a batch that is cut short"
    ZEROS = "zeros only"
    FOREIGN = "no batch header"


class Tail(NamedTuple):
    """What lies behind the last whole batch."""

    position: int
    size: int
    kind: TailKind
    head: bytes


def _is_plausible(fields: Header, first_offset: int) -> bool:
    """Whether the fields can be those of a batch, as far as they tell without the rest of it."""
    base, length, _, _, _, attributes, delta, *_, count = fields
    return (
        first_offset <= base <= layout.MAX_INT64 >> 1
        and length >= layout.HEADER_SIZE - layout.LOG_OVERHEAD
        and 0 <= attributes <= layout.ALL_ATTRIBUTES
        and 0 <= count <= delta + 1
    )


class BatchWalk:
    """An open ``.log`` file; a context manager. Opening raises OSError. ``advance`` is told of its bytes by and by."""

    def __init__(self, path: Path, block: int = BLOCK, advance: Callable[[int], None] | None = None) -> None:
        self.path = path
        self._advance = advance
        self._told = 0
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size
        self.end = 0
        """Where the walk has come to: behind the last whole batch."""
        self._block = block
        self._buffer = bytearray()

    def __enter__(self) -> BatchWalk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)
        self._tell(self.size)

    def _tell(self, position: int) -> None:
        if self._advance is not None and position > self._told:
            self._advance(position - self._told)
            self._told = position

    def batches(self, position: int = 0) -> Iterator[tuple[int, Header, memoryview]]:
        """Position, header and bytes of each whole batch of format v2, up to the first thing that is none.

        Nothing but length and magic has been checked. The bytes are good until the next batch is asked for.
        """
        unpack, header_size = layout.HEADER.unpack_from, layout.HEADER_SIZE
        block, start, at = memoryview(b""), position, 0
        self.end = position
        while True:
            left, need = len(block) - at, header_size
            if left >= header_size:
                fields = unpack(block, at)
                need = fields[1] + layout.LOG_OVERHEAD
                if fields[3] != layout.MAGIC_V2 or need < header_size:
                    return
                if left >= need:
                    begin = at
                    at += need
                    self.end = start + at
                    yield start + begin, fields, block[begin:at]
                    continue
            if start + at + need > self.size:
                return
            start += at
            self._tell(start)
            at = 0
            block = self.read(start, max(need, self._block), reuse=True)
            if len(block) < need:  # cut meanwhile
                return

    def read(self, position: int, size: int, *, reuse: bool = False) -> memoryview:
        """At most ``size`` bytes from ``position``; with ``reuse`` in a buffer that the next such read overwrites."""
        size = max(min(size, self.size - position), 0)
        if reuse and len(self._buffer) >= size:
            buffer = self._buffer
        else:
            buffer = bytearray(size)
            if reuse:
                self._buffer = buffer
        view = memoryview(buffer)[:size]
        done = 0
        while done < size:
            count = os.preadv(self._fd, [view[done:]], position + done)
            if not count:
                break
            done += count
        return view[:done]

    def whole_batch(self, position: int) -> tuple[Header, memoryview] | None:
        """What ``batches`` would give first from ``position`` on, the walk left where it is."""
        head = self.read(position, layout.HEADER_SIZE)
        if len(head) < layout.HEADER_SIZE:
            return None
        fields: Header = layout.HEADER.unpack_from(head)
        size = fields[1] + layout.LOG_OVERHEAD
        if fields[3] != layout.MAGIC_V2 or size < layout.HEADER_SIZE or position + size > self.size:
            return None
        data = self.read(position, size)
        return (fields, data) if len(data) == size else None

    def next_good(self, position: int, first_offset: int) -> int | None:
        """Where the first good batch begins behind ``position``, of those at or beyond ``first_offset``."""
        found = next_good(self, position, OffsetRange(first_offset, layout.MAX_INT64 >> 1))
        return None if found is None else found.position

    def is_good(self, position: int, first_offset: int = 0) -> bool:
        """Whether a whole batch with the right CRC begins there, at or beyond ``first_offset``."""
        found = self.whole_batch(position)
        if found is None or not _is_plausible(found[0], first_offset):
            return False
        return bool(crc32c.crc32c(found[1][layout.ATTRIBUTES :]) == found[0][4])

    def tail(self) -> Tail | None:
        """What the walk stopped at; None if that was the end of the file."""
        if self.end >= self.size:
            return None
        head = self.read(self.end, layout.HEADER_SIZE)
        kind = TailKind.FOREIGN
        if len(head) < layout.HEADER_SIZE:
            kind = TailKind.CUT
        elif self._is_zero(self.end):
            kind = TailKind.ZEROS
        elif (
            head[layout.MAGIC] == layout.MAGIC_V2
            and layout.OFFSET_AND_LENGTH.unpack_from(head)[1] >= layout.HEADER_SIZE - layout.LOG_OVERHEAD
        ):
            kind = TailKind.CUT
        return Tail(self.end, self.size - self.end, kind, bytes(head[:HEAD]))

    def _is_zero(self, position: int) -> bool:
        while piece := self.read(position, self._block):
            if bytes(piece).count(0) != len(piece):
                return False
            position += len(piece)
        return True

    def current_size(self) -> int:
        """Bytes of the file now."""
        return os.fstat(self._fd).st_size
