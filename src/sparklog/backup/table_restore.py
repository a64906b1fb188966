"""Making topics of a table that an offload has written: the table's rows become records under the same offsets.

A table has less than a log: no batches, producers, markers, settings or groups. So it is a source of records alone.
Offsets that no row has are gaps, as in a compacted log. The table is read without a JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from sparklog.backup.manifest import Backup, PartitionBackup, TopicBackup
from sparklog.backup.restoring import (
    Listener,
    Note,
    Origin,
    Restored,
    RestoreOptions,
    Restoring,
    Warn,
    chosen_names,
    empty_batch,
)
from sparklog.client.admin.admin import Admin
from sparklog.client.cluster.config import ClientConfig
from sparklog.cluster.info import TopicInfo
from sparklog.errors import DataSourceError, StorageError
from sparklog.record.batch import patch_header
from sparklog.record.columnar import ColumnarEncoder
from sparklog.record.compression import CompressionType
from sparklog.spark.lake.history.snapshot import Snapshot
from sparklog.spark.lake.history.table_rows import TableRows
from sparklog.spark.lake.progress import Progress
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.schema import READ_COLUMNS
from sparklog.structs import NO_EPOCH, TopicPartition

_NEEDED = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
"""Columns without which a record would not be what it was."""
_MOST_COPIES = 32767
_READ = StructType().add("offset", READ_COLUMNS["offset"])
for _name in ("key", "value", "headers", "timestamp"):
    _READ = _READ.add(_name, READ_COLUMNS[_name])
_OFFSETS = StructType().add("offset", READ_COLUMNS["offset"])
_TIMES = StructType().add("timestamp", READ_COLUMNS["timestamp"])


def restore_table(
    config: ClientConfig,
    table: str,
    options: RestoreOptions,
    *,
    listener: Listener | None = None,
    warn: Warn,
) -> Restored:
    """Make topics of the table at a path or URI. A topic that is there is filled if it is empty.

    Raises DataSourceError for a table that does not have all records as they were, StorageError for a topic with other
    records, and as ``restore`` does. Of ``options`` the number and the groups mean nothing.
    """
    origin = TableOrigin(Snapshot.open(table), options)
    with Admin(config) as admin:
        return Restoring(admin, origin, options, listener or (lambda *_: None), warn).restore()


class TableOrigin(Origin):
    """One version of a table."""

    number = None

    def __init__(self, snapshot: Snapshot, options: RestoreOptions) -> None:
        """Raises DataSourceError for a table that does not suit."""
        self._snapshot = snapshot
        _check_columns(snapshot)
        self._owners = _owners(snapshot)
        self.backup = Backup("", 0, "", False, {}, {})
        for topic in sorted(self._owners):
            self.backup.topics[topic] = TopicBackup(self._owners[topic][0].topic_id, _MOST_COPIES, {}, ())
        self.names = chosen_names(self.backup, options, "table")
        for topic in self.names:
            partitions = tuple(self._partitions(self._owners[topic]))
            self.backup.topics[topic] = self.backup.topics[topic]._replace(partitions=partitions)

    def _partitions(self, owners: Sequence[Progress]) -> Iterator[PartitionBackup]:
        """Of each partition where it begins and ends; the offsets of the rows are read, and none may come twice."""
        known = {each.tp.partition: each for each in owners}
        for number in range(max(known) + 1):
            end = self._snapshot.end(known[number]) if number in known else 0
            first = end
            if end:
                with closing(TableRows(self._snapshot, _OFFSETS)) as rows:
                    for each in rows.batches(OffsetRange(known[number].tp, 0, end)):
                        first = min(first, each.batch.column("offset")[0].as_py())
            yield PartitionBackup(first, end, ())

    def batches(
        self, source: str, partition: int, configs: Mapping[str, str]
    ) -> Iterator[tuple[int, bytes | bytearray]]:
        start, end, _ = self.backup.topics[source].partitions[partition]
        encoder = ColumnarEncoder(compression=_compression(configs), max_batch_bytes=int(configs["max.message.bytes"]))
        position = start
        with closing(TableRows(self._snapshot, _READ)) as rows:
            for each in rows.batches(OffsetRange(TopicPartition(source, partition), start, end)):
                for run in _runs(each.batch):
                    for base_offset, data, count in _encoded(encoder, run):
                        position = base_offset + count
                        yield base_offset, data
        if position < end or not end - start:
            yield end - 1, empty_batch(end - 1, int(NO_EPOCH))

    def older(self, source: str, before_ms: int) -> tuple[int, int]:
        old = count = 0
        for number, partition in enumerate(self.backup.topics[source].partitions):
            wanted = OffsetRange(TopicPartition(source, number), partition.start, partition.end)
            with closing(TableRows(self._snapshot, _TIMES)) as rows:
                for each in rows.batches(wanted) if wanted.size else ():
                    times = each.batch.column("timestamp").cast(pa.int64()).to_numpy()
                    old += int(((times >= 0) & (times < before_ms * 1000)).sum())
                    count += len(times)
        return old, count

    def note(self, cluster_id: str, name: str) -> Note:  # noqa: ARG002
        return _ByEnds()


class _ByEnds(Note):
    """A topic is taken for ours if each partition is empty, or ends where the table does: nothing is noted."""

    def intend(self) -> None: ...

    def begin(self, topic_id: UUID) -> None: ...

    def end(self) -> None: ...

    def is_ours(self, info: TopicInfo, ends: Sequence[int], topic: TopicBackup) -> bool:
        wanted = [each.end for each in topic.partitions]
        if len(info.partitions) < len(wanted):
            raise StorageError(
                f"topic {info.name} has {len(info.partitions)} partitions, and the table has rows of {len(wanted)}"
            )
        missing = [0] * (len(ends) - len(wanted))
        return all(found in (0, end) for found, end in zip(ends, [*wanted, *missing], strict=True))


def _check_columns(snapshot: Snapshot) -> None:
    if snapshot.values is not None:
        _refuse(snapshot, "it has decoded values: those that do not decode are missing, and the others' bytes too")
    lacking = [name for name in _NEEDED if name not in snapshot.schema.names]
    if lacking:
        _refuse(snapshot, f"it has no column {', '.join(lacking)}, so the records would not be what they were")


def _owners(snapshot: Snapshot) -> dict[str, list[Progress]]:
    """The partitions of each topic that have come into the table."""
    found: dict[str, list[Progress]] = {}
    for each in snapshot.owners():
        found.setdefault(each.tp.topic, []).append(each)
    for topic, owners in found.items():
        ids = sorted({f"id {each.topic_id} of cluster {each.cluster_id}" for each in owners})
        if len(ids) > 1:
            _refuse(snapshot, f"topic {topic} in it is several topics: {', '.join(ids)}")
    if not found:
        _refuse(snapshot, "no offload has written to it")
    return found


def _refuse(snapshot: Snapshot, why: str) -> None:
    raise DataSourceError("SPARKLOG_UNSUITABLE_TABLE", f"no topic is made of table {snapshot.name}: {why}")


def _compression(configs: Mapping[str, str]) -> CompressionType:
    kind = configs["compression.type"]
    return CompressionType[kind.upper()] if kind not in ("producer", "uncompressed") else CompressionType.NONE


def _runs(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows, parted where offsets do not follow one another: those in a batch of an encoder do."""
    offsets = rows.column("offset").to_numpy()
    ends = [*(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(offsets)]
    start = 0
    for end in ends:
        yield rows.slice(start, end - start)
        start = end


def _encoded(encoder: ColumnarEncoder, rows: pa.RecordBatch) -> Iterator[tuple[int, bytearray, int]]:
    """Batches, with the offset and the number of their records."""
    offset = rows.column("offset")[0].as_py()
    columns = (rows.column(name) for name in ("key", "value", "headers", "timestamp"))
    for batch in encoder.encode(*columns, now_ms=0):
        patch_header(batch.data, 0, offset, int(NO_EPOCH))
        yield offset, batch.data, batch.record_count
        offset += batch.record_count
