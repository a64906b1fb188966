"""Idempotence: which sequence numbers the batches of one partition carry, and what a refusal means for them.

A broker remembers, for each producer id and partition, the epoch and the last five batches. It takes a batch only if
its sequence follows the last one, answers one that it has as a success, and refuses the rest. From that follow the
rules, which keep the records of a partition in order, each once:

- A stamp (id, epoch, sequence) is given when a batch is first sent and stays: a batch whose fate is unknown is sent
  again as it was. Batches sent again go one by one, in order; new ones only behind them.
- Nothing is sent behind the first batch under a stamp's epoch until that one is acknowledged: a broker that does not
  know a producer takes any sequence from it, so the second could be written without the first. The same holds for the
  first batch after a pause, in which the broker may have forgotten the producer (``FORGOTTEN_AFTER``).
- A batch is *doubtful* once an attempt was not answered, or answered with an error that a leader may give behind the
  append. A doubtful batch never gets another stamp, since it would be written again under it. If it is refused for
  good, or its sequence or epoch is refused although everything before it is settled, it fails with that error: the
  broker has forgotten it, or never had it, and nothing tells which.
- A batch that is not doubtful and is refused in one of these ways is not written. What is behind it then has no place
  under this epoch. Once those before it are settled and nothing is under way any more, the partition goes on under
  the next epoch, from sequence 0. What waits gets new stamps, but for what is doubtful: that fails.
- The halves of a batch that is refused as too large share its numbers, so that those behind it keep theirs. A doubtful
  one is not halved.
- A batch that is given up while its fate is unknown leaves a gap that may be none. No new batch goes out then until
  those that were sent before are settled. If the last of them was acknowledged, nothing is missing; else the epoch is
  raised too.

The epoch is raised for the partition alone: brokers compare it partition by partition. A transaction has one epoch for
all and is aborted instead. ``Numbering`` is the numbers of one epoch, and all that
``idempotent_batch_producer`` needs of this; ``PartitionSequences`` is the whole.

Kafka's Java client (3.9, ``TransactionManager.canRetry``) raises the epoch for every batch out of sequence, numbers all
that is in flight anew, and so writes a batch again whose answer was lost. librdkafka stops for good where the first in
flight is refused, with the status "possibly persisted". Here one batch fails and the producer goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, auto
from typing import NamedTuple

from sparklog.client.producer.batch import ProducerBatch, Stamp
from sparklog.client.producer.config import MOST_IN_FLIGHT
from sparklog.client.producer.refusal import Refusal, leaves_doubt, refusal_of
from sparklog.errors import ErrorCode
from sparklog.record import layout
from sparklog.record.batch import increment_sequence

LAST_EPOCH = (1 << 15) - 1
FORGOTTEN_AFTER = 1.0
"""Seconds after which a leader that was sent nothing may know the producer no more: its ``producer.id.expiration.ms``,
which no client is told, may have passed (a day, unless it is set), or the topic may have been made again. A pause this
long costs one wait for an answer."""


class ProducerId(NamedTuple):
    """A producer's identity: its id and the epoch under which it was given."""

    producer_id: int
    epoch: int


_NOBODY = ProducerId(layout.NO_PRODUCER_ID, layout.NO_PRODUCER_EPOCH)


class Verdict(Enum):
    """What becomes of a batch that was answered."""

    DONE = auto()
    RETRY = auto()
    SPLIT = auto()
    FAIL = auto()
    GAP = auto()
    """A transaction's batch cannot be written in order any more."""
    FENCED = auto()


class Numbering:
    """The numbers of one partition's batches under one producer id and epoch, from 0 on."""

    __slots__ = ("_acknowledged_to", "_next", "is_proven", "producer")

    def __init__(self, producer: ProducerId) -> None:
        self.producer = producer
        self.is_proven = False
        """A batch was acknowledged: the leader knows the producer, and takes none but the next number from it."""
        self._next = 0
        self._acknowledged_to = 0

    def stamp(self, count: int) -> Stamp:
        """What the next batch, of so many records, is sent under."""
        stamp = Stamp(*self.producer, self._next)
        self._next = increment_sequence(self._next, count)
        return stamp

    def acknowledge(self, sequence: int, count: int) -> None:
        """The batch of this number is written, and with it all before it."""
        self.is_proven = True
        self._acknowledged_to = increment_sequence(sequence, count)

    @property
    def is_settled(self) -> bool:
        """Whether the last number that was given is acknowledged."""
        return self._acknowledged_to == self._next


