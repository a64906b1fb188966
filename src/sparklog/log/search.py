"""Looking for a record by its time: what a search is made of, and how a batch is looked into.

Arrow is imported when the first batch is looked into: a compaction worker knows segments and looks for nothing, and to
import Arrow would take most of its start and of its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparklog.log.file_records import BatchPosition, FileRecords
from sparklog.log.indexes.time_index import TimestampOffset
from sparklog.record.batch import RecordBatch
from sparklog.record.compression import most_decompressed
from sparklog.record.layout import COMPRESSION_MASK, NO_TIMESTAMP

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_LARGE = 512 << 10
"""Bytes of a batch, decompressed, to look into which takes a millisecond or so where its records are small."""


class LongWork(Generic[T]):
    """What takes a search long and needs nothing but a file, which may be deleted meanwhile: for any thread."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._outcome: Future[T] = Future()

    def run(self) -> None:
        """Do the work, once. Raises nothing: ``result`` does."""
        try:
            self._outcome.set_result(self._work())
        except Exception as error:
            self._outcome.set_exception(error)

    def result(self) -> T:
        """What came of it; it is done now if nobody has run it. Raises what the work raised."""
        if not self._outcome.done():
            self.run()
        return self._outcome.result()


Step = LongWork[Any] | None
"""Where a search stops for others; if that is before long work, whoever takes the steps may have it run elsewhere."""
Search = Generator[Step, None, TimestampOffset | None]
"""Looks at some batches a step, and gives what it found at the end; the log may be written to between two steps."""


def first_record_in(
    records: FileRecords, place: BatchPosition, timestamp: int, start_offset: int
) -> Generator[Step, None, TimestampOffset | None]:
    """``first_record_from`` for the batch at ``place``, in steps. Raises CorruptRecord."""
    return _looked_into(records, place, partial(first_record_from, timestamp=timestamp, start_offset=start_offset))


def greatest_time_in(records: FileRecords, place: BatchPosition, start_offset: int) -> Generator[Step, None, int]:
    """The greatest timestamp of the records at or beyond ``start_offset`` of the batch at ``place``, in steps; -1 for
    none. Raises CorruptRecord.
    """
    return _looked_into(records, place, partial(_greatest_time, start_offset=start_offset))


def first_record_from(batch: RecordBatch, timestamp: int, start_offset: int) -> TimestampOffset | None:
    """The first record of ``batch`` at or beyond ``start_offset`` that is no earlier than ``timestamp``."""
    if batch.is_control and batch.record_count:  # a marker counts, though the decoder has no row for it
        return TimestampOffset(batch.max_timestamp, batch.base_offset)
    import pyarrow.compute as pc

    from sparklog.record.columnar import int64_scalar

    columns = _columns(batch, start_offset)
    times = columns["timestamp"]
    rows = pc.indices_nonzero(pc.greater_equal(times, int64_scalar(timestamp)))
    if len(rows) == 0:
        return None
    row = rows[0].as_py()
    return TimestampOffset(times[row].as_py(), columns["offset"][row].as_py())


def _greatest_time(batch: RecordBatch, start_offset: int) -> int:
    import pyarrow.compute as pc

    greatest = pc.max(_columns(batch, start_offset)["timestamp"]).as_py()
    return NO_TIMESTAMP if greatest is None else greatest


def _columns(batch: RecordBatch, start_offset: int) -> dict[str, pa.Array]:
    """Offset and time of each record at or beyond ``start_offset``."""
    from sparklog.record.columnar import ColumnarDecoder

    decoder = ColumnarDecoder(("offset", "timestamp"))
    decoder.append(batch, start_offset)
    return decoder.finish()


def _looked_into(
    records: FileRecords, place: BatchPosition, look: Callable[[RecordBatch], T]
) -> Generator[Step, None, T]:
    """What ``look`` finds in the batch at ``place``: at once, or by long work if the batch is large or may be, once it
    is decompressed.
    """
    if place.size > _LARGE:
        work = LongWork(lambda: look(_read(records, place)))
    else:
        batch = _read(records, place)
        if most_decompressed(batch.attributes & COMPRESSION_MASK, batch.payload, _LARGE) <= _LARGE:
            return look(batch)
        work = LongWork(partial(look, batch))
    yield work
    return work.result()


def _read(records: FileRecords, place: BatchPosition) -> RecordBatch:
    return RecordBatch(records.read(place.position, place.size))
