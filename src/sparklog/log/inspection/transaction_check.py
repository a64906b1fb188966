"""Holding the ``.txnindex`` files of a partition against the transactions that its log holds.

The log has it all: a producer's first transactional batch behind its last marker begins a transaction, the next marker
ends it. Every aborted transaction must be listed with the segment of its marker, or consumers that read committed
records only would be shown it. What compaction removed cannot be held against anything, nor what begins before the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sparklog.errors import CorruptRecord
from sparklog.log.files import TRANSACTION_INDEX_SUFFIX, segment_path
from sparklog.log.indexes.transaction_index import AbortedTransaction, read_aborted
from sparklog.log.inspection.findings import Finding, error
from sparklog.log.inspection.segment_facts import SegmentFacts
from sparklog.record.control import ControlType

_REBUILD = "delete the file and .kafka_cleanshutdown while no broker runs here: the next start rebuilds it from the log"


class TransactionCheck:
    """Shown the segments of one partition in order. ``has_all``: nothing was compacted away or lost to damage."""

    def __init__(self, first_offset: int, *, has_all: bool) -> None:
        self._first_offset = first_offset
        self._has_all = has_all
        self._open: dict[int, int] = {}

    def segment(self, facts: SegmentFacts, index: Path | None) -> Iterator[Finding]:
        """What is wrong with the transaction index of a segment; ``index`` is None if it has none."""
        due = self._aborted(facts)
        try:
            listed = {each.last_offset: each for each in read_aborted(index)} if index is not None else {}
        except (CorruptRecord, OSError) as failure:
            yield error(index or facts.path, f"cannot be read: {failure}", _REBUILD)
            return
        path = index or segment_path(facts.job.directory, facts.job.base_offset, TRANSACTION_INDEX_SUFFIX)
        for entry in listed.values():
            yield from self._compare(path, entry, due.get(entry.last_offset), facts)
        is_last = facts.job.limit is None
        if self._has_all and not (facts.job.in_use and is_last):
            for missing in (each for offset, each in due.items() if offset not in listed):
                what = f"the aborted transaction of producer {missing.producer_id} is not listed, so it would be read"
                yield error(path, what, _REBUILD, offset=missing.first_offset)

    def _compare(
        self, path: Path, entry: AbortedTransaction, due: AbortedTransaction | None, facts: SegmentFacts
    ) -> Iterator[Finding]:
        if not facts.job.base_offset <= entry.last_offset < facts.next_offset:
            what = f"lists a marker at offset {entry.last_offset}, which is not in the segment"
            yield error(path, what, _REBUILD, offset=entry.last_offset)
        elif not self._has_all or min(entry.first_offset, entry.last_stable_offset) < self._first_offset:
            return
        elif due is None:
            what = f"lists an aborted transaction that ends at offset {entry.last_offset}; the log has no such"
            yield error(path, what, _REBUILD, offset=entry.last_offset)
        elif entry != due:
            yield error(path, f"lists {_text(entry)}; the log has {_text(due)}", _REBUILD, offset=due.last_offset)

    def _aborted(self, facts: SegmentFacts) -> dict[int, AbortedTransaction]:
        """The aborted transactions whose markers lie in the segment, by the marker's offset."""
        found = {}
        for producer, offset, ended in facts.events:
            if ended is None:
                self._open.setdefault(producer, offset)
                continue
            first = self._open.pop(producer, None)
            if first is not None and ended is ControlType.ABORT:
                stable = min([*self._open.values(), offset + 1])
                found[offset] = AbortedTransaction(producer, first, offset, stable)
        return found


def _text(entry: AbortedTransaction) -> str:
    return (
        f"producer {entry.producer_id} from {entry.first_offset} to {entry.last_offset}"
        f" (last stable offset {entry.last_stable_offset})"
    )
