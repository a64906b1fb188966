"""What a partition directory holds, as values that two directories can be compared by.

It is read from the files alone, with the record layer: no log is opened, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from sparklog.log.files import (
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    base_offset_of,
    files_with_suffix,
)
from sparklog.log.indexes.transaction_index import AbortedTransaction, read_aborted
from sparklog.record.batch import RecordBatch
from sparklog.record.records import iter_batches, iter_records


class RecordFacts(NamedTuple):
    """One record."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class BatchFacts(NamedTuple):
    """One batch: its header, and its records."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    """As stored: compression, timestamp type, transactional, control, delete horizon."""
    delete_horizon: int | None
    """ms; None if it has none."""
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    crc: int | None
    """None where records are compressed: one codec may write the same records in other bytes than another."""
    records: tuple[RecordFacts, ...]


class SegmentFacts(NamedTuple):
    """One segment."""

    base_offset: int
    batches: tuple[BatchFacts, ...]
    aborted: tuple[AbortedTransaction, ...]
    modified_ms: int
    """When the ``.log`` was last modified, which the cleaner takes over from the last segment that it replaces."""


class LogFacts(NamedTuple):
    """A partition directory."""

    segments: tuple[SegmentFacts, ...]
    snapshots: tuple[int, ...]
    """The offsets of the snapshots of producers."""

    @property
    def batches(self) -> list[BatchFacts]:
        return [batch for segment in self.segments for batch in segment.batches]

    @property
    def records(self) -> list[RecordFacts]:
        """Those of control batches too."""
        return [record for batch in self.batches for record in batch.records]

    @property
    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.segments]

    @property
    def aborted(self) -> list[AbortedTransaction]:
        return [each for segment in self.segments for each in segment.aborted]


def dump(directory: Path) -> LogFacts:
    """Everything in ``directory``. Raises CorruptRecord where a CRC is wrong or a batch is cut short."""
    paths = sorted(files_with_suffix(directory, LOG_SUFFIX))
    snapshots = sorted(map(base_offset_of, files_with_suffix(directory, SNAPSHOT_SUFFIX)))
    return LogFacts(tuple(map(_segment, paths)), tuple(snapshots))


def differences(first: LogFacts, second: LogFacts, most: int = 20) -> list[str]:
    """Where the two differ, a line each, the first ``most``; empty if they are equal."""
    return list(islice(_differences(first, second), most))


def indexes(directory: Path) -> dict[str, bytes]:
    """The bytes of the offset and time indexes, by file name. Kafka's entries depend on nothing but the batches."""
    return {
        path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.suffix in (".index", ".timeindex")
    }


def _segment(path: Path) -> SegmentFacts:
    aborted = path.with_suffix(TRANSACTION_INDEX_SUFFIX)
    return SegmentFacts(
        base_offset_of(path),
        tuple(map(_batch, iter_batches(path.read_bytes(), partial_tail=False))),
        tuple(read_aborted(aborted)) if aborted.exists() else (),
        path.stat().st_mtime_ns // 1_000_000,
    )


def _batch(batch: RecordBatch) -> BatchFacts:
    batch.validate()
    return BatchFacts(
        batch.base_offset,
        batch.last_offset,
        batch.partition_leader_epoch,
        batch.attributes,
        batch.base_timestamp if batch.has_delete_horizon else None,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
        batch.crc if batch.is_plain else None,
        tuple(
            RecordFacts(each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
            for each in iter_records(batch)
        ),
    )


def _differences(first: LogFacts, second: LogFacts) -> Iterator[str]:
    if first.bases != second.bases:
        yield f"segments: {first.bases} != {second.bases}"
    if first.snapshots != second.snapshots:
        yield f"snapshots: {first.snapshots} != {second.snapshots}"
    for ours, theirs in zip(first.segments, second.segments, strict=False):
        for field in ("aborted", "modified_ms"):
            one, other = getattr(ours, field), getattr(theirs, field)
            if one != other:
                yield f"{field} of segment {ours.base_offset}: {one} != {other}"
    batches = [{batch.base_offset: batch for batch in facts.batches} for facts in (first, second)]
    for base in sorted(batches[0].keys() | batches[1].keys()):
        yield from _of_batches(base, batches[0].get(base), batches[1].get(base))
    if first != second:
        yield "and perhaps in which segment a batch is"


def _of_batches(base: int, first: BatchFacts | None, second: BatchFacts | None) -> Iterator[str]:
    if first is None or second is None:
        yield f"batch {base}: {first} != {second}"
        return
    for name in BatchFacts._fields[:-1]:
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            yield f"batch {base}: {name} {one} != {other}"
    for mine, yours in zip_longest(first.records, second.records):
        if mine != yours:
            yield f"batch {base}: record {mine} != {yours}"
