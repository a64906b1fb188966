"""What was asked of a partition and what it promised, and whether a log keeps it.

Every batch written is unlike every other, so what is found says where it comes from. A log keeps its promises if it
holds what was certain byte for byte, and if each of its batches follows one that it was once appended behind.
"""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

from log.samples import whole

from sparklog.log.checkpoints import read_topic_id
from sparklog.log.log import Log
from sparklog.record.batch import RecordBatch, patch_header
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_batches


class Ledger:
    """One partition."""

    def __init__(self, identity: UUID, flush_messages: int | None = None) -> None:
        self.identity = identity
        self.flush_messages = flush_messages
        self.batches: list[bytes] = []
        """What the log was given and did not give up at its end, in order."""
        self.certain: dict[int, bytes] = {}
        """What no power cut may take, by first offset."""
        self.certain_start = 0
        """Where the log began when that was last written down."""
        self.start = 0
        """Where it began last."""
        self.retaining = False
        """Whether its beginning was being given up when it was last heard of."""
        self._follows: set[tuple[bytes, bytes]] = set()
        self._promised = 0
        self._producers = 0

    def next_sequence(self) -> tuple[int, int]:
        """The idempotent producer's id and sequence; a new producer's once no batch of the old is left."""
        found = _next_sequence(self.batches)
        if found is None:
            self._producers += 1
            return self._producers, 0
        return found

    def attempt(self, records: bytes) -> None:
        """These bytes may reach the log behind what it holds."""
        self.attempt_behind(self.batches, records)

    def attempt_behind(self, batches: list[bytes], records: bytes) -> None:
        self._follows.add((batches[-1] if batches else b"", records))

    def appended(self, records: bytes, log: Log, *, answered: bool = True) -> None:
        """It is in the log; ``answered``: and whoever asked for it was told so."""
        self.attempt(records)
        self.batches.append(records)
        self.settle(log)
        if answered and self.flush_messages is not None and log.log_end_offset - self._promised >= self.flush_messages:
            self._certain_below(log.log_end_offset)

    def settle(self, log: Log) -> None:
        """Everything below the recovery point is certain from now on, and what lies before the start nobody's."""
        start = log.log_start_offset
        self.start = max(self.start, start)
        self.certain = {
            offset: batch for offset, batch in self.certain.items() if RecordBatch(batch).last_offset >= start
        }
        self._certain_below(log.recovery_point)

    def _certain_below(self, end: int) -> None:
        self._promised = max(self._promised, end)
        for batch in map(RecordBatch, self.batches):
            if batch.next_offset <= end and batch.last_offset >= self.start:
                self.certain[batch.base_offset] = bytes(batch.buffer)

    def truncating(self, offset: int) -> None:
        """Nothing that holds ``offset`` or lies beyond it is certain any more."""
        self._promised = min(self._promised, offset)
        holding = [batch.base_offset for batch in map(RecordBatch, self.batches) if batch.last_offset >= offset]
        self.certain_start = min([self.certain_start, *holding])
        self.certain = {
            first: batch for first, batch in self.certain.items() if RecordBatch(batch).last_offset < offset
        }

    def truncated(self, log: Log) -> None:
        self.batches = [batch for batch in self.batches if RecordBatch(batch).next_offset <= log.log_end_offset]
        self.settle(log)

    def restarted(self, batches: list[bytes]) -> None:
        """The log was found with these, on a disk that has its power: now they are certain."""
        self.batches = batches
        self.retaining = False
        self.certain = {RecordBatch(batch).base_offset: batch for batch in batches}
        self._promised = RecordBatch(batches[-1]).next_offset if batches else 0

    def check(self, log: Log) -> list[bytes]:
        """The batches of ``log``, which keeps every promise; AssertionError names the one it broke."""
        views = list(iter_batches(whole(log), partial_tail=False))
        found = [bytes(view.buffer) for view in views]
        held = {view.base_offset: batch for view, batch in zip(views, found, strict=True)}
        if self.retaining:  # what is left of it still follows from its batches
            self.start = max(self.start, log.log_start_offset)
        begin = log.log_start_offset if self.retaining else 0
        lost = [first for first, batch in self.certain.items() if first >= begin and held.get(first) != batch]
        assert not lost, f"{log.tp} lost the batches at {lost}; it is {log.log_start_offset} to {log.log_end_offset}"
        for before, batch in zip([b"", *found], found, strict=False):
            first = RecordBatch(batch).base_offset
            known = any(batch == each for _, each in self._follows) if not before else (before, batch) in self._follows
            assert known, f"{log.tp} invented: the batch at {first} does not belong behind the one before"
        self._check_bounds(log, views)
        for view in views:
            if view.last_offset >= log.log_start_offset:
                epoch = log.epochs.epoch_at(max(view.base_offset, log.log_start_offset))
                assert epoch == view.partition_leader_epoch, f"{log.tp} remembers epoch {epoch} for {view}"
        assert read_topic_id(log.directory) == self.identity
        return found

    def _check_bounds(self, log: Log, views: list[RecordBatch]) -> None:
        for before, view in pairwise(views):
            assert view.base_offset == before.next_offset, f"a hole before {view.base_offset}"
        start, end = log.log_start_offset, log.log_end_offset
        bounds = f"{self.certain_start} to {self.start}"
        assert self.certain_start <= start <= self.start, f"{log.tp} begins at {start}, not from {bounds}"
        if views:
            bounds = (
                f"{log.tp} is {start} to {end} where the batches are {views[0].base_offset} to {views[-1].next_offset}"
            )
            assert views[0].base_offset <= start <= end == views[-1].next_offset, bounds


def _next_sequence(batches: list[bytes]) -> tuple[int, int] | None:
    for batch in map(RecordBatch, reversed(batches)):
        if batch.producer_id >= 0:
            return batch.producer_id, batch.last_sequence + 1
    return None


def last_producer(log: Log) -> tuple[int, int] | None:
    """The idempotent producer that wrote last, and the sequence that it is due to send."""
    return _next_sequence([bytes(batch.buffer) for batch in iter_batches(whole(log))])


def unique_batch(number: int, records: int, size: int, producer: tuple[int, int] | None = None) -> memoryview:
    """A batch unlike any with another number; ``producer`` is an idempotent producer's id and sequence."""
    header = {} if producer is None else dict(zip(("producer_id", "base_sequence"), producer, strict=True))
    builder = RecordBatchBuilder(**header, producer_epoch=-1 if producer is None else 0)
    for each in range(records):
        builder.append(1_700_000_000_000 + number, None, b"%d/%d " % (number, each) + b"v" * size)
    return memoryview(bytearray(builder.build()))


def check_retry(log: Log, batches: list[bytes]) -> None:
    """The idempotent producer's last batch, sent again, is known; the log stays as it is."""
    end = log.log_end_offset
    for batch in map(RecordBatch, reversed(batches)):
        if batch.producer_id >= 0 and batch.base_offset >= log.log_start_offset:
            sent = bytearray(batch.buffer)
            patch_header(sent, 0, 0, -1)
            again = log.append_as_leader(memoryview(sent), batch.partition_leader_epoch)
            assert again.first_offset == batch.base_offset, f"a retry was written again: {batch}"
            break
    assert log.log_end_offset == end
