from collections.abc import Sequence
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
    ScanLimits,
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
