"""What a cleaning knows of the transactions that it walks past, batch by batch.

Records of an aborted transaction go at once. The marker of a transaction stays until none of its batches is left; an
aborted one of which a batch was seen is listed in the new segment's transaction index. Source: Kafka 3.9,
``CleanedTransactionMetadata``.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.errors import CorruptRecord
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.record.batch import RecordBatch
from sparklog.record.control import ControlType, read_marker


class CleanedTransactions:
    """Shown each batch, in the order of the offsets."""

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        """``aborted`` are the transactions that transaction indexes list, in any order."""
        self._known = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer id: the one that is open where the walk stands
        self._seen: set[int] = set()  # those of them of which a batch was there
        self._committed: set[int] = set()
        self._listed: list[AbortedTransaction] = []

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Whether ``batch``, which holds records, is of a transaction that was aborted."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        transaction = self._aborted.get(batch.producer_id)
        if transaction is not None and batch.base_offset < transaction.last_offset:
            self._seen.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def is_last_trace(self, marker: RecordBatch) -> bool:
        """Whether nothing is left of the transaction that ``marker``, a control batch, ends."""
        self._begin_up_to(marker.last_offset)
        if not marker.record_count:
            return True
        try:
            kind = read_marker(marker).type
        except CorruptRecord:
            return False  # a control record of a kind that is not known stays
        producer_id = marker.producer_id
        if kind is ControlType.COMMIT:
            was_seen = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_seen
        transaction = self._aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self._seen:
            return True
        self._seen.discard(producer_id)
        self._listed.append(transaction)
        return False

    def take_listed(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were passed since the last call and of which a batch was there."""
        listed, self._listed = self._listed, []
        return listed

    def _begin_up_to(self, offset: int) -> None:
        while self._known and self._known[-1].first_offset <= offset:
            transaction = self._known.pop()
            known = self._aborted.get(transaction.producer_id)
            if known is None or known.last_offset < transaction.first_offset:
                self._aborted[transaction.producer_id] = transaction
                self._seen.discard(transaction.producer_id)
