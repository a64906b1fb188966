"""RecordBatch: a view of one batch in another's buffer, and the header fields that a broker rewrites in place."""

from __future__ import annotations

from struct import error as struct_error
from typing import TYPE_CHECKING

import crc32c

from sparklog.errors import CorruptRecord
from sparklog.record import layout
from sparklog.record.compression import CompressionType

if TYPE_CHECKING:
    from typing_extensions import Buffer

_COMPRESSIONS = tuple(CompressionType)


class RecordBatch:
    """One record batch v2 at ``position`` of ``buffer``; nothing is copied, and the records are not looked at.

    Making one checks that the whole batch lies within the buffer and is of magic 2; ``validate`` checks the rest.
    Either raises CorruptRecord. The attributes are the header's fields, named as in ``layout``.
    """

    base_offset: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    size_in_bytes: int

    __slots__ = (
        "_position",
        "_view",
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_in_bytes",
    )

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        """Raises CorruptRecord unless a whole header of magic 2 is there, and the batch that it claims."""
        view = memoryview(buffer)
        if position < 0 or len(view) - position < layout.HEADER_SIZE:
            raise CorruptRecord(f"no room for a batch header at position {position} of {len(view)} bytes")
        (
            self.base_offset,
            length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = layout.HEADER.unpack_from(view, position)
        size = self.size_in_bytes = length + layout.LOG_OVERHEAD
        if self.magic != layout.MAGIC_V2:
            raise CorruptRecord(f"batch at position {position} has magic {self.magic}; only magic 2 is supported")
        if not layout.HEADER_SIZE <= size <= len(view) - position:
            raise CorruptRecord(f"batch at position {position} claims {size} of the {len(view) - position} bytes left")
        self._view = view
        self._position = position

    @property
    def buffer(self) -> memoryview:
        """The whole batch."""
        return self._view[self._position : self._position + self.size_in_bytes]

    @property
    def payload(self) -> memoryview:
        """The records section as it is stored, so still compressed."""
        return self._view[self._position + layout.RECORDS : self._position + self.size_in_bytes]

    @property
    def compression(self) -> CompressionType:
        """Raises CorruptRecord for a code that there is not."""
        code = self.attributes & layout.COMPRESSION_MASK
        if code >= len(_COMPRESSIONS):
            raise CorruptRecord(f"batch at offset {self.base_offset} has the unknown compression code {code}")
        return _COMPRESSIONS[code]

    @property
    def is_plain(self) -> bool:
        """Whether its records are stored as they are, not compressed."""
        return not self.attributes & layout.COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """0 for create time, 1 for log append time."""
        return 1 if self.attributes & layout.LOG_APPEND_TIME_BIT else 0

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & layout.TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & layout.CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & layout.DELETE_HORIZON_BIT)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, wrapping from 2**31 - 1 to 0; -1 where there is no producer."""
        if self.base_sequence < 0:
            return layout.NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    def assign(self, base_offset: int, leader_epoch: int) -> None:
        """Give the batch its place in a log, in the buffer too, which must be writable."""
        patch_header(self._view, self._position, base_offset, leader_epoch)
        self.base_offset = base_offset
        self.partition_leader_epoch = leader_epoch

    def validate(self) -> None:
        """Check the CRC and that the counts are possible; the records themselves are checked when decoded.

        Raises CorruptRecord.
        """
        self.check_crc()
        if self.record_count < 0 or self.last_offset_delta < 0:
            raise CorruptRecord(
                f"batch at offset {self.base_offset} claims {self.record_count} records"
                f" and a last offset delta of {self.last_offset_delta}"
            )
        if self.compression is CompressionType.NONE:
            layout.check_record_count(self.record_count, self.size_in_bytes - layout.HEADER_SIZE)

    def check_crc(self) -> None:
        """Raises CorruptRecord unless the bytes behind the CRC are those that it was made of."""
        computed = crc32c.crc32c(self.buffer[layout.ATTRIBUTES :])
        if computed != self.crc:
            raise CorruptRecord(
                f"batch at offset {self.base_offset} has CRC {self.crc:#x}, its bytes have {computed:#x}"
            )

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets={self.base_offset}..{self.last_offset}, records={self.record_count},"
            f" bytes={self.size_in_bytes}, epoch={self.partition_leader_epoch}, attributes={self.attributes:#x},"
            f" producer={self.producer_id}/{self.producer_epoch}/{self.base_sequence})"
        )


def increment_sequence(sequence: int, by: int) -> int:
    """Sequence numbers count from 0 to 2**31 - 1 and start again at 0."""
    return (sequence + by) % (layout.MAX_INT32 + 1)


def patch_header(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Rewrite base offset and leader epoch in place; they lie outside the CRC.

    Raises CorruptRecord where there is no room for a header.
    """
    try:
        layout.INT64.pack_into(buffer, position + layout.BASE_OFFSET, base_offset)
        layout.INT32.pack_into(buffer, position + layout.PARTITION_LEADER_EPOCH, leader_epoch)
    except struct_error as error:
        raise CorruptRecord(f"no batch header to patch at position {position}: {error}") from error


def patch_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Set log append time: the timestamp type's bit and the max timestamp, and the CRC that covers them."""
    batch = RecordBatch(buffer, position)
    layout.INT16.pack_into(buffer, position + layout.ATTRIBUTES, batch.attributes | layout.LOG_APPEND_TIME_BIT)
    layout.INT64.pack_into(buffer, position + layout.MAX_TIMESTAMP, timestamp_ms)
    _seal(buffer, position, batch)


def patch_create_time(buffer: bytearray | memoryview, position: int) -> None:
    """Clear the timestamp type's bit: the records have times of their own. Set the CRC that covers it."""
    batch = RecordBatch(buffer, position)
    layout.INT16.pack_into(buffer, position + layout.ATTRIBUTES, batch.attributes & ~layout.LOG_APPEND_TIME_BIT)
    _seal(buffer, position, batch)


def patch_max_timestamp(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Set the max timestamp, and the CRC that covers it."""
    batch = RecordBatch(buffer, position)
    layout.INT64.pack_into(buffer, position + layout.MAX_TIMESTAMP, timestamp_ms)
    _seal(buffer, position, batch)


def patch_producer(
    buffer: bytearray | memoryview, position: int, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Set the idempotent producer's fields, and the CRC that covers them."""
    batch = RecordBatch(buffer, position)
    layout.INT64.pack_into(buffer, position + layout.PRODUCER_ID, producer_id)
    layout.INT16.pack_into(buffer, position + layout.PRODUCER_EPOCH, producer_epoch)
    layout.INT32.pack_into(buffer, position + layout.BASE_SEQUENCE, base_sequence)
    _seal(buffer, position, batch)


def _seal(buffer: bytearray | memoryview, position: int, batch: RecordBatch) -> None:
    crc = crc32c.crc32c(batch.buffer[layout.ATTRIBUTES :])
    layout.UINT32.pack_into(buffer, position + layout.CRC, crc)
