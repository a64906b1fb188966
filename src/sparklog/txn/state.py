"""What a coordinator knows of one transactional id. Values; what to do when is ``machine``'s business.

States and their numbers in the log are Kafka 3.9's (``TransactionState``)::

    EMPTY ──partitions are added──▶ ONGOING ──EndTxn──▶ PREPARE_COMMIT ──every marker is written──▶ COMPLETE_COMMIT
      ▲                              ▲   └──EndTxn, timeout, a new producer──▶ PREPARE_ABORT ──▶ COMPLETE_ABORT
      └──a new producer──────────────┴──the next transaction───────────────────────────────────────────┘

EMPTY and both COMPLETE states become DEAD when nothing was heard of the id for long enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from sparklog.structs import TopicPartition

NO_ID = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1
LAST_EPOCH = (1 << 15) - 1
"""Only ever that of a producer that was fenced: a producer itself is given ``LAST_EPOCH - 1`` at most."""


class TransactionState(IntEnum):
    """The value is the state's number in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def label(self) -> str:
        """The name that DescribeTransactions and ListTransactions show."""
        return self.name.title().replace("_", "")


_S = TransactionState
_COMPLETE = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
AT_REST = _COMPLETE | {_S.EMPTY}
"""No transaction is open, and none is being ended."""

PREDECESSORS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: AT_REST,
    _S.ONGOING: AT_REST | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: frozenset({_S.ONGOING}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: AT_REST,
}

COMPLETION = {_S.PREPARE_COMMIT: _S.COMPLETE_COMMIT, _S.PREPARE_ABORT: _S.COMPLETE_ABORT}
"""What a prepared transaction becomes, and nothing else."""


class Producer(NamedTuple):
    """Who speaks: a producer id and the epoch under which it was given."""

    producer_id: int
    epoch: int


class Transaction(NamedTuple):
    """One transactional id as one record of the log describes it. Times are the wall's, in milliseconds.

    ``last_producer_id`` and ``last_epoch`` are not in the log: they recognise a producer that asks for its next epoch
    again because it did not hear the answer.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    update_ms: int = NO_TIMESTAMP
    last_producer_id: int = NO_ID
    last_epoch: int = NO_EPOCH

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.epoch)

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether a producer can be given no further epoch under this producer id."""
        return self.epoch >= LAST_EPOCH - 1


@dataclass(slots=True, eq=False)
class HeldTransaction:
    """A transactional id in memory: ``current`` is in the log, ``pending`` is being written to it.

    ``fence_failed``: ``current`` has an epoch that was raised for an abort whose record could not be written; nobody
    was told that epoch, so it need not be raised again.
    """

    current: Transaction
    pending: Transaction | None = None
    fence_failed: bool = False

    def begin(self, transaction: Transaction) -> None:
        """``transaction`` is on its way to the log."""
        state = transaction.state
        if self.pending is not None or self.current.state not in PREDECESSORS[state]:
            raise AssertionError(
                f"{transaction.transactional_id}: {self.current.state.label} is not to be {state.label}"
            )
        self.pending = transaction

    def written(self) -> Transaction:
        """It is in the log."""
        if self.pending is None:
            raise AssertionError(f"{self.current.transactional_id}: nothing was being written")
        self.current, self.pending, self.fence_failed = self.pending, None, False
        return self.current

    def failed(self) -> None:
        """It may not be in the log; a raised epoch counts nevertheless, so that the older producer stays fenced."""
        pending, self.pending = self.pending, None
        if pending is not None and pending.state is _S.PREPARE_ABORT and pending.epoch != self.current.epoch:
            self.current = self.current._replace(epoch=pending.epoch, last_epoch=NO_EPOCH)
            self.fence_failed = True
