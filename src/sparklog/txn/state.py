"""What a coordinator knows of one transactional id. Values; what to do when is ``machine``'s business.

States and their numbers in the log are Kafka 3.9's (``TransactionState``)::

    EMPTY ──partitions are added──▶ ONGOING ──EndTxn──▶ PREPARE_COMMIT ──every marker is written──▶ COMPLETE_COMMIT
      ▲                              ▲   └──EndTxn, timeout, a new producer──▶ PREPARE_ABORT ──▶ COMPLETE_ABORT
      └──a new producer──────────────┴──the next transaction───────────────────────────────────────────┘

EMPTY and both COMPLETE states become DEAD when nothing was heard of the id for long enough. A client of the second
version may abort in them too, since it does not know whether a partition was added (``docs/adr/0010``).
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
NO_TIMEOUT_MS = (1 << 31) - 1
"""The timeout of a transaction that takes part in a two-phase commit: it waits for a decision made elsewhere."""


class ClientVersion(IntEnum):
    """How a client ends transactions (Kafka's feature ``transaction.version``)."""

    CLASSIC = 0
    """It names its partitions first, and keeps its epoch from one transaction to the next."""
    EPOCH_A_TRANSACTION = 2
    """The partition's leader names them, and every end raises the epoch (KIP-890)."""


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
    _S.PREPARE_ABORT: AT_REST | {_S.ONGOING},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: AT_REST,
}

COMPLETION = {_S.PREPARE_COMMIT: _S.COMPLETE_COMMIT, _S.PREPARE_ABORT: _S.COMPLETE_ABORT}
"""What a prepared transaction becomes, and nothing else."""


class Producer(NamedTuple):
    """A producer's identity: its id and the epoch under which it was given."""

    producer_id: int
    epoch: int


class Transaction(NamedTuple):
    """One transactional id as one record of the log describes it. Times are the wall's, in milliseconds.

    They must mean something to the next coordinator, on another machine. So a clock that is set back keeps transactions
    open beyond their timeout, and one that is set ahead ends them early, as in Kafka.

    ``producer_id`` and ``epoch`` are the transaction's: its batches bear them, or, once it is prepared, its markers.
    ``next_producer_id`` and ``next_epoch`` say whom the client is told to be where that is another: the successor that
    holds a transaction it did not begin, or the producer after this transaction.
    ``last_producer_id`` and ``last_epoch`` recognise a client that asks again because it did not hear the answer.
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
    next_producer_id: int = NO_ID
    next_epoch: int = NO_EPOCH
    client_version: ClientVersion = ClientVersion.CLASSIC

    @property
    def producer(self) -> Producer:
        """Whose batches and markers the transaction's are."""
        return Producer(self.producer_id, self.epoch)

    @property
    def client(self) -> Producer:
        """The producer id and epoch that may speak for the id now."""
        return self.producer if self.next_producer_id == NO_ID else Producer(self.next_producer_id, self.next_epoch)

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the client can be given no further epoch under its producer id."""
        return self.client.epoch >= LAST_EPOCH - 1

    @property
    def is_kept(self) -> bool:
        """Whether a producer holds a transaction that its predecessor began: it can only end it."""
        return self.state is _S.ONGOING and self.next_producer_id != NO_ID

    @property
    def is_two_phase(self) -> bool:
        """Whether the transaction never times out."""
        return self.timeout_ms == NO_TIMEOUT_MS

    def was_ended_by(self, producer: Producer) -> bool:
        """Whether ``producer`` was the client whose end, or whose timeout, gave the client of now its epoch."""
        last = Producer(self.last_producer_id, self.last_epoch)
        is_known = self.client_version is ClientVersion.EPOCH_A_TRANSACTION and self.last_epoch != NO_EPOCH
        return is_known and producer == last and (self.state in COMPLETION or self.state in _COMPLETE)

    def told(self, client: Producer) -> Transaction:
        """The same with ``client`` as the one that may speak."""
        if client == self.producer:
            return self._replace(next_producer_id=NO_ID, next_epoch=NO_EPOCH)
        return self._replace(next_producer_id=client.producer_id, next_epoch=client.epoch)


@dataclass(slots=True, eq=False)
class HeldTransaction:
    """A transactional id in memory: ``current`` is in the log, ``pending`` is being written to it.

    ``fence_failed``: the client of ``current`` was raised for an abort whose record could not be written; no client was
    told of it, so it need not be raised again. The transaction itself is still whose it was.
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
        """It may not be in the log; what fences a producer counts nevertheless."""
        pending, self.pending = self.pending, None
        if pending is not None and _fences(self.current, pending):
            self.current = self.current._replace(last_epoch=NO_EPOCH).told(pending.client)
            self.fence_failed = True


def _fences(current: Transaction, pending: Transaction) -> bool:
    """Whether ``pending`` aborts for a successor; a client that ends its own transaction is remembered in it."""
    return pending.state is _S.PREPARE_ABORT and pending.last_epoch == NO_EPOCH and pending.producer != current.producer
