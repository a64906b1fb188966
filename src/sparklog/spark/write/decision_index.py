"""Where the last record of each key stands in a partition of the decisions, so that nobody reads all of it.

A record with the key ``\\0index`` says, for all offsets below its ``end``, which is the last one of each key that was
not deleted. The group ``spark-decisions`` commits that ``end``: who looks for a key reads from there on, finds the
index behind it, and with both knows the whole partition. Whoever has to read more than STRETCH offsets writes an index,
and so does whoever writes a decision about once in STRETCH offsets, so nobody has to read much more than that.

An index is a statement about committed records, so it stays true: it does not matter who writes it, when it arrives,
and whether the group goes back to an older one or is forgotten; then more is read, or all. Compaction takes a record
away only when there is a later one of the same key: behind the index, where it is read, or in a later index.
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
STRETCH = 4096
_SHARE = 8
"""Offsets of a stretch whose decisions are followed by an index: more than one decision takes, with its markers."""
_VERSION = 1
_MOST_BYTES = 4 << 20
"""An index that is larger, uncompressed, is not written."""


class _Known(NamedTuple):
    """The offset of the last record of each key among all below ``end``, without those that are deleted."""

    end: int
    offsets: dict[bytes, int]


class DecisionIndex:
    """Finds records of a partition by their keys, and keeps the index."""

    def __init__(self, cluster: ClusterMetadata, admin: Admin, tp: TopicPartition) -> None:
        self._cluster = cluster
        self._admin = admin
        self._tp = tp

    def last_value(self, key: bytes) -> bytes | None:
        """The value of the last record with a key; waits until what others write now is written.

        Raises CorruptRecord, or ApiError(OFFSET_OUT_OF_RANGE), where there was such a record and it is gone.
        """
        offset = self._known().offsets.get(key)
        if offset is None:
            return None
        value = self.value_at(offset, key)
        if value is None:
            raise CorruptRecord(f"{self._tp} has no record of {key!r} at offset {offset}, where its index has one")
        return value

    def value_at(self, offset: int, key: bytes) -> bytes | None:
        """The value of a record that is known to be committed; None if it has none, or is not there.

        Raises ApiError(OFFSET_OUT_OF_RANGE) where the partition ends before it and stays so.
        """
        try:
            for record in self._records(offset, offset + 1, IsolationLevel.READ_UNCOMMITTED):
                if record.offset == offset and record.key is not None and bytes(record.key) == key:
                    return None if record.value is None else bytes(record.value)
        except ApiError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT and (end := self._end()) <= offset:
                # A log that ends just there refuses nothing, as one would that ends before.
                gone = f"{self._tp} ends at offset {end}, and {offset} was committed"
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, gone) from error
            raise
        return None

    def follow(self, offset: int) -> None:
        """A decision was written there: write an index, if it is time to."""
        if offset >= STRETCH and offset % STRETCH < _SHARE:
            self._write(self._known())

    def _known(self) -> _Known:
        first = earliest_offsets(self._cluster, [self._tp])[self._tp]
        last = self._end()
        committed = self._admin.group_offsets(GROUP, [self._tp]).get(self._tp)
        start = first if committed is None or not first < committed.offset <= last else committed.offset
        known = self._scanned(start, last) if start > first else None
        if known is None:
            known = self._scanned(first, last, _Known(first, {}))
        assert known is not None
        if last - start > STRETCH:
            with suppress(SparklogError):  # too large for the topic, say: without one more is read, no more than that
                self._write(known)
        return known

    def _end(self) -> int:
        return latest_offsets(self._cluster, [self._tp], IsolationLevel.READ_UNCOMMITTED)[self._tp]

    def _scanned(self, start: int, last: int, before: _Known | None = None) -> _Known | None:
        """All below ``last``: what is read from ``start`` on, and what ``before`` or an index says of what is before.

        None where nothing says that.
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
        return _Known(last, offsets)

    def _records(self, start: int, end: int, isolation: IsolationLevel) -> Iterator[Record]:
        return checked_records(fetch_range(self._cluster, self._tp, start, end, isolation=isolation))

    def _write(self, known: _Known) -> None:
        offsets = {_text(key): offset for key, offset in known.offsets.items()}
        value = json.dumps({"version": _VERSION, "end": known.end, "offsets": offsets}).encode()
        if len(value) > _MOST_BYTES:
            return
        builder = RecordBatchBuilder(CompressionType.GZIP)
        builder.append(self._cluster.clock.now_ms(), KEY, value)
        with BatchProducer(self._cluster) as producer:
            producer.send(self._tp, bytearray(builder.build()))
        self._admin.alter_group_offsets(GROUP, {self._tp: known.end})


def checked_records(batches: Iterable[RecordBatch]) -> Iterator[Record]:
    """Raises CorruptRecord for a batch that is not as it was written, whatever the settings of the client."""
    for batch in batches:
        batch.validate()
        yield from iter_records(batch)


def _decoded(record: Record) -> _Known | None:
    """None for an index of another version, or of somebody else: it is passed over."""
    try:
        fields = json.loads(bytes(record.value or b"{}"))
        if fields["version"] == _VERSION:
            return _Known(int(fields["end"]), {_bytes(key): int(offset) for key, offset in fields["offsets"].items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
