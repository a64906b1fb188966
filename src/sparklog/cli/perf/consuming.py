"""Reads a topic as fast as may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparklog.cli.perf.pace import Meter
    from sparklog.client.consumer.batch_consumer import BatchConsumer
    from sparklog.clock import Clock
    from sparklog.record.batch import RecordBatch
    from sparklog.structs import TopicPartition

_COLUMNS = ("key", "value")


class Consuming:
    """One run, up to ``ends``, to ``records`` records, or until nothing has come for ``patience_s`` seconds.

    ``decode``: take the batches apart too. The bytes counted are those of keys and values, and without ``decode`` those
    of the batches as they lie in the log.
    """

    def __init__(
        self, consumer: BatchConsumer, ends: Mapping[TopicPartition, int], records: int | None, meter: Meter
    ) -> None:
        self.meter = meter
        self.first_after_s: float | None = None
        """When the first records came."""
        self._consumer = consumer
        self._ends = ends
        self._records = records
        self._leave_what_is_read()

    def run(self, clock: Clock, patience_s: float, *, decode: bool) -> None:
        """Raises SparklogError where a partition cannot be read."""
        heard = clock.monotonic()
        while not self.is_done and clock.monotonic() - heard < patience_s:
            found = self._consumer.poll()
            for damage in self._consumer.damaged.values():
                raise damage
            self._leave_what_is_read()
            if not found:
                continue
            heard = clock.monotonic()
            for batches in found.values():
                self._take([each for each in batches if not each.is_control], decode)
            if self.first_after_s is None:
                self.first_after_s = self.meter.seconds

    @property
    def is_done(self) -> bool:
        """Whether it came to where it should, and did not give up."""
        if self._records is not None and self.meter.records >= self._records:
            return True
        return not self._consumer.positions

    def _leave_what_is_read(self) -> None:
        """A broker whose partitions are at their ends would hold each question, and with it the others' records."""
        at = self._consumer.positions
        self._consumer.positions = {tp: offset for tp, offset in at.items() if offset < self._ends[tp]}

    def _take(self, batches: list[RecordBatch], decode: bool) -> None:
        records = sum(each.record_count for each in batches)
        self.meter.add(records, _decoded_bytes(batches) if decode else sum(each.size_in_bytes for each in batches))


def _decoded_bytes(batches: list[RecordBatch]) -> int:
    import pyarrow.compute as pc

    from sparklog.record.columnar import ColumnarDecoder

    decoder = ColumnarDecoder(_COLUMNS)
    for each in batches:
        decoder.append(each, each.base_offset, each.next_offset)
    if not decoder.rows:
        return 0
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in decoder.finish().values())
