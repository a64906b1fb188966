"""Idempotence: which sequence numbers the batches of one partition carry, and what a refusal means for them.

A broker remembers, for each producer id and partition, the epoch and the last five batches. It takes a batch only if
its sequence follows the last one, answers one that it has as a success, and refuses the rest. From that follow the
rules, which keep the records of a partition in order, each once:

- A stamp (id, epoch, sequence) is given when a batch is first sent and stays: a batch whose fate is unknown is sent
  again as it was. Batches sent again go one by one, in order; new ones only behind them.
- Nothing is sent behind the first batch under a stamp's epoch until that one is acknowledged: a broker that does not
  know a producer takes any sequence from it, so the second could be written without the first.
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
all and is aborted instead.

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
from sparklog.errors import ErrorCode
from sparklog.record.batch import increment_sequence

LAST_EPOCH = (1 << 15) - 1
_E = ErrorCode
_OUT_OF_SEQUENCE = frozenset({_E.OUT_OF_ORDER_SEQUENCE_NUMBER, _E.UNKNOWN_PRODUCER_ID})
_NOT_WRITTEN = frozenset(
    {
        _E.CORRUPT_MESSAGE,
        _E.NOT_ENOUGH_REPLICAS,
        _E.FENCED_LEADER_EPOCH,
        _E.UNKNOWN_LEADER_EPOCH,
        _E.CONCURRENT_TRANSACTIONS,
        _E.COORDINATOR_LOAD_IN_PROGRESS,
        _E.COORDINATOR_NOT_AVAILABLE,
        _E.NOT_COORDINATOR,
        _E.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""The retriable errors that a leader gives before it appends and never behind it. NOT_LEADER_OR_FOLLOWER is none: with
``acks=all`` it is the answer also where the leadership was lost while the batch waited for its replicas."""
_TOO_LARGE = frozenset({_E.MESSAGE_TOO_LARGE, _E.RECORD_LIST_TOO_LARGE})


class ProducerId(NamedTuple):
    """Who sends: an id and the epoch under which it was given."""

    producer_id: int
    epoch: int


class Verdict(Enum):
    """What becomes of a batch that was answered."""

    DONE = auto()
    RETRY = auto()
    SPLIT = auto()
    FAIL = auto()
    GAP = auto()
    """A transaction's batch cannot be written in order any more."""
    FENCED = auto()


class PartitionSequences:
    """The numbers of one partition. ``on_wire`` and ``waiting`` are its batches under way and those to be sent."""

    def __init__(self) -> None:
        self._given: ProducerId | None = None
        self._epoch = -1
        self._next = 0
        self._is_proven = False
        self._gap_at: float | None = None
        self._has_doubt = False
        self._acknowledged_to = 0

    def is_exhausted(self, producer: ProducerId | None) -> bool:
        """There is no higher epoch: ``producer`` must get another id before this partition can go on."""
        return self._gap_at is not None and self._epoch >= LAST_EPOCH and producer == self._given

    @property
    def is_broken(self) -> bool:
        """It cannot go on under this epoch, or that is in doubt."""
        return self._gap_at is not None or self._has_doubt

    def admits(
        self, producer: ProducerId, waiting: Sequence[ProducerBatch], on_wire: Collection[ProducerBatch]
    ) -> bool:
        """Whether the first of ``waiting`` may be sent now, as ``stamp`` will have it."""
        head = waiting[0]
        if head.stamp is not None and (self._gap_at is None or head.order < self._gap_at):
            return len(on_wire) < MOST_IN_FLIGHT and all(each.order > head.order for each in on_wire)
        if on_wire and (self._gap_at is not None or not self._is_proven or len(on_wire) >= MOST_IN_FLIGHT):
            return False
        if self._has_doubt and not on_wire:
            self._has_doubt = False
            if self._acknowledged_to != self._next:
                self._gap_at = head.order
        if self._gap_at is not None:
            return self._start_over(producer, waiting)
        if producer != self._given:
            return not on_wire and self._start_over(producer, waiting)
        return not self._has_doubt

    def strands(self, batch: ProducerBatch) -> bool:
        """Whether ``batch``, which waits, can neither be sent as it is nor be numbered anew."""
        return batch.is_doubtful and self._gap_at is not None and batch.order >= self._gap_at

    def _start_over(self, producer: ProducerId, waiting: Sequence[ProducerBatch]) -> bool:
        if self.is_exhausted(producer) or any(batch.is_doubtful for batch in waiting):
            return False
        if producer != self._given:
            self._given, self._epoch = producer, producer.epoch
        else:
            self._epoch += 1
        self._next = self._acknowledged_to = 0
        self._is_proven = self._has_doubt = False
        self._gap_at = None
        for batch in waiting:
            batch.stamp = None
        return True

    def stamp(self, batch: ProducerBatch) -> None:
        """Number a batch that ``admits`` let through, unless it has its number."""
        if batch.stamp is None:
            assert self._given is not None
            batch.stamp = Stamp(self._given.producer_id, self._epoch, self._next)
            self._next = increment_sequence(self._next, batch.count)

    def judge(
        self, code: ErrorCode, batch: ProducerBatch, others: Collection[ProducerBatch], *, is_transactional: bool
    ) -> Verdict:
        """What an answer means for ``batch``; ``others`` are those of its partition that are not settled."""
        if code in (_E.NONE, _E.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledge(batch)
            return Verdict.DONE
        if code is _E.PRODUCER_FENCED or (is_transactional and code is _E.INVALID_PRODUCER_EPOCH):
            return Verdict.FENCED
        if code in _OUT_OF_SEQUENCE or code is _E.INVALID_PRODUCER_EPOCH:
            if any(each.stamp is not None and each.order < batch.order for each in others):
                return Verdict.RETRY  # behind one that is to come again
            if batch.is_doubtful and not is_transactional:
                self.give_up(batch)
                return Verdict.FAIL
            self._mark_gap(batch)
            return Verdict.GAP if is_transactional else Verdict.RETRY
        if code.retriable:
            batch.is_doubtful |= code not in _NOT_WRITTEN
            return Verdict.RETRY
        if batch.is_doubtful:
            self.give_up(batch)
            return Verdict.FAIL
        verdict = judge_unnumbered(code, batch)
        if verdict is Verdict.FAIL:
            self._mark_gap(batch)
        return verdict

    def _mark_gap(self, batch: ProducerBatch) -> None:
        """Neither ``batch`` nor any behind it is written, or will be under this epoch."""
        self._gap_at = batch.order if self._gap_at is None else min(self._gap_at, batch.order)

    def _acknowledge(self, batch: ProducerBatch) -> None:
        assert batch.stamp is not None
        self._is_proven = True
        self._acknowledged_to = increment_sequence(batch.stamp.sequence, batch.count)

    def give_up(self, batch: ProducerBatch) -> None:
        """``batch`` will not be sent again, whatever became of it."""
        if batch.stamp is not None:
            self._has_doubt = True


def judge_unnumbered(code: ErrorCode, batch: ProducerBatch) -> Verdict:
    """What an answer means for a batch without a stamp."""
    if code is _E.NONE:
        return Verdict.DONE
    if code in _TOO_LARGE and batch.count > 1:
        return Verdict.SPLIT
    return Verdict.RETRY if code.retriable else Verdict.FAIL
