"""RecordBatchBuilder: one batch, a record at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import crc32c

from sparklog.record import _impl, layout
from sparklog.record.compression import CompressionType, compress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer


@dataclass
class RecordBatchBuilder:
    """Builds one batch; the fields are the header's.

    ``append`` gives offsets in order from ``base_offset``. The first record's timestamp becomes the base timestamp,
    the greatest one the max timestamp, as in Java's ``MemoryRecordsBuilder``.
    """

    compression: CompressionType = CompressionType.NONE
    base_offset: int = 0
    producer_id: int = layout.NO_PRODUCER_ID
    producer_epoch: int = layout.NO_PRODUCER_EPOCH
    base_sequence: int = layout.NO_SEQUENCE
    is_transactional: bool = False
    is_control: bool = False
    timestamp_type: int = 0
    partition_leader_epoch: int = -1
    level: int | None = None

    record_count: int = field(default=0, init=False)
    base_timestamp: int = field(default=layout.NO_TIMESTAMP, init=False)
    max_timestamp: int = field(default=layout.NO_TIMESTAMP, init=False)
    _records: bytearray = field(default_factory=bytearray, init=False, repr=False)

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str, Buffer | None]] = (),
    ) -> int:
        """Add a record; returns its offset."""
        delta = self.record_count
        if delta == 0:
            self.base_timestamp = self.max_timestamp = timestamp_ms
        elif timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
        _impl.codec.write_record(self._records, timestamp_ms - self.base_timestamp, delta, key, value, tuple(headers))
        self.record_count = delta + 1
        return self.base_offset + delta

    @property
    def size_estimate(self) -> int:
        """Bytes of the batch if it were not compressed."""
        return layout.HEADER_SIZE + len(self._records)

    def build(self) -> bytes:
        """The batch. More records may be appended afterwards, and a larger batch built."""
        records = compress(self.compression, self._records, self.level)
        out = bytearray(layout.HEADER_SIZE)
        out += records
        self.write_header(out)
        return bytes(out)

    def write_header(self, out: bytearray) -> None:
        """Write the header and the CRC over ``out``, whose records section is already in place."""
        layout.HEADER.pack_into(
            out,
            0,
            self.base_offset,
            len(out) - layout.LOG_OVERHEAD,
            self.partition_leader_epoch,
            layout.MAGIC_V2,
            0,
            self._attributes(),
            max(self.record_count - 1, 0),
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )
        layout.UINT32.pack_into(out, layout.CRC, crc32c.crc32c(memoryview(out)[layout.ATTRIBUTES :]))

    def _attributes(self) -> int:
        return (
            self.compression
            | (layout.LOG_APPEND_TIME_BIT if self.timestamp_type else 0)
            | (layout.TRANSACTIONAL_BIT if self.is_transactional else 0)
            | (layout.CONTROL_BIT if self.is_control else 0)
        )
