"""What the answer to a fetch holds for a reader at some position: which batches, and where the reader goes on.

Positions rise over what a reader may not see, and over the holes that compaction leaves.
"""

from __future__ import annotations

from typing import NamedTuple

from sparklog.errors import CorruptRecord
from sparklog.protocol.hot.fetch import FetchedPartition
from sparklog.record.batch import RecordBatch
from sparklog.record.records import iter_batches
from sparklog.record.visibility import Visibility
from sparklog.structs import NO_EPOCH, IsolationLevel, LeaderEpoch, TopicPartition


class Scan(NamedTuple):
    """What an answer holds for a reader at some position, and where the reader goes on.

    ``epoch`` is the leader epoch of what stands before ``next_offset``, NO_EPOCH where nothing came.
    """

    batches: list[RecordBatch]
    next_offset: int
    epoch: LeaderEpoch = NO_EPOCH


def unreadable(tp: TopicPartition, batch: RecordBatch, error: CorruptRecord) -> CorruptRecord:
    """What is said of a whole batch whose records cannot be read: where it stands, and how to get past it."""
    writer = f" by producer id {batch.producer_id}" if batch.producer_id >= 0 else ""
    return CorruptRecord(
        f"partition {tp} at offset {batch.base_offset}: {error}. The batch of offsets {batch.base_offset} to"
        f" {batch.last_offset} was written{writer} as no reader can read it; to go on without it, start at offset"
        f" {batch.next_offset}"
    )


def scan(
    tp: TopicPartition,
    fetched: FetchedPartition,
    position: int,
    isolation: IsolationLevel,
    *,
    check_crcs: bool = True,
    everything: bool = False,
) -> Scan:
    """The batches in an answer that a reader may see, up to the first with damage; all of them for ``everything``.

    Raises CorruptRecord, naming the place, where that one is the first: what stands before damage is never kept back.
    """
    shown = Visibility(fetched.aborted or (), isolation)
    visible: list[RecordBatch] = []
    start, epoch = position, NO_EPOCH
    try:
        for batch in (batch for chunk in fetched.records for batch in iter_batches(chunk)):  # type: ignore[arg-type]
            if check_crcs:
                batch.validate()
            if everything or shown.shows(batch):
                visible.append(batch)
            position = max(position, batch.next_offset)
            epoch = LeaderEpoch(batch.partition_leader_epoch)
    except CorruptRecord as error:
        if position == start:
            raise CorruptRecord(f"partition {tp} at offset {position}: {error}") from error
    return Scan(visible, position, epoch)


def visible_end(fetched: FetchedPartition, isolation: IsolationLevel) -> int:
    """The offset after the last record that a reader may see, as of this answer."""
    return fetched.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else fetched.high_watermark
