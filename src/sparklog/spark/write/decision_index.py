"""The offset of the last record of each key in a partition of the decisions, so that a reader need not read all of it.

A record with the key ``\\0index`` is a snapshot: it has, for all offsets below its ``end``, the last offset of each key
that was not deleted. The group ``spark-decisions`` commits that ``end``. A reader reads from there on, finds the
snapshot after it, and so knows the whole partition. A reader that has read more than INDEX_INTERVAL offsets writes a
snapshot, and a decider writes one about every INDEX_INTERVAL offsets, so no reader has to read much more than that.

A snapshot states facts about committed records, so it stays true: it does not matter which process writes it, when it
arrives, or whether the group goes back to an older one or is forgotten; then a reader reads more, or all. Compaction
removes a record only if there is a later one of the same key: after the snapshot, where it is read, or in a later one.
A deletion is removed after ``delete.retention.ms`` too. If no snapshot was written meanwhile, its key counts as lost,
not as one that never was; it is the key of a scope that is over, which nobody looks up any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from sparklog.client.admin.admin import Admin
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import earliest_offsets, latest_offsets
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, SparklogError
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.records import Record, iter_records
from sparklog.structs import IsolationLevel, TopicPartition

GROUP = "spark-decisions"
KEY = b"\0index"
INDEX_INTERVAL = 4096
_DUE_WITHIN = 8
"""A decision in the first offsets of an interval, this many, is followed by a snapshot: more offsets than one decision
takes with its markers."""
_VERSION = 1
_MOST_BYTES = 4 << 20
"""Bytes. A snapshot that is larger, uncompressed, is not written."""


class _Snapshot(NamedTuple):
    """Key → offset of its last record below ``end``, without deleted keys."""

    end: int
    offsets: dict[bytes, int]


class DecisionIndex:
    """Finds records of a partition by their keys, and writes snapshots of the index."""

    def __init__(self, cluster: ClusterMetadata, admin: Admin, tp: TopicPartition) -> None:
        self._cluster = cluster
        self._admin = admin
        self._tp = tp

    def last_value(self, key: bytes) -> bytes | None:
        """The value of the last record with a key. Waits until transactions that are open now have ended.

        Raises CorruptRecord, or ApiError(OFFSET_OUT_OF_RANGE), if there was such a record and it is gone.
        """
        offset = self._current().offsets.get(key)
        if offset is None:
            return None
        value = self.value_at(offset, key)
        if value is None:
            raise CorruptRecord(f"{self._tp} has no record of {key!r} at offset {offset}, where its index has one")
        return value

    def value_at(self, offset: int, key: bytes) -> bytes | None:
        """The value of a record that is known to be committed; None if it has no value, or does not exist.

        Raises ApiError(OFFSET_OUT_OF_RANGE) if the partition ends before it and stays so.
        """
        try:
            for record in self._records(offset, offset + 1, IsolationLevel.READ_UNCOMMITTED):
                if record.offset == offset and record.key is not None and bytes(record.key) == key:
                    return None if record.value is None else bytes(record.value)
        except ApiError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT and (end := self._end()) <= offset:
                # A broker refuses a fetch beyond the end of the log, but not one exactly at the end.
                gone = f"{self._tp} ends at offset {end}, and {offset} was committed"
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, gone) from error
            raise
        return None

    def write_if_due(self, offset: int) -> None:
        """Write a snapshot if one is due after the decision at ``offset``."""
        if offset >= INDEX_INTERVAL and offset % INDEX_INTERVAL < _DUE_WITHIN:
            self._write(self._current())

    def _current(self) -> _Snapshot:
        first = earliest_offsets(self._cluster, [self._tp])[self._tp]
        last = self._end()
        committed = self._admin.group_offsets(GROUP, [self._tp]).get(self._tp)
        start = first if committed is None or not first < committed.offset <= last else committed.offset
        current = self._scanned(start, last) if start > first else None
        if current is None:
            current = self._scanned(first, last, _Snapshot(first, {}))
        assert current is not None
        if last - start > INDEX_INTERVAL:
            with suppress(SparklogError):  # it may be too large for the topic: then the next reader reads more
                self._write(current)
        return current

    def _end(self) -> int:
        return latest_offsets(self._cluster, [self._tp], IsolationLevel.READ_UNCOMMITTED)[self._tp]

    def _scanned(self, start: int, last: int, before: _Snapshot | None = None) -> _Snapshot | None:
        """The index of all below ``last``: of the records from ``start`` on, and of the snapshot of those before them.

        That snapshot is ``before``, or one among the records; None if there is neither.
        """
        read: dict[bytes, int | None] = {}
        for record in self._records(start, last, IsolationLevel.READ_COMMITTED):
            key = b"" if record.key is None else bytes(record.key)
            if key != KEY:
                read[key] = None if record.value is None else record.offset
            elif (found := _decoded(record)) is not None and found.end >= (start if before is None else before.end):
                before = found
        if before is None:
            return None
        offsets = {key: offset for key, offset in (before.offsets | read).items() if offset is not None}
        return _Snapshot(last, offsets)

    def _records(self, start: int, end: int, isolation: IsolationLevel) -> Iterator[Record]:
        return checked_records(fetch_range(self._cluster, self._tp, start, end, isolation=isolation))

    def _write(self, snapshot: _Snapshot) -> None:
        offsets = {_text(key): offset for key, offset in snapshot.offsets.items()}
        value = json.dumps({"version": _VERSION, "end": snapshot.end, "offsets": offsets}).encode()
        if len(value) > _MOST_BYTES:
            return
        builder = RecordBatchBuilder(CompressionType.GZIP)
        builder.append(self._cluster.clock.now_ms(), KEY, value)
        with BatchProducer(self._cluster) as producer:
            producer.send(self._tp, bytearray(builder.build()))
        self._admin.alter_group_offsets(GROUP, {self._tp: snapshot.end})


def checked_records(batches: Iterable[RecordBatch]) -> Iterator[Record]:
    """The records of the batches. Raises CorruptRecord for a damaged batch, whatever the client's settings are."""
    for batch in batches:
        batch.validate()
        yield from iter_records(batch)


def _decoded(record: Record) -> _Snapshot | None:
    """The snapshot in a record; None for one of another version or another program, which is skipped."""
    try:
        fields = json.loads(bytes(record.value or b"{}"))
        if fields["version"] == _VERSION:
            return _Snapshot(
                int(fields["end"]), {_bytes(key): int(offset) for key, offset in fields["offsets"].items()}
            )
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
