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

from sparklog.record.layout import MAX_INT32, MAX_INT64

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

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


NO_VERSION = -1
"""Of a record that says none; every other is 0 or greater."""


class Versions(NamedTuple):
    """Where the version of a record is found; a negative one counts as none.

    By ``header``: the last header of this name, compared as UTF-8 bytes, whose value is 8 bytes, a big-endian number of
    64 bits. If its value is null or of another length the record has no version, whatever headers of the name precede.
    Without ``header``: the record's timestamp.
    """

    header: str | None = None


class OffsetMap(Protocol):
    """The offset of the record that wins, for each key in a stretch of log: what compaction goes by.

    The record with the greatest offset wins. With ``versions`` the one with the greatest version does, and of several
    the one with the greatest offset.

    An entry is a SipHash-2-4 of the key, of 128 bits and keyed by ``seed``, and the offset: 24 bytes. With ``versions``
    there are 8 more for the version, which are needed only while records are put. The key itself is not kept. Records
    with an offset below 0 or below ``start_offset``, and those without a key, are looked at only; a key of no bytes is
    a key. Records are put in the order of their offsets.

    ``part`` (i, n) makes a map of the i-th of n parts of all keys, chosen by hash: several tasks share the keys of one
    log. A map knows nothing of keys of other parts.

    CorruptRecord leaves in the map what was put before the record that is corrupt.
    """

    @property
    def is_versioned(self) -> bool:
        """Whether versions decide which record wins."""

    @property
    def size(self) -> int:
        """Keys in the map."""

    @property
    def slots(self) -> int:
        """Entries that the memory has room for."""

    @property
    def most(self) -> int:
        """Keys that the map takes: the slots times the load factor."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory, whether they were touched or not."""

    @property
    def is_full(self) -> bool:
        """A record was refused for lack of room."""

    @property
    def latest_offset(self) -> int:
        """The offset up to which the log is in the map: of the last record that was put, or beyond; -1 at first."""

    @property
    def messages(self) -> int:
        """Records looked at."""

    def __init__(
        self,
        max_bytes: int,
        load_factor: float,
        seed: bytes,
        part: tuple[int, int] = (0, 1),
        versions: Versions | None = None,
    ) -> None:
        """ValueError unless the load factor is above 0 and at most 1, the seed 16 bytes long, and ``0 <= i < n``."""

    def advance(self, offset: int) -> None:
        """Raise ``latest_offset`` to ``offset``, unless it is there already."""

    def clear(self) -> None:
        """Forget everything; the memory is given back and taken anew."""

    def index(self, payload: Buffer, fields: BatchFields, start_offset: int) -> None:
        """Put every record of one decompressed section, in order.

        When the map has ``most`` keys, the next record with a key makes it full, and nothing behind that is looked at;
        with ``versions`` the next record with a key that is not in the map.
        ``latest_offset`` follows the records that are put.
        """

    def index_batches(self, buffer: Buffer, start_offset: int) -> int:
        """Put the records of the batches at the beginning of ``buffer``; returns how many bytes these batches take.

        It stops before a batch that is compressed, transactional, a control batch or cut short, and before one that is
        damaged or malformed, which ``index`` and ``RecordBatch.validate`` then refuse. It stops before the batch that
        makes the map full, too. ``latest_offset`` follows the batches that it took.
        """

    def covers(self, key: bytes) -> bool:
        """Whether the key is of this map's part."""

    def get(self, key: bytes) -> int:
        """The offset of the key's record that wins, -1 where there is none."""

    def outdates(self, key: bytes, offset: int) -> bool:
        """Whether a record of the key at ``offset``, ``latest_offset`` at most, gives way to the one that wins.

        It does if its offset is lower, with versions if it is another. A key that is not in the map outdates nothing.
        """

    def is_followed(self, key: bytes) -> bool:
        """Whether a record of the key was put behind the one that wins, which happens with versions alone."""

    def dump(self, path: str | PathLike[str], first_offset: int = 0) -> None:
        """Write the map into a new file, for ``open``. It is of the log from ``first_offset`` on.

        Raises OSError; ValueError of a map that was opened.
        """

    @classmethod
    def open(cls, paths: Sequence[str | PathLike[str]]) -> OffsetMap:
        """One map of all keys out of the files of its parts, in any order, which are read where they lie.

        A part may have been divided into parts of its own: (i, n) into (k i, k n) to (k i + k - 1, k n). Without
        versions there may be such parts of several stretches of the log, told apart by their ``first_offset``. The
        ``latest_offset`` is where the first of them ends that became full. Nothing can be put into the map.

        Raises OSError, CorruptRecord for a file that is none, ValueError where a part is missing.
        """


