"""What a task of an offload to files writes: Parquet with the rows of one partition a file, or raw segments.

Every attempt draws names of its own, so attempts disturb nobody. A file is whole and durable when it is told of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from io import RawIOBase
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.consumer.fetch.range_reader import fetch_everything
from sparklog.errors import ApiError
from sparklog.log.files import base_offset_of
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.batch import RecordBatch
from sparklog.record.layout import MAX_INT64
from sparklog.spark.failures import translated
from sparklog.spark.lake.ages import Timestamps
from sparklog.spark.lake.destination import WrittenFiles
from sparklog.spark.lake.files import ROW_GROUP_BYTES, open_parquet
from sparklog.spark.lake.places.file_manifest import DataFile
from sparklog.spark.read.columns import read_ranges
from sparklog.spark.read.data_loss import DataLossReporter, offset_after_loss
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import READ_COLUMNS
from sparklog.spark.throttling import cluster_of_task
from sparklog.storage.place import Place, open_place
from sparklog.storage.segment_file import SegmentFile, write_segments, write_topic_id
from sparklog.structs import TopicPartition

_MOST_MS = MAX_INT64 // 1000
"""A record may have any time, and microseconds do not hold all of them."""
_SCHEMA = StructType([StructField(name, kind) for name, kind in READ_COLUMNS.items()])


def remove_files(place: Place, files: Iterable[DataFile]) -> None:
    """Remove files that no manifest names, as far as that can be done: what stays is nothing."""
    for each in files:
        with suppress(OSError):
            place.remove(each.path)


@contextmanager
def _all_or_none(place: Place) -> Iterator[list[DataFile]]:
    """The whole files of an attempt, which go where the attempt fails: nobody is told of them."""
    files: list[DataFile] = []
    try:
        yield files
    except BaseException:
        remove_files(place, files)
        raise


@dataclass(frozen=True, slots=True)
class FileRanges:
    """Ranges of a log that are to be written into files of a place."""

    read: ReadOptions
    ranges: tuple[OffsetRange, ...]
    uri: str
    file_bytes: int


@dataclass(frozen=True, slots=True)
class WriteParquet:
    """Write what read_committed readers see of the ranges."""

    work: FileRanges
    compression: str

    def run(self) -> WrittenFiles[DataFile]:
        """Raises DataSourceError, ApiError for what cannot be read; OSError, ArrowException where the place refuses."""
        place, timestamps = open_place(self.work.uri), Timestamps()
        with _all_or_none(place) as files:
            for each in self.work.ranges:
                files.extend(self._files(place, each, timestamps))
        return WrittenFiles(files, timestamps)

    def _files(self, place: Place, wanted: OffsetRange, timestamps: Timestamps) -> Iterator[DataFile]:
        start, file = wanted.start, None
        try:
            for rows in _row_groups(read_ranges(self.work.read, _SCHEMA, [wanted]), timestamps):
                file = file or _ParquetFile(place, wanted, rows.schema, self.compression)
                file.write(rows)
                if file.size >= self.work.file_bytes:
                    end = rows.column("offset")[-1].as_py() + 1
                    written, file = file.finish(start, end), None
                    start = end
                    yield written
            if file is not None:
                written, file = file.finish(start, wanted.end), None
                yield written
        finally:
            if file is not None:
                file.discard()


def _row_groups(batches: Iterable[pa.RecordBatch], timestamps: Timestamps) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    nbytes = 0
    for batch in batches:
        timestamps.add(batch.column("timestamp"))
        pending.append(batch)
        nbytes += batch.nbytes
        if nbytes >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(pending)
            pending, nbytes = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


class _ParquetFile:
    """One file that is being written."""

    def __init__(self, place: Place, wanted: OffsetRange, schema: pa.Schema, compression: str) -> None:
        self._range = wanted
        self._path = f"data/{wanted.tp.topic}/{wanted.tp.partition}/{uuid4().hex}.{compression}.parquet"
        self._file = place.create(self._path)
        self._sink = _HashingSink(self._file)
        self._rows = 0
        try:
            self._parquet = open_parquet(self._sink, schema, compression)
        except BaseException:  # it writes already
            self.discard()
            raise

    @property
    def size(self) -> int:
        """Bytes written."""
        return self._sink.tell()

    def write(self, rows: pa.Table) -> None:
        self._parquet.write_table(rows, row_group_size=rows.num_rows)
        self._rows += rows.num_rows

    def finish(self, start: int, end: int) -> DataFile:
        self._parquet.close()
        self._file.finish()
        tp, topic_id = self._range.tp, str(self._range.topic_id)
        return DataFile(
            self._path, tp.topic, topic_id, tp.partition, start, end, self._rows, self.size, self._sink.digest
        )

    def discard(self) -> None:
        self._file.discard()


class _HashingSink(RawIOBase):
    """Hands bytes on, and has their SHA-256. It is the owner's to finish the file."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._sha256 = sha256()
        self._size = 0

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self._sha256.update(view)
        self._file.write(view)
        self._size += len(view)
        return len(view)


