"""Which batches of a stretch of log a reader sees."""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.record.batch import RecordBatch
from sparklog.structs import IsolationLevel


class Visibility:
    """Asked of one batch after another, in order.

    Control batches are passed over, and for read_committed those of aborted transactions: of each such transaction the
    producer and the first offset are known beforehand, and its end is the next control batch of that producer.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]], isolation: IsolationLevel) -> None:
        """``aborted``: (producer id, first offset) of every aborted transaction with batches in the stretch."""
        self._coming = sorted(aborted, key=lambda each: each[1], reverse=True)
        self._hides_aborted = isolation is IsolationLevel.READ_COMMITTED
        self._dropping: set[int] = set()

    def shows(self, batch: RecordBatch) -> bool:
        """Whether the reader sees this batch, the next one."""
        while self._coming and self._coming[-1][1] <= batch.last_offset:
            self._dropping.add(self._coming.pop()[0])
        if batch.is_control:
            self._dropping.discard(batch.producer_id)
            return False
        return not (self._hides_aborted and batch.is_transactional and batch.producer_id in self._dropping)
