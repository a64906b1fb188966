"""What a broker that has stopped in order has of a partition on its disk, for a comparison with the other replicas."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from sparklog.log.checkpoints import LEADER_EPOCHS
from sparklog.log.indexes.transaction_index import read_aborted
from sparklog.log.leader_epochs import read_epochs
from sparklog.log.producer_snapshot import ProducerEntry, read_snapshot
from sparklog.record.records import iter_batches
from sparklog.structs import TopicPartition


def replica(data_dir: Path, tp: TopicPartition) -> dict[str, Any]:
    """The fields of a ``replica`` event.

    Where segments begin may differ between replicas, and so may the epochs in which nothing was written: only a leader
    hears of those. When a producer was heard of last is each broker's own time.
    """
    home = data_dir / str(tp)
    logs = sorted(home.glob("*.log"))
    data = b"".join(path.read_bytes() for path in logs)
    batches = list(iter_batches(memoryview(data)))
    end = batches[-1].last_offset + 1 if batches else int(logs[-1].stem)
    written = {batch.partition_leader_epoch for batch in batches}
    snapshots = {int(path.stem): path for path in home.glob("*.snapshot")}
    producers = read_snapshot(snapshots[end]) if end in snapshots else {}
    return {
        "start": int(logs[0].stem),
        "end": end,
        "digest": sha256(data).hexdigest(),
        "epochs": [list(entry) for entry in read_epochs(home / LEADER_EPOCHS) if entry.epoch in written],
        "producers": {str(number): _known(producers[number]) for number in sorted(producers)},
        "aborted": [list(each) for path in sorted(home.glob("*.txnindex")) for each in read_aborted(path)],
    }


def _known(producer: ProducerEntry) -> list[Any]:
    batches = [[*batch._replace(timestamp=-1)] for batch in producer.batches]
    return [producer.epoch, batches, producer.coordinator_epoch, producer.transaction_first_offset]
