"""How lines become records: as values with a key before them, or as JSON objects that say all of a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.cli.records.json_records import Header, JsonRecord


class Rows(NamedTuple):
    """Columns of records. What is None, in a column or in place of one, is null or left to the producer."""

    key: pa.Array | None
    value: pa.Array
    headers: pa.Array | None = None
    timestamp: pa.Array | None = None
    """Milliseconds."""
    partition: pa.Array | None = None

    def part(self, start: int, count: int) -> Rows:
        """So many of them, from ``start`` on."""
        key, value, headers, timestamp, partition = (
            None if column is None else column[start : start + count] for column in self
        )
        return Rows(key, value, headers, timestamp, partition)

    def first(self, count: int) -> Rows:
        """So many of them, from the beginning."""
        return self.part(0, count)


class BadLine(NamedTuple):
    """A line that is no record; ``row`` is its place among those it came with, from 0, and ``why`` follows "line 3"."""

    row: int
    why: str


@dataclass(frozen=True)
class TextLines:
    """Each line is a value, behind its key if there is a separator. All have these headers, and this timestamp (ms)."""

    separator: bytes | None
    key: bytes | None
    null_empty: bool
    headers: tuple[Header, ...]
    timestamp: int | None

    @property
    def is_ordered(self) -> bool:
        """Whether a record belongs into one partition, and may not go to another that has a leader."""
        return self.separator is not None or self.key is not None

    @property
    def advice(self) -> str:
        """What gives a key to a record that has none."""
        return "; give --key-separator or --key" if self.separator is None else ""

    def rows(self, lines: pa.Array) -> tuple[Rows, None]:
        """The records of the lines."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from sparklog.cli.records.lines import split_keys
        from sparklog.record.columnar import HEADERS_TYPE

        key, value = (None, lines) if self.separator is None else split_keys(lines, self.separator)
        if self.key is not None:
            key = pa.repeat(pa.scalar(self.key, pa.binary()), len(lines))
        if self.null_empty:
            value = pc.if_else(pc.equal(pc.binary_length(value), 0), pa.scalar(None, value.type), value)
        headers = pa.array([list(self.headers)], HEADERS_TYPE).take(pa.repeat(0, len(lines))) if self.headers else None
        timestamp = None if self.timestamp is None else pa.repeat(pa.scalar(self.timestamp, pa.int64()), len(lines))
        return Rows(key, value, headers, timestamp), None


class JsonLines:
    """Each line is an object as ``consume --output json`` prints it."""

    is_ordered = True
    separator = None
    advice = ""

    def rows(self, lines: pa.Array) -> tuple[Rows, BadLine | None]:
        """The records of the lines, or of those before the first that is none."""
        from sparklog.cli.records.json_records import read_record

        records: list[JsonRecord] = []
        for row, line in enumerate(lines.to_pylist()):
            try:
                records.append(read_record(line))
            except ValueError as error:
                return _columns(records), BadLine(row, str(error))
        return _columns(records), None


def _columns(records: list[JsonRecord]) -> Rows:
    import pyarrow as pa

    from sparklog.record.columnar import HEADERS_TYPE

    def column(values: Callable[[JsonRecord], object], kind: pa.DataType) -> pa.Array:
        return pa.array(map(values, records), kind, size=len(records))

    return Rows(
        column(lambda each: each.key, pa.binary()),
        column(lambda each: each.value, pa.binary()),
        column(lambda each: each.headers, HEADERS_TYPE),
        column(lambda each: each.timestamp, pa.int64()),
        column(lambda each: each.partition, pa.int64()),
    )