@dataclass(frozen=True, slots=True)
class WriteSegments:
    """Write all batches of the ranges as brokers hand them out, markers and aborted transactions too.

    A batch is whole in the range that has its first offset, even where the range ends within it: so no two ranges have
    one batch. Only in ``first``, the partitions whose first range of the commit is here, it may begin before the range.
    """

    work: FileRanges
    first: frozenset[TopicPartition]

    def run(self) -> WrittenFiles[DataFile]:
        """Raises DataSourceError for what cannot be read, OSError where the place refuses."""
        place, timestamps, directory = open_place(self.work.uri), Timestamps(), f"segments/{uuid4().hex}"
        data_loss = DataLossReporter(fail=self.work.read.fail_on_data_loss)
        with translated(), cluster_of_task(self.work.read.client) as cluster, _all_or_none(place) as files:
            copier = _Copier(cluster, place, directory, self.work.file_bytes, timestamps)
            begun: set[TopicPartition] = set()
            for each in self.work.ranges:
                is_first = each.tp in self.first and each.tp not in begun
                files.extend(_data_file(each, file) for file in copier.copied(each, data_loss, is_first=is_first))
                begun.add(each.tp)
        return WrittenFiles(files, timestamps)


class _Copier:
    """Copies ranges into segment files of one directory."""

    def __init__(
        self, cluster: ClusterMetadata, place: Place, directory: str, file_bytes: int, timestamps: Timestamps
    ) -> None:
        self._cluster = cluster
        self._place = place
        self._directory = directory
        self._file_bytes = file_bytes
        self._timestamps = timestamps

    def copied(self, wanted: OffsetRange, data_loss: DataLossReporter, *, is_first: bool) -> Iterator[SegmentFile]:
        write_topic_id(self._place, self._directory, wanted.tp, wanted.topic_id or ZERO_UUID)
        position = wanted.start
        while position < wanted.end:
            try:
                for file in self._written(wanted, position, is_first=is_first):
                    yield file
                    position = file.end
                return
            except ApiError as error:
                position = offset_after_loss(self._cluster, wanted, position, error, data_loss)

    def _written(self, wanted: OffsetRange, position: int, *, is_first: bool) -> Iterator[SegmentFile]:
        topic_id = wanted.topic_id or ZERO_UUID
        with closing(fetch_everything(self._cluster, wanted.tp, position, wanted.end, topic_id)) as batches:
            mine = (batch for batch in batches if is_first or batch.base_offset >= wanted.start)
            noted = self._noted(mine)
            yield from write_segments(self._place, self._directory, wanted.tp, position, noted, self._file_bytes)

    def _noted(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """A batch stands for its last record in what is told of ages."""
        times = []
        for batch in batches:
            yield batch
            if not batch.is_control:
                times.append(min(max(batch.max_timestamp, -_MOST_MS), _MOST_MS) * 1000)
        self._timestamps.add(pa.array(times, pa.int64()))


def _data_file(wanted: OffsetRange, file: SegmentFile) -> DataFile:
    """What is said of a segment file: it begins with its first batch, for the range before may have gone further."""
    tp, topic_id = wanted.tp, str(wanted.topic_id or ZERO_UUID)
    start = max(wanted.start, base_offset_of(Path(file.path)))
    return DataFile(
        file.path, tp.topic, topic_id, tp.partition, start, file.end, file.records, file.nbytes, file.sha256
    )
