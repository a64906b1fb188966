"""What a record codec can do; ``pure`` and ``native`` do it alike, byte for byte and error for error.

The rules that both keep, for malformed input above all:

- A record's fields must fill its length exactly, and the records must fill their section exactly.
- A negative key or value length means null, as Java's reader has it; a negative header count or header key length,
  or one beyond the record's end, is corrupt.
- Offset deltas rise from record to record, from 0 at least to the batch's last offset delta at most. Compaction leaves
  gaps; a batch without gaps, of as many records as its last offset delta says, has them all.
- Header keys are UTF-8; what is not becomes U+FFFD, as in Java.
- Offsets and timestamps wrap at 64 bits when a delta is added to its base; microseconds saturate.
- Where records lie outside the wanted offsets, the inside of their key, value and headers is not checked.
- CorruptRecord leaves a decoder as it was before the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from sparklog.record.layout import MAX_INT32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer


T = TypeVar("T", bound=tuple[object, ...])


class Record(NamedTuple):
    """One record as Python objects; ``timestamp`` is in milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class BinaryBuffers(NamedTuple):
    """The Arrow buffers of a binary array: ``validity`` bits (None: no nulls), int32 ``offsets``, ``data``."""

    length: int
    null_count: int
    validity: Buffer | None
    offsets: Buffer
    data: Buffer


class HeaderBuffers(NamedTuple):
    """The Arrow buffers of a list of (key, value) structs; a row without headers is null."""

    length: int
    null_count: int
    validity: Buffer | None
    offsets: Buffer
    keys: BinaryBuffers
    values: BinaryBuffers


class DecodedColumns(NamedTuple):
    """What a decoder accumulated; a column that was not asked for is None.

    ``offset`` and ``timestamp`` are int64, ``timestamp_type`` is int32, all without nulls.
    """

    rows: int
    key: BinaryBuffers | None
    value: BinaryBuffers | None
    headers: HeaderBuffers | None
    offset: Buffer | None
    timestamp: Buffer | None
    timestamp_type: Buffer | None


class BatchFields(NamedTuple):
    """What of a batch's header its records depend on; ``append_time`` is None for create time."""

    record_count: int
    base_offset: int
    base_timestamp: int
    append_time: int | None
    last_offset_delta: int = MAX_INT32


class RecordPlace(NamedTuple):
    """What the records of one batch have in common for a reader."""

    topic: str
    partition: int
    timestamp_type: int
    leader_epoch: int


class RecordDecoder(Protocol):
    """Accumulates records as Arrow columns.

    ``columns`` are DecodedColumns' names; ``timestamp_scale`` multiplies milliseconds (1 or 1000).
    """

    rows: int

    def __init__(self, columns: frozenset[str], timestamp_scale: int) -> None: ...

    @property
    def nbytes(self) -> int:
        """Bytes accumulated so far."""

    def append(self, payload: Buffer, fields: BatchFields, start_offset: int, end_offset: int) -> int:
        """Take the records of one decompressed section with ``start_offset <= offset < end_offset``; returns how many.

        LogError when a column would outgrow Arrow's 2 GiB: ``finish`` comes first then.
        """

    def finish(self) -> DecodedColumns:
        """Hand over what was accumulated, and start again empty."""


class BinaryColumn(NamedTuple):
    """A binary or string Arrow array's buffers, of which the rows from ``offset`` on count."""

    length: int
    offset: int
    validity: Buffer | None
    offsets: Buffer
    data: Buffer


class HeadersColumn(NamedTuple):
    """A list-of-structs Arrow array's buffers; the keys' and values' rows are what the list's offsets point to."""

    length: int
    offset: int
    validity: Buffer | None
    offsets: Buffer
    keys: BinaryColumn
    values: BinaryColumn


class RecordColumns(NamedTuple):
    """The columns to encode: None is all null, or for ``timestamps`` (int64 ms) all ``now_ms``."""

    length: int
    key: BinaryColumn | None
    value: BinaryColumn | None
    headers: HeadersColumn | None
    timestamps: Buffer | None
    now_ms: int


