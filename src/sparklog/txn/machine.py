"""What becomes of a request, decided on values: no log, no clock, no waiting.

Every decision is an error to answer, or a record that must be in the log before the answer is given, or both: an answer
other than NONE beside a record tells the asker to come again. The caller hands the record to ``HeldTransaction.begin``
before it writes it, and tells ``written`` or ``failed`` afterwards; between the two every other change is refused with
CONCURRENT_TRANSACTIONS. Source: Kafka 3.9, ``TransactionCoordinator``, ``TransactionMetadata``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition
from sparklog.txn.state import (
    AT_REST,
    COMPLETION,
    LAST_EPOCH,
    NO_EPOCH,
    NO_TIMESTAMP,
    HeldTransaction,
    Producer,
    Transaction,
    TransactionState,
)

_S = TransactionState
_PREPARED = frozenset(COMPLETION)


class TransactionSettings(NamedTuple):
    """Both in milliseconds."""

    max_timeout_ms: int
    expiration_ms: int


class InitRequest(NamedTuple):
    """``expected``: who the asker believes to be, if it continues after an error."""

    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None


class Decision(NamedTuple):
    """``needs_producer_id``: ask again with a fresh producer id, nothing is decided yet."""

    error: ErrorCode = ErrorCode.NONE
    record: Transaction | None = None
    needs_producer_id: bool = False


_CONCURRENT = Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
_FENCED = Decision(ErrorCode.PRODUCER_FENCED)

_ENDED: dict[tuple[TransactionState, bool], ErrorCode] = {
    (_S.PREPARE_COMMIT, True): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_S.PREPARE_ABORT, False): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_S.COMPLETE_COMMIT, True): ErrorCode.NONE,
    (_S.COMPLETE_ABORT, False): ErrorCode.NONE,
}
"""What EndTxn (committing or not) is told where no transaction is open; INVALID_TXN_STATE where nothing is listed."""


class TransactionMachine:
    """Stateless but for its settings."""

    def __init__(self, settings: TransactionSettings) -> None:
        self._settings = settings

    def init_error(self, request: InitRequest) -> ErrorCode:
        """What is wrong with the request itself."""
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        if not 0 < request.timeout_ms <= self._settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return ErrorCode.NONE

    def init(self, held: HeldTransaction | None, request: InitRequest, fresh_id: int | None, now_ms: int) -> Decision:
        """A producer begins: it gets an epoch above all before it; what a predecessor left open is aborted first."""
        if held is None:
            if fresh_id is None:
                return Decision(needs_producer_id=True)
            first = Transaction(request.transactional_id, fresh_id, 0, request.timeout_ms, update_ms=now_ms)
            return Decision(record=first)
        current = held.current
        if held.pending is not None:
            return _CONCURRENT
        if request.expected is not None and not _may_be(current, request.expected):
            return _FENCED
        if current.state in _PREPARED:
            return _CONCURRENT
        if current.state is _S.ONGOING:
            return Decision(ErrorCode.CONCURRENT_TRANSACTIONS, self._fence(held, now_ms))
        expected_epoch = None if request.expected is None else request.expected.epoch
        if current.is_epoch_exhausted and expected_epoch in (None, current.epoch):
            if fresh_id is None:
                return Decision(needs_producer_id=True)
            last = NO_EPOCH if expected_epoch is None else current.epoch
            return Decision(record=_begun(current, Producer(fresh_id, 0), last, request.timeout_ms, now_ms))
        return _next_epoch(current, request, now_ms)

    def add_partitions(
        self, held: HeldTransaction | None, producer: Producer, partitions: Collection[TopicPartition], now_ms: int
    ) -> Decision:
        """Partitions that the producer is about to write to; the first ones open the transaction."""
        if held is None or held.current.producer_id != producer.producer_id:
            return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        current = held.current
        if current.epoch != producer.epoch:
            return _FENCED
        if held.pending is not None or current.state in _PREPARED:
            return _CONCURRENT
        if current.state is _S.ONGOING and current.partitions.issuperset(partitions):
            return Decision()
        start_ms = current.start_ms if current.state is _S.ONGOING else now_ms
        added = current.partitions.union(partitions)
        return Decision(
            record=current._replace(state=_S.ONGOING, partitions=added, start_ms=start_ms, update_ms=now_ms)
        )

    def end(self, held: HeldTransaction | None, producer: Producer, *, commit: bool, now_ms: int) -> Decision:
        """The producer ends its transaction. Ending it again the same way is no error."""
        if held is None or held.current.producer_id != producer.producer_id:
            return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        current = held.current
        if current.epoch != producer.epoch:
            return _FENCED
        if held.pending is not None:
            return _CONCURRENT
        if current.state is not _S.ONGOING:
            return Decision(_ENDED.get((current.state, commit), ErrorCode.INVALID_TXN_STATE))
        state = _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT
        return Decision(record=current._replace(state=state, update_ms=now_ms))

    def time_out(self, held: HeldTransaction, now_ms: int) -> Transaction | None:
        """The abort of a transaction that has been open longer than its producer allowed; None if it is not due."""
        current = held.current
        if held.pending is not None or current.state is not _S.ONGOING:
            return None
        return self._fence(held, now_ms) if current.start_ms + current.timeout_ms < now_ms else None

    def _fence(self, held: HeldTransaction, now_ms: int) -> Transaction:
        """The abort of what is open, under an epoch that its producer does not have."""
        current = held.current
        epoch = current.epoch if held.fence_failed else current.epoch + 1
        if epoch > LAST_EPOCH:
            raise AssertionError(f"{current.transactional_id}: epoch {current.epoch} was given to a producer")
        return current._replace(state=_S.PREPARE_ABORT, epoch=epoch, last_epoch=NO_EPOCH, update_ms=now_ms)

    def complete(self, prepared: Transaction, now_ms: int) -> Transaction:
        """What is to be written when every partition of a prepared transaction has its marker."""
        return prepared._replace(state=COMPLETION[prepared.state], partitions=frozenset(), update_ms=now_ms)

    def expire(self, held: HeldTransaction, now_ms: int) -> Transaction | None:
        """The death of an id that nobody has used for long, to be written as a tombstone; None if it is not due."""
        current = held.current
        if held.pending is not None or current.state not in AT_REST:
            return None
        if current.update_ms > now_ms - self._settings.expiration_ms:
            return None
        return current._replace(state=_S.DEAD, partitions=frozenset())

    def verify(self, held: HeldTransaction | None, producer: Producer, tp: TopicPartition) -> ErrorCode:
        """Whether the producer may begin to write to ``tp``: NONE if its open transaction names it."""
        if held is None or held.current.producer_id != producer.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        current = held.current
        if current.epoch != producer.epoch:
            return ErrorCode.PRODUCER_FENCED
        ending = held.pending is not None and held.pending.state is not _S.ONGOING
        if ending or current.state in _PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        is_named = current.state is _S.ONGOING and tp in current.partitions
        return ErrorCode.NONE if is_named else ErrorCode.INVALID_TXN_STATE


def _may_be(current: Transaction, expected: Producer) -> bool:
    """Whether the asker can be the newest producer of this id, or the one before that did not hear of its new id."""
    if current.producer_id == expected.producer_id:
        return True
    return current.last_producer_id == expected.producer_id and expected.epoch >= LAST_EPOCH - 1


def _next_epoch(current: Transaction, request: InitRequest, now_ms: int) -> Decision:
    expected = request.expected
    last = NO_EPOCH if expected is None else current.epoch
    if expected is None or expected.epoch == current.epoch:
        following = Producer(current.producer_id, current.epoch + 1)
        return Decision(record=_begun(current, following, last, request.timeout_ms, now_ms))
    if expected.epoch == current.last_epoch:  # it asks again, since it did not hear the answer
        again = _begun(current, current.producer, current.last_epoch, request.timeout_ms, now_ms)
        return Decision(record=again._replace(last_producer_id=current.last_producer_id))
    return _FENCED


def _begun(current: Transaction, producer: Producer, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
    return Transaction(
        current.transactional_id,
        producer.producer_id,
        producer.epoch,
        timeout_ms,
        start_ms=NO_TIMESTAMP,
        update_ms=now_ms,
        last_producer_id=current.producer_id,
        last_epoch=last_epoch,
    )
