"""What a broker that has stopped in order has of a partition on its disk, for a comparison with the other replicas.

Each broker compacts its own replica, at its own time. So replicas of a compacted partition may differ in which outdated
records, tombstones and markers are gone, and in delete horizons. They have the same table, and what two of them have
is the same in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from histories.history import transactions

from sparklog.log.checkpoints import LEADER_EPOCHS
from sparklog.log.indexes.transaction_index import read_aborted
from sparklog.log.leader_epochs import read_epochs
from sparklog.log.producer_snapshot import ProducerEntry, read_snapshot
from sparklog.record.batch import RecordBatch
from sparklog.record.control import ControlType, read_marker
from sparklog.record.records import Record, iter_batches, iter_records


def replicas(homes: Sequence[Path]) -> list[dict[str, Any]]:
    """The fields of a ``replica`` event for each directory of a partition's log, as far as all have it: the last leader
    may have appended what was not to be seen any more, as when a member of a group was given up.

    Where that is so, what is known of producers is not told, for that is of the end of the log.
    """
    found = [_Files(home) for home in homes]
    ends = {each.end for each in found}
    return [each.described(min(ends), knows_producers=len(ends) == 1) for each in found]


def compacted_replicas(homes: Sequence[Path]) -> list[dict[str, Any]]:
    """The same, of replicas that may have been compacted: ``rows`` tells all records and markers."""
    found = [_Files(home) for home in homes]
    end = min(each.end for each in found)
    return [each.compacted(end, knows_producers=len({other.end for other in found}) == 1) for each in found]


def end_of(home: Path) -> int:
    """Where the log of a running broker ends. Its last segment is not compacted."""
    last = max(home.glob("*.log"))
    batches = list(iter_batches(memoryview(last.read_bytes())))
    return batches[-1].last_offset + 1 if batches else int(last.stem)


class _Files:
    """One replica's.

    Where segments begin may differ between replicas, and so may the epochs in which nothing was written: only a leader
    hears of those. When a producer was heard of last is each broker's own time.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        logs = sorted(home.glob("*.log"))
        self._start = int(logs[0].stem)
        self._data = memoryview(b"".join(path.read_bytes() for path in logs))
        self._batches = list(iter_batches(self._data))
        behind = self._batches[-1].last_offset + 1 if self._batches else 0
        self.end = max(behind, int(logs[-1].stem))

    def described(self, end: int, *, knows_producers: bool) -> dict[str, Any]:
        """Of what is below ``end``."""
        batches = [each for each in self._batches if each.last_offset < end]
        size = sum(each.size_in_bytes for each in batches)
        written = {each.partition_leader_epoch for each in batches}
        aborted = [each for path in sorted(self._home.glob("*.txnindex")) for each in read_aborted(path)]
        epochs = read_epochs(self._home / LEADER_EPOCHS)
        return {
            "start": self._start,
            "end": end,
            "digest": sha256(self._data[:size]).hexdigest(),
            "epochs": [list(entry) for entry in epochs if entry.epoch in written],
            "producers": self._producers(end) if knows_producers else {},
            "aborted": [list(each) for each in aborted if each.last_offset < end],
        }

    def compacted(self, end: int, *, knows_producers: bool) -> dict[str, Any]:
        """Of what is below ``end``. Of a producer only the last batch is promised to stay."""
        batches = [each for each in self._batches if each.last_offset < end]
        known = self._producers(end) if knows_producers else {}
        return {
            "start": self._start,
            "end": end,
            "rows": list(_rows(batches)),
            "producers": {number: [epoch, told[-1:], first] for number, (epoch, told, _, first) in known.items()},
        }

    def _producers(self, end: int) -> dict[str, Any]:
        path = self._home / f"{end:020d}.snapshot"
        known = read_snapshot(path) if path.exists() else {}
        return {str(number): _known(known[number]) for number in sorted(known)}


def _rows(batches: Sequence[RecordBatch]) -> Iterator[list[Any]]:
    """Of each record its offset, its key (None for a marker), whether it is a tombstone, whether read_committed may
    show it, and a digest of all of it.
    """
    outcomes = {each.first: each.outcome for each in transactions(map(_said, batches))}
    running: dict[int, str] = {}
    for batch in batches:
        outcome = "plain"
        if batch.is_control:
            running.pop(batch.producer_id, None)
        elif batch.is_transactional:
            outcome = running.setdefault(batch.producer_id, outcomes.get(batch.base_offset, "open"))
        for record in iter_records(batch):
            key = None if batch.is_control else bytes(record.key or b"").hex()
            is_shown = key is not None and outcome in ("plain", "committed")
            yield [record.offset, key, record.value is None, is_shown, _digest(batch, record)]


def _said(batch: RecordBatch) -> dict[str, Any]:
    """What of a batch tells of transactions, as in a ``final log`` event."""
    return {"offset": batch.base_offset, "producer": batch.producer_id, "kind": kind_of(batch)}


def kind_of(batch: RecordBatch) -> str:
    """The field of a batch in a ``final log`` event. Compaction empties a marker of whose transaction nothing is left,
    and keeps it, where it is the last of its producer.
    """
    if not batch.is_control:
        return "transactional" if batch.is_transactional else "plain"
    if not batch.record_count:
        return "emptied"
    return "commit" if read_marker(batch).type is ControlType.COMMIT else "abort"


def _digest(batch: RecordBatch, record: Record) -> str:
    sequence = batch.base_sequence + record.offset - batch.base_offset if batch.base_sequence >= 0 else -1
    producer = (batch.producer_id, batch.producer_epoch, sequence, batch.partition_leader_epoch)
    parts = (record.key, record.value, record.timestamp, record.headers, producer, batch.compression)
    return sha256(repr(parts).encode()).hexdigest()[:16]


def _known(producer: ProducerEntry) -> list[Any]:
    batches = [[*batch._replace(timestamp=-1)] for batch in producer.batches]
    return [producer.epoch, batches, producer.coordinator_epoch, producer.transaction_first_offset]
