"""What a broker that has stopped in order has of a partition on its disk, for a comparison with the other replicas."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from sparklog.log.checkpoints import LEADER_EPOCHS
from sparklog.log.indexes.transaction_index import read_aborted
from sparklog.log.leader_epochs import read_epochs
from sparklog.log.producer_snapshot import ProducerEntry, read_snapshot
from sparklog.record.records import iter_batches


def replicas(homes: Sequence[Path]) -> list[dict[str, Any]]:
    """The fields of a ``replica`` event for each directory of a partition's log, as far as all have it: the last leader
    may have appended what was not to be seen any more, as when a member of a group was given up.

    Where that is so, what is known of producers is not told, for that is of the end of the log.
    """
    found = [_Files(home) for home in homes]
    ends = {each.end for each in found}
    return [each.described(min(ends), knows_producers=len(ends) == 1) for each in found]


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
        self.end = self._batches[-1].last_offset + 1 if self._batches else int(logs[-1].stem)

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

    def _producers(self, end: int) -> dict[str, Any]:
        path = self._home / f"{end:020d}.snapshot"
        known = read_snapshot(path) if path.exists() else {}
        return {str(number): _known(known[number]) for number in sorted(known)}


def _known(producer: ProducerEntry) -> list[Any]:
    batches = [[*batch._replace(timestamp=-1)] for batch in producer.batches]
    return [producer.epoch, batches, producer.coordinator_epoch, producer.transaction_first_offset]