class EncodedRecords(NamedTuple):
    """One records section in ``buffer``, behind the room that was asked for."""

    buffer: bytearray
    record_count: int
    base_timestamp: int
    max_timestamp: int


class RecordEncoder(Protocol):
    """Encodes columns into records sections; ``rows`` are int32 row numbers, None for all rows in order.

    What cannot be encoded (a null header key, a row number out of range, a record of 2 GiB) raises LocalProtocolError.
    """

    def __init__(self, columns: RecordColumns, rows: Buffer | None) -> None: ...

    def next_section(self, max_bytes: int, room: int) -> EncodedRecords | None:
        """The next records, as many as fit ``max_bytes`` and at least one, behind ``room`` bytes; None at the end."""


class ScanLimits(NamedTuple):
    """What a segment that is scanned may hold, and how its indexes are to be made."""

    base_offset: int
    end_offset: int
    """No batch may reach it."""
    index_interval: int
    """An entry is due with the first batch after more than so many bytes."""
    max_offset_entries: int
    max_time_entries: int


class BatchScanner(Protocol):
    """Walks batches end to end, checks each whole, and makes the entries of the offset and the time index.

    A batch is good if its magic is 2, its CRC-32C right, its codec and counts possible, and its offsets, which the CRC
    does not cover, behind those of the batch before it and below ``end_offset``.
    """

    position: int
    """Bytes of the good batches so far."""
    next_offset: int
    latest_timestamp: int
    """The greatest so far, -1 for none; ``latest_offset`` is the last offset of the first batch that bears it."""
    latest_offset: int
    first_timestamp: int | None
    """The max timestamp of the first batch."""
    bytes_since_entry: int
    is_bad: bool
    """What stands at ``position`` is no good batch; nothing behind it was looked at."""

    def __init__(self, limits: ScanLimits) -> None: ...

    def scan(self, buffer: Buffer) -> list[int]:
        """Take the whole batches at the beginning of ``buffer``; returns where in it those with a producer id begin."""

    def entries(self) -> tuple[bytes, bytes]:
        """The packed entries of the offset index and of the time index."""


Latest = dict[bytes, tuple[int, bytes]]
"""By key the offset and the value of a record, the last of its key."""


class Codec(Protocol):
    """The operations; a module of this package is one."""

    @property
    def name(self) -> str: ...

    @property
    def RecordDecoder(self) -> type[RecordDecoder]: ...  # noqa: N802

    @property
    def BatchScanner(self) -> type[BatchScanner]: ...  # noqa: N802

    @property
    def RecordEncoder(self) -> type[RecordEncoder]: ...  # noqa: N802

    def check_records(self, payload: Buffer, fields: BatchFields) -> int:
        """Walk one decompressed section and refuse what a decoder of all its records and columns would refuse.

        Returns the greatest timestamp of its records in ms, -1 where none has one, or all are below that. It runs
        without the GIL where there is much to walk; nothing is allocated.
        """

    def read_records(self, payload: Buffer, fields: BatchFields) -> list[Record]:
        """Every record of one decompressed section."""

    def read_placed_records(self, payload: Buffer, fields: BatchFields, place: RecordPlace, kind: type[T]) -> list[T]:
        """``read_records``, each as a ``kind``: a named tuple of topic, partition, offset, timestamp, timestamp_type,
        key, value, headers, leader_epoch."""

    def write_record(
        self,
        out: bytearray,
        timestamp_delta: int,
        offset_delta: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]],
    ) -> None:
        """Append one record to ``out``."""

    def take_latest(self, buffer: Buffer, latest: Latest, undecided: dict[int, Latest]) -> int:
        """Do quickly what ``record.latest`` does, with the batches at the beginning of ``buffer``, and return how many
        bytes they take. It may stop at any, and stops at one that is compressed, cut short or cannot be read. CRCs are
        not looked at.
        """

    def murmur2(self, data: Buffer) -> int:
        """Kafka's murmur2, as an unsigned 32-bit integer."""

    def partition_rows(self, key: BinaryColumn, partition_count: int, null_partition: int) -> list[memoryview]:
        """For each partition the int32 numbers of the rows that Kafka's default partitioner gives it, in order."""
