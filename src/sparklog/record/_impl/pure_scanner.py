"""The reference of the batch scanner; see ``abc.BatchScanner``."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

import crc32c

from sparklog.record import layout
from sparklog.record._impl.abc import ScanLimits

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CODECS = 5
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")


class BatchScanner:
    """One segment, a buffer at a time."""

    def __init__(self, limits: ScanLimits) -> None:
        self._limits = limits
        self.position = 0
        self.next_offset = self.latest_offset = limits.base_offset
        self.latest_timestamp = self._last_time = layout.NO_TIMESTAMP
        self.first_timestamp: int | None = None
        self.bytes_since_entry = 0
        self.is_bad = False
        self._offsets = bytearray()
        self._times = bytearray()

    def scan(self, buffer: Buffer) -> list[int]:
        view = memoryview(buffer)
        at, producers = 0, []
        while not self.is_bad:
            size = self._whole(view[at:])
            if not size:
                break
            _, _, _, _, crc, _, delta, _, timestamp, producer_id, *_ = layout.HEADER.unpack_from(view, at)
            if crc32c.crc32c(view[at + layout.ATTRIBUTES : at + size]) != crc:
                self.is_bad = True
                break
            if producer_id >= 0:
                producers.append(at)
            self._take(layout.INT64.unpack_from(view, at)[0] + delta, timestamp, size)
            at += size
        return producers

    def _whole(self, view: memoryview) -> int:
        """The size of the first batch if it is whole and its header can be; 0 if not, ``is_bad`` where it cannot."""
        if len(view) < layout.LOG_OVERHEAD:
            return 0
        base, length = layout.OFFSET_AND_LENGTH.unpack_from(view)
        size: int = length + layout.LOG_OVERHEAD
        in_order = self.next_offset <= base < self._limits.end_offset
        is_other = len(view) > layout.MAGIC and view[layout.MAGIC] != layout.MAGIC_V2
        if not in_order or size < layout.HEADER_SIZE or is_other:
            self.is_bad = True
            return 0
        if size > len(view):
            return 0
        *_, attributes, delta, _, _, _, _, _, count = layout.HEADER.unpack_from(view)
        codec = attributes & layout.COMPRESSION_MASK
        impossible = codec == 0 and count * layout.MIN_RECORD_SIZE > size - layout.HEADER_SIZE
        if delta < 0 or base + delta >= self._limits.end_offset or count < 0 or codec >= _CODECS or impossible:
            self.is_bad = True
            return 0
        return size

    def _take(self, last_offset: int, timestamp: int, size: int) -> None:
        limits = self._limits
        if timestamp > self.latest_timestamp:
            self.latest_timestamp, self.latest_offset = timestamp, last_offset
        has_room = len(self._offsets) < limits.max_offset_entries * _OFFSET_ENTRY.size
        if self.bytes_since_entry > limits.index_interval and has_room:
            self._offsets += _OFFSET_ENTRY.pack(last_offset - limits.base_offset, self.position)
            has_time_room = len(self._times) < limits.max_time_entries * _TIME_ENTRY.size
            if self.latest_timestamp > self._last_time and has_time_room:
                self._times += _TIME_ENTRY.pack(self.latest_timestamp, self.latest_offset - limits.base_offset)
                self._last_time = self.latest_timestamp
            self.bytes_since_entry = 0
        self.bytes_since_entry += size
        if self.first_timestamp is None:
            self.first_timestamp = timestamp
        self.next_offset = last_offset + 1
        self.position += size

    def entries(self) -> tuple[bytes, bytes]:
        return bytes(self._offsets), bytes(self._times)