class RewriteRules(NamedTuple):
    """What decides, beside the offset map, which records and batches stay."""

    now_ms: int
    delete_retention_ms: int
    """Tombstones stay for so long after the first compaction that has met them."""
    last_offsets: Mapping[int, int]
    """By producer id the last offset of its last batch, which stays even when it is empty."""
    last_of_log: int = -1
    """The batch that ends at this offset stays even when it is empty; -1 for none."""
    erases: bool = False
    """Only records of which the map has a later offset go: none for lack of a key, no tombstone for its age. No batch
    gets a delete horizon, and every batch stays, even when it is empty.
    """

    @property
    def new_horizon(self) -> int:
        """The delete horizon of a batch that gets one now."""
        return min(self.now_ms + self.delete_retention_ms, MAX_INT64)

    def keeps_empty(self, producer_id: int, last_offset: int) -> bool:
        """Whether a batch stays even when none of its records does."""
        if self.erases or last_offset == self.last_of_log:
            return True
        return producer_id >= 0 and self.last_offsets.get(producer_id) == last_offset


class Retained(NamedTuple):
    """What is left of one section.

    ``section`` is None where it stays as it is, and empty where no record does. ``base_timestamp`` and
    ``horizon_ms`` (None: no delete horizon) are what the batch is to bear, ``max_timestamp`` is the greatest timestamp
    of the records that stay, -1 at least.
    """

    read: int
    kept: int
    has_tombstones: bool
    section: bytearray | None
    base_timestamp: int
    max_timestamp: int
    horizon_ms: int | None


class BatchRewriter(Protocol):
    """Compaction's second pass: takes the batches of a log in order, writes what stays, and makes the index entries.

    A record stays if it lies beyond the map's ``latest_offset``, or its key is not of the map's part. Otherwise it goes
    if it has no key, if the map outdates it, or if it is a tombstone and its batch has a delete horizon that ``now_ms``
    has reached. A tombstone that is followed (``OffsetMap.is_followed``) stays all the same: were it gone, and those
    that it outdates behind it not yet, because the pass ended in between, the next pass would let these win.

    A batch of which every record stays is written as it is, unless it has a tombstone and no delete horizon yet. Any
    other is written anew. Its header fields and offset deltas are kept, and keys, values and headers are copied as they
    are; the rest of each record is encoded afresh, in the shortest form. The base timestamp becomes the delete horizon
    where there is one, and else the timestamp of the first record that stays. A batch of which no record stays goes
    too, unless the rules keep it: it is then a header without records. Rules that ``erase`` say less.

    What it writes is what a BatchScanner takes: offsets rise from batch to batch, from ``base_offset`` to below
    ``end_offset``. LogError where a file would grow beyond 2 GiB.
    """

    @property
    def rules(self) -> RewriteRules: ...

    @property
    def size(self) -> int:
        """Bytes written since the segment began."""

    @property
    def next_offset(self) -> int: ...

    @property
    def latest_timestamp(self) -> int: ...

    @property
    def latest_offset(self) -> int: ...

    @property
    def bytes_since_entry(self) -> int:
        """This and the three above as a BatchScanner would have them behind all that was written."""

    @property
    def messages_read(self) -> int: ...

    @property
    def messages_kept(self) -> int: ...

    @property
    def invalid(self) -> int:
        """Records that went because they have no key."""

    @property
    def bytes_read(self) -> int: ...

    @property
    def bytes_written(self) -> int: ...

    @property
    def batches_read(self) -> int: ...

    @property
    def batches_written(self) -> int: ...

    def __init__(self, offset_map: OffsetMap, rules: RewriteRules, limits: ScanLimits) -> None: ...

    def take(self, buffer: Buffer) -> int:
        """Rewrite the batches at the beginning of ``buffer``; returns how many bytes they take there.

        It stops before a batch that is compressed, transactional, a control batch or cut short, and before one that is
        damaged or malformed, of which nothing is written or counted.
        """

    def retain(
        self,
        payload: Buffer,
        fields: BatchFields,
        horizon_ms: int | None,
        *,
        all_gone: bool = False,
        keep_all: bool = False,
        needs_horizon: bool = False,
    ) -> Retained:
        """What is left of one decompressed section; counts its records and writes nothing.

        ``horizon_ms`` is the batch's delete horizon. With ``all_gone`` no record stays, with ``keep_all`` each does.
        ``needs_horizon`` gives the batch a delete horizon though it has no tombstone, if any record stays.
        """

    def count_batch(self, size: int) -> None:
        """Count one batch as read that ``take`` did not."""

    def write(self, batch: Buffer) -> None:
        """Write one batch that is finished. CorruptRecord if its header cannot be, or its offsets do not follow."""

    def drain(self) -> memoryview:
        """Hand over what was written since the last call."""

    def entries(self) -> tuple[bytes, bytes]:
        """The packed entries of the offset index and of the time index, since the segment began."""


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

    @property
    def OffsetMap(self) -> type[OffsetMap]: ...  # noqa: N802

    @property
    def BatchRewriter(self) -> type[BatchRewriter]: ...  # noqa: N802

    def skip_plain(self, buffer: Buffer) -> int:
        """How many bytes the batches at the beginning of ``buffer`` take that have nothing to do with transactions.

        It stops before a batch that is transactional, a control batch, or cut short, by the headers alone.
        """

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
