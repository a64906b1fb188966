"""What a cleaning knows of the transactions that it walks past, batch by batch.

Records of an aborted transaction go at once. The marker of a transaction stays until none of its batches is left; an
aborted one of which a batch was seen is listed in the new segment's transaction index. Source: Kafka 3.9,
``CleanedTransactionMetadata``.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from sparklog.errors import CorruptRecord
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.record.batch import RecordBatch
from sparklog.record.control import ControlType, read_marker


class TraceKind(IntEnum):
    """What a batch is to its transaction."""

    DATA = 0
    COMMIT = 1
    ABORT = 2


class Trace(NamedTuple):
    """What one batch says of its producer's transaction."""

    kind: TraceKind
    producer_id: int
    base_offset: int
    last_offset: int


class OpenTransactions(NamedTuple):
    """What is known of transactions at one place in a log, to go on from there."""

    begun: int
    """Aborted transactions that begin up to this offset are taken into account."""
    aborted: list[AbortedTransaction]
    seen: list[int]
    """Producer ids."""
    committed: list[int]


class CleanedTransactions:
    """Shown each batch, in the order of the offsets."""

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        """``aborted`` are the transactions that transaction indexes list, in any order."""
        self._known = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer id: the one that is open where the walk stands
        self._seen: set[int] = set()  # those of them of which a batch was there
        self._committed: set[int] = set()
        self._listed: list[AbortedTransaction] = []
        self._begun = -1

    @classmethod
    def going_on(cls, aborted: Iterable[AbortedTransaction], before: OpenTransactions) -> CleanedTransactions:
        """What was shown all batches up to a place would know there."""
        found = cls(each for each in aborted if each.first_offset > before.begun)
        found._begun = before.begun
        found._aborted = {each.producer_id: each for each in before.aborted}
        found._seen, found._committed = set(before.seen), set(before.committed)
        return found

    def here(self) -> OpenTransactions:
        """What is known where the walk stands."""
        return OpenTransactions(self._begun, [*self._aborted.values()], sorted(self._seen), sorted(self._committed))

    def replay(self, trace: Trace) -> None:
        """Go past the batch of ``trace``; it is listed nowhere."""
        self._begin_up_to(trace.last_offset)
        if trace.kind is TraceKind.DATA:
            self._is_of_aborted(trace.producer_id, trace.base_offset)
        else:
            self._end(trace.producer_id, trace.kind)
            self._listed.clear()

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Whether ``batch``, which holds records, is of a transaction that was aborted."""
        self._begin_up_to(batch.last_offset)
        return batch.is_transactional and self._is_of_aborted(batch.producer_id, batch.base_offset)

    def _is_of_aborted(self, producer_id: int, base_offset: int) -> bool:
        transaction = self._aborted.get(producer_id)
        if transaction is not None and base_offset < transaction.last_offset:
            self._seen.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def is_last_trace(self, marker: RecordBatch) -> bool:
        """Whether nothing is left of the transaction that ``marker``, a control batch, ends."""
        self._begin_up_to(marker.last_offset)
        if not marker.record_count:
            return True
        kind = _kind_of(marker)
        return kind is not None and self._end(marker.producer_id, kind)  # one of a kind that is not known stays

    def _end(self, producer_id: int, kind: TraceKind) -> bool:
        """Whether nothing is left of the transaction that a marker ends."""
        if kind is TraceKind.COMMIT:
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
        self._begun = max(self._begun, offset)
        while self._known and self._known[-1].first_offset <= offset:
            transaction = self._known.pop()
            known = self._aborted.get(transaction.producer_id)
            if known is None or known.last_offset < transaction.first_offset:
                self._aborted[transaction.producer_id] = transaction
                self._seen.discard(transaction.producer_id)


class TraceLog:
    """Collects what batches, shown in order, say of transactions; ``CleanedTransactions.replay`` takes it.

    A batch that tells no more than one before it is left out: of the same producer, with no marker between them, and
    with no aborted transaction that begins or ends between them.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._bounds: defaultdict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for each in sorted(aborted, key=lambda each: each.first_offset):
            firsts, lasts = self._bounds[each.producer_id]
            firsts.append(each.first_offset)
            insort(lasts, each.last_offset)
        self._told: dict[int, tuple[int, int]] = {}
        self.traces: list[Trace] = []

    def show(self, batch: RecordBatch) -> None:
        """Look at a batch, of whatever kind."""
        if batch.is_control:
            self._told.pop(batch.producer_id, None)
            kind = _kind_of(batch) if batch.record_count else None
            if kind is not None:
                self.traces.append(Trace(kind, batch.producer_id, batch.base_offset, batch.last_offset))
        elif batch.is_transactional:
            firsts, lasts = self._bounds[batch.producer_id]
            place = bisect_right(firsts, batch.last_offset), bisect_right(lasts, batch.base_offset)
            if self._told.get(batch.producer_id) != place:
                self._told[batch.producer_id] = place
                self.traces.append(Trace(TraceKind.DATA, batch.producer_id, batch.base_offset, batch.last_offset))


def _kind_of(marker: RecordBatch) -> TraceKind | None:
    try:
        return TraceKind.COMMIT if read_marker(marker).type is ControlType.COMMIT else TraceKind.ABORT
    except CorruptRecord:
        return None
