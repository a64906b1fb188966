from collections.abc import Sequence
from os import PathLike
from typing import TypeVar

from typing_extensions import Buffer

from sparklog.record._impl.abc import (
    BatchFields,
    BinaryColumn,
    DecodedColumns,
    EncodedRecords,
    Latest,
    Record,
    RecordColumns,
    RecordPlace,
    Retained,
    RewriteRules,
    ScanLimits,
    Versions,
)

T = TypeVar("T", bound=tuple[object, ...])

class RecordDecoder:
    rows: int
    def __init__(self, columns: frozenset[str], timestamp_scale: int) -> None: ...
    @property
    def nbytes(self) -> int: ...
    def append(self, payload: Buffer, fields: BatchFields, start_offset: int, end_offset: int) -> int: ...
    def finish(self) -> DecodedColumns: ...

class BatchScanner:
    position: int
    next_offset: int
    latest_timestamp: int
    latest_offset: int
    first_timestamp: int | None
    bytes_since_entry: int
    is_bad: bool
    def __init__(self, limits: ScanLimits) -> None: ...
    def scan(self, buffer: Buffer) -> list[int]: ...
    def entries(self) -> tuple[bytes, bytes]: ...

class OffsetMap:
    size: int
    slots: int
    most: int
    latest_offset: int
    messages: int
    is_full: bool
    is_versioned: bool
    def __init__(
        self,
        max_bytes: int,
        load_factor: float,
        seed: bytes,
        part: tuple[int, int] = (0, 1),
        versions: Versions | None = None,
    ) -> None: ...
    @property
    def nbytes(self) -> int: ...
    def advance(self, offset: int) -> None: ...
    def clear(self) -> None: ...
    def index(self, payload: Buffer, fields: BatchFields, start_offset: int) -> None: ...
    def index_batches(self, buffer: Buffer, start_offset: int) -> int: ...
    def covers(self, key: bytes) -> bool: ...
    def get(self, key: bytes) -> int: ...
    def outdates(self, key: bytes, offset: int) -> bool: ...
    def is_followed(self, key: bytes) -> bool: ...
    def dump(self, path: str | PathLike[str], first_offset: int = 0) -> None: ...
    @classmethod
    def open(cls, paths: Sequence[str | PathLike[str]]) -> OffsetMap: ...

def skip_plain(buffer: Buffer) -> int: ...

class BatchRewriter:
    rules: RewriteRules
    size: int
    next_offset: int
    latest_timestamp: int
    latest_offset: int
    bytes_since_entry: int
    messages_read: int
    messages_kept: int
    invalid: int
    bytes_read: int
    bytes_written: int
    batches_read: int
    batches_written: int
    def __init__(self, offset_map: OffsetMap, rules: RewriteRules, limits: ScanLimits) -> None: ...
    def take(self, buffer: Buffer) -> int: ...
    def retain(
        self,
        payload: Buffer,
        fields: BatchFields,
        horizon_ms: int | None,
        *,
        all_gone: bool = False,
        keep_all: bool = False,
        needs_horizon: bool = False,
    ) -> Retained: ...
    def count_batch(self, size: int) -> None: ...
    def write(self, batch: Buffer) -> None: ...
    def drain(self) -> memoryview: ...
    def entries(self) -> tuple[bytes, bytes]: ...

class RecordEncoder:
    def __init__(self, columns: RecordColumns, rows: Buffer | None) -> None: ...
    def next_section(self, max_bytes: int, room: int) -> EncodedRecords | None: ...

def check_records(payload: Buffer, fields: BatchFields) -> int: ...
def read_records(payload: Buffer, fields: BatchFields) -> list[Record]: ...
def read_placed_records(payload: Buffer, fields: BatchFields, place: RecordPlace, kind: type[T]) -> list[T]: ...
def write_record(
    out: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[str, Buffer | None]],
) -> None: ...
def take_latest(buffer: Buffer, latest: Latest, undecided: dict[int, Latest]) -> int: ...
def murmur2(data: Buffer) -> int: ...
def partition_rows(key: BinaryColumn, partition_count: int, null_partition: int) -> list[memoryview]: ...
