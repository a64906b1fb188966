"""What a log must hold, as a plain list: no files, no indexes, no snapshots, all found by looking at all of it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from sparklog.record.control import ControlType


@dataclass(eq=False)
class Batch:
    """One batch that was written; ``kept`` until its segment is given up or a rewrite drops it."""

    first: int
    last: int
    data: bytes
    times: list[int]
    epoch: int
    producer: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    ends: ControlType | None = None
    kept: bool = True

    @property
    def last_sequence(self):
        return self.sequence + len(self.times) - 1

    @property
    def latest(self):
        return max(self.times)


class Transaction(NamedTuple):
    """``marker`` is None while it is open."""

    producer: int
    batches: list[Batch]
    marker: Batch | None

    @property
    def aborted(self):
        return self.marker is not None and self.marker.ends is ControlType.ABORT

    def visible(self, start):
        """The first offset of what is left of it at or beyond ``start``; None if nothing is."""
        return next((batch.first for batch in self.batches if batch.kept and batch.last >= start), None)


@dataclass
class Model:
    """The log, with everything that it ever took and did not truncate."""

    history: list[Batch] = field(default_factory=list)
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    restarted_at: int = 0
    """Of a producer's batches before this that are in no segment any more, only the last need be remembered."""
    forgotten: dict[int, int] = field(default_factory=dict)
    """Producer id → the offset before which nothing is known of it."""
    blurred: dict[tuple[int, int], int] = field(default_factory=dict)
    """(Producer id, first offset) of a transaction → where it begins as far as is known since a restart."""

    @property
    def kept(self):
        return [batch for batch in self.history if batch.kept]

    @property
    def visible(self):
        return [batch for batch in self.history if batch.kept and batch.last >= self.start]

    @property
    def records(self):
        """(timestamp, offset) of each record that can be read."""
        pairs = [(at, batch.first + n) for batch in self.visible for n, at in enumerate(batch.times)]
        return [pair for pair in pairs if pair[1] >= self.start]

    def add(self, batch):
        self.assign_epoch(batch.epoch, batch.first)
        self.history.append(batch)
        self.end = batch.last + 1

    # Epochs

    @property
    def latest_epoch(self):
        return self.epochs[-1][0] if self.epochs else -1

    def assign_epoch(self, epoch, offset):
        if epoch > self.latest_epoch:
            self.epochs = [each for each in self.epochs if each[1] < offset] + [(epoch, offset)]

    def epoch_at(self, offset):
        return max((epoch for epoch, first in self.epochs if first <= offset), default=-1)

    def end_of_epoch(self, epoch):
        """(offset, epoch) as ``OffsetForLeaderEpoch`` would have it."""
        if not self.epochs or epoch < 0:
            return None
        after = min((first for other, first in self.epochs if other > epoch), default=self.end)
        return after, max((other for other, _ in self.epochs if other <= epoch), default=epoch)

    def epochs_lost(self):
        """The checkpoint was deleted: the epochs are what the batches say."""
        self.epochs = []
        for batch in self.visible:
            self.assign_epoch(batch.epoch, max(batch.first, self.start))

    def epochs_begin_late(self):
        """A crash took back the start that they were cut to: the batches before the first known one say the earlier."""
        known = self.epochs
        self.epochs_lost()
        first_epoch, first_offset = known[0]
        earlier = [each for each in self.epochs if each[1] < first_offset and each[0] <= first_epoch]
        if earlier and earlier[-1][0] == first_epoch:
            known = known[1:]
        self.epochs = earlier + known

    # Transactions and producers

    @property
    def transactions(self):
        """Every one, in the order of their first batches."""
        found, open_now = [], {}
        for batch in self.history:
            if not batch.transactional or batch.first < self.forgotten.get(batch.producer, 0):
                continue
            if batch.ends is None:
                open_now.setdefault(batch.producer, []).append(batch)
            elif batch.producer in open_now:
                found.append(Transaction(batch.producer, open_now.pop(batch.producer), batch))
        found += [Transaction(producer, batches, None) for producer, batches in open_now.items()]
        return sorted(found, key=lambda each: each.batches[0].first)

    def begins(self, transaction):
        first = transaction.batches[0].first
        return self.blurred.get((transaction.producer, first), first)

    @property
    def open_transactions(self):
        return [each for each in self.transactions if each.marker is None]

    @property
    def first_unstable(self):
        undecided = [
            self.begins(each)
            for each in self.transactions
            if each.marker is None or each.marker.first >= self.high_watermark
        ]
        return max(min(undecided), self.start) if undecided else None

    def aborted(self, start, end):
        """(producer, marker) of what must be said to be aborted in ``start`` to ``end``, and of what may be."""
        must, may = set(), set()
        for each in self.transactions:
            if each.aborted and each.marker.first >= start and each.batches[0].first < end:
                may.add((each.producer, each.marker.first))
                seen = each.visible(self.start)
                if seen is not None and seen < end:
                    must.add((each.producer, each.marker.first))
        return must, may

    def of_producer(self, producer):
        """What is known of its newest epoch: (epoch, its data batches)."""
        epoch, batches = -1, []
        for batch in self.history:
            if batch.producer != producer or batch.first < self.forgotten.get(producer, 0):
                continue
            if batch.producer_epoch != epoch:
                epoch, batches = batch.producer_epoch, []
            if batch.ends is None:
                batches.append(batch)
        return epoch, batches

    def remembered(self, producer):
        """The batches that it may send again: the last five; of those no longer in a segment a restart may leave but
        the last."""
        batches = self.of_producer(producer)[1][-5:]
        return [each for each in batches if each.kept or each.first >= self.restarted_at or each is batches[-1]]

    # Losing the beginning or the end

    def truncate(self, offset, base):
        """Everything from ``offset`` on is gone; ``base`` is where the segment began that held it."""
        self.history = [batch for batch in self.history if batch.last < offset]
        left = self.kept
        self.end = max(base, left[-1].last + 1 if left else 0)
        self.history = [batch for batch in self.history if batch.last < self.end]
        self.start = min(self.start, self.end)
        self.epochs = [each for each in self.epochs if each[1] < self.end]

    def begin_anew(self, offset):
        self.history, self.epochs = [], []
        self.start = self.end = self.high_watermark = self.restarted_at = offset
        self.forgotten, self.blurred = {}, {}

    def advance(self, offset):
        """The log starts at ``offset`` from now on."""
        if offset > self.start:
            self.start = offset
            current = self.epoch_at(offset)
            self.epochs = [
                (epoch, max(first, offset)) for epoch, first in self.epochs if epoch >= current or first > offset
            ]

    def give_up_before(self, base):
        """The segments before ``base`` are gone."""
        for batch in self.history:
            batch.kept = batch.kept and batch.first >= base
        self.advance(base)