class PartitionSequences:
    """The numbers of one partition. ``on_wire`` and ``waiting`` are its batches under way and those to be sent."""

    def __init__(self) -> None:
        self._given: ProducerId | None = None
        self._numbering = Numbering(_NOBODY)
        self._gap_at: float | None = None
        self._has_doubt = False
        self._heard_of = 0.0
        """When the newest batch was begun that was acknowledged; seconds, as of ``ProducerBatch.created``."""

    def is_exhausted(self, producer: ProducerId | None) -> bool:
        """There is no higher epoch: ``producer`` must get another id before this partition can go on."""
        is_last = self._numbering.producer.epoch >= LAST_EPOCH
        return self._gap_at is not None and is_last and producer == self._given

    @property
    def is_broken(self) -> bool:
        """It cannot go on under this epoch, or that is in doubt."""
        return self._gap_at is not None or self._has_doubt

    def needs_new_epoch(self, producer: ProducerId | None) -> bool:
        """It is broken under the epoch of ``producer``: under another it starts over with the next batch."""
        return self.is_broken and producer == self._given

    def admits(
        self, producer: ProducerId, waiting: Sequence[ProducerBatch], on_wire: Collection[ProducerBatch]
    ) -> bool:
        """Whether the first of ``waiting`` may be sent now, as ``stamp`` will have it."""
        head = waiting[0]
        if head.stamp is not None and (self._gap_at is None or head.order < self._gap_at):
            # Five batches have numbers at most, and of those one waits here: that no more than four are on the wire
            # behind it follows from their order. The count is a second guard.
            return len(on_wire) < MOST_IN_FLIGHT and all(each.order > head.order for each in on_wire)
        is_full = not self._is_remembered(head) or len(on_wire) >= MOST_IN_FLIGHT
        if on_wire and (self._gap_at is not None or is_full):
            return False
        if self._has_doubt and not on_wire:
            self._has_doubt = False
            if not self._numbering.is_settled:
                self._gap_at = head.order
        if self._gap_at is not None:
            return self._start_over(producer, waiting)
        if producer != self._given:
            return not on_wire and self._start_over(producer, waiting)
        return not self._has_doubt

    def _is_remembered(self, head: ProducerBatch) -> bool:
        """Whether the leader takes none but the next number, for it knows the producer still."""
        return self._numbering.is_proven and head.created - self._heard_of <= FORGOTTEN_AFTER

    def strands(self, batch: ProducerBatch) -> bool:
        """Whether ``batch``, which waits, can neither be sent as it is nor be numbered anew."""
        return batch.is_doubtful and self._gap_at is not None and batch.order >= self._gap_at

    def _start_over(self, producer: ProducerId, waiting: Sequence[ProducerBatch]) -> bool:
        if self.is_exhausted(producer) or any(batch.is_doubtful for batch in waiting):
            return False
        if producer != self._given:
            self._given = producer
        else:
            producer = ProducerId(producer.producer_id, self._numbering.producer.epoch + 1)
        self._numbering = Numbering(producer)
        self._has_doubt = False
        self._gap_at = None
        for batch in waiting:
            batch.stamp = None
        return True

    def stamp(self, batch: ProducerBatch) -> None:
        """Number a batch that ``admits`` let through, unless it has its number."""
        if batch.stamp is None:
            batch.stamp = self._numbering.stamp(batch.count)

    def judge(
        self, code: ErrorCode, batch: ProducerBatch, others: Collection[ProducerBatch], *, is_transactional: bool
    ) -> Verdict:
        """What an answer means for ``batch``; ``others`` are those of its partition that are not settled."""
        refusal = refusal_of(code, is_transactional=is_transactional)
        if refusal is None:
            assert batch.stamp is not None
            self._numbering.acknowledge(batch.stamp.sequence, batch.count)
            self._heard_of = batch.created
            return Verdict.DONE
        if refusal is Refusal.FENCED:
            return Verdict.FENCED
        if refusal is Refusal.OUT_OF_SEQUENCE:
            return self._out_of_sequence(batch, others, is_transactional)
        if refusal is Refusal.PASSING:
            batch.is_doubtful |= leaves_doubt(code)
            return Verdict.RETRY
        if batch.is_doubtful:
            self.give_up(batch)
            return Verdict.FAIL
        if refusal is Refusal.TOO_LARGE and batch.count > 1:
            return Verdict.SPLIT
        self._mark_gap(batch)
        return Verdict.FAIL

    def _out_of_sequence(
        self, batch: ProducerBatch, others: Collection[ProducerBatch], is_transactional: bool
    ) -> Verdict:
        if any(each.stamp is not None and each.order < batch.order for each in others):
            return Verdict.RETRY  # behind one that is to come again
        if batch.is_doubtful and not is_transactional:
            self.give_up(batch)
            return Verdict.FAIL
        self._mark_gap(batch)
        return Verdict.GAP if is_transactional else Verdict.RETRY

    def _mark_gap(self, batch: ProducerBatch) -> None:
        """Neither ``batch`` nor any behind it is written, or will be under this epoch."""
        self._gap_at = batch.order if self._gap_at is None else min(self._gap_at, batch.order)

    def give_up(self, batch: ProducerBatch) -> None:
        """``batch`` will not be sent again, whatever became of it."""
        if batch.stamp is not None:
            self._has_doubt = True


def judge_unnumbered(code: ErrorCode, batch: ProducerBatch) -> Verdict:
    """What an answer means for a batch without a stamp."""
    refusal = refusal_of(code, is_transactional=False)
    if refusal is None:
        return Verdict.DONE
    if refusal is Refusal.TOO_LARGE and batch.count > 1:
        return Verdict.SPLIT
    return Verdict.RETRY if refusal is Refusal.PASSING else Verdict.FAIL
