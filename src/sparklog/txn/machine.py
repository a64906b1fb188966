"""What becomes of a request, decided on values: no log, no clock, no waiting.

Every decision is an error to answer, or a record that must be in the log before the answer is given, or both: an answer
other than NONE beside a record tells the asker to come again. The caller hands the record to ``HeldTransaction.begin``
before it writes it, and tells ``written`` or ``failed`` afterwards; between the two every other change is refused with
CONCURRENT_TRANSACTIONS. Source: Kafka 3.9 and 4.1, ``TransactionCoordinator``, ``TransactionMetadata``; for what a
successor keeps KIP-939. The invariants: ``docs/adr/0007``, ``docs/adr/0010``.
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
    NO_ID,
    NO_TIMEOUT_MS,
    NO_TIMESTAMP,
    ClientVersion,
    HeldTransaction,
    Producer,
    Transaction,
    TransactionState,
)

_S = TransactionState
_PREPARED = frozenset(COMPLETION)


class TransactionSettings(NamedTuple):
    """``allows_two_phase``: whether a transaction may be open for as long as its client likes."""

    max_timeout_ms: int
    expiration_ms: int
    allows_two_phase: bool = False


class InitRequest(NamedTuple):
    """``expected``: the producer id and epoch that the client has, if it continues after an error. ``two_phase``: its
    transactions are to wait for a decision made elsewhere. ``keeps``: it wants to end what is open, not to have it
    aborted.
    """

    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None
    two_phase: bool = False
    keeps: bool = False

    @property
    def resolved_timeout_ms(self) -> int:
        return NO_TIMEOUT_MS if self.two_phase else self.timeout_ms


class EndRequest(NamedTuple):
    """A client ends its transaction."""

    producer: Producer
    commit: bool
    version: ClientVersion = ClientVersion.CLASSIC


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
"""What an EndTxn (committing or not) of the first version is told where no transaction is open, and one of the second
that comes again; INVALID_TXN_STATE where nothing is listed.
"""


class TransactionMachine:
    """Stateless but for its settings."""

    def __init__(self, settings: TransactionSettings) -> None:
        self._settings = settings

    def init_error(self, request: InitRequest) -> ErrorCode:
        """What is wrong with the request itself."""
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        if request.two_phase:
            allowed = self._settings.allows_two_phase
            return ErrorCode.NONE if allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not 0 < request.timeout_ms <= self._settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return ErrorCode.NONE

    def init(self, held: HeldTransaction | None, request: InitRequest, fresh_id: int | None, now_ms: int) -> Decision:
        """A producer begins: it gets an epoch above all before it; what a predecessor left open is aborted first,
        or becomes its own to end.
        """
        if held is None:
            if fresh_id is None:
                return Decision(needs_producer_id=True)
            first = Transaction(request.transactional_id, fresh_id, 0, request.resolved_timeout_ms, update_ms=now_ms)
            return Decision(record=first)
        current = held.current
        if held.pending is not None:
            return _CONCURRENT
        if request.expected is not None and not _may_be(current, request.expected):
            return _FENCED
        if current.state in _PREPARED:
            return _CONCURRENT
        if current.state is _S.ONGOING:
            if request.keeps:
                return _kept(current, request, fresh_id, now_ms)
            return Decision(ErrorCode.CONCURRENT_TRANSACTIONS, _aborted_by_force(held, now_ms, goes_on=False))
        expected_epoch = None if request.expected is None else request.expected.epoch
        if current.is_epoch_exhausted and expected_epoch in (None, current.epoch):
            if fresh_id is None:
                return Decision(needs_producer_id=True)
            last = NO_EPOCH if expected_epoch is None else current.epoch
            return Decision(record=_begun(current, Producer(fresh_id, 0), last, request.resolved_timeout_ms, now_ms))
        return _next_epoch(current, request, now_ms)

    def add_partitions(
        self,
        held: HeldTransaction | None,
        producer: Producer,
        partitions: Collection[TopicPartition],
        now_ms: int,
        version: ClientVersion = ClientVersion.CLASSIC,
    ) -> Decision:
        """Partitions that the producer is about to write to; the first ones open the transaction."""
        error = _stranger(held, producer)
        if held is None or error is not ErrorCode.NONE:
            return Decision(error)
        current = held.current
        if held.pending is not None or current.state in _PREPARED:
            return _CONCURRENT
        if current.is_kept:
            return Decision(ErrorCode.INVALID_TXN_STATE)
        if current.state is _S.ONGOING and current.partitions.issuperset(partitions):
            return Decision()
        start_ms = current.start_ms if current.state is _S.ONGOING else now_ms
        added = current.partitions.union(partitions)
        return Decision(
            record=current._replace(
                state=_S.ONGOING, partitions=added, start_ms=start_ms, update_ms=now_ms, client_version=version
            )
        )

    def end(
        self, held: HeldTransaction | None, request: EndRequest, fresh_id: int | None = None, *, now_ms: int
    ) -> Decision:
        """The producer ends its transaction. Ending it again the same way is no error."""
        again = held is not None and _comes_again(held.current, request)
        error = ErrorCode.NONE if again else _stranger(held, request.producer)
        if held is None or error is not ErrorCode.NONE:
            return Decision(error)
        current = held.current
        if held.pending is not None:
            return _CONCURRENT
        classic = request.version is ClientVersion.CLASSIC
        if current.state in _PREPARED and not (classic or again):
            return _CONCURRENT  # it was told this epoch when it ended the one before, whose markers are on their way
        is_open = current.state is _S.ONGOING
        # Without an AddPartitionsToTxn of its own a client cannot tell whether there is anything to abort.
        if is_open or not (classic or again or request.commit):
            return _prepared(current, request, fresh_id, now_ms)
        answers = _ENDED if classic or again else {}
        return Decision(answers.get((current.state, request.commit), ErrorCode.INVALID_TXN_STATE))

    def time_out(self, held: HeldTransaction, now_ms: int) -> Transaction | None:
        """The abort of a transaction that has been open longer than its producer allowed; None if it is not due."""
        current = held.current
        if held.pending is not None or current.state is not _S.ONGOING or current.is_two_phase:
            return None
        if current.start_ms + current.timeout_ms >= now_ms:
            return None
        return _aborted_by_force(held, now_ms, goes_on=current.client_version is not ClientVersion.CLASSIC)

    def complete(self, prepared: Transaction, now_ms: int) -> Transaction:
        """What is to be written when every partition of a prepared transaction has its marker."""
        return prepared._replace(
            state=COMPLETION[prepared.state],
            partitions=frozenset(),
            update_ms=now_ms,
            producer_id=prepared.client.producer_id,
            epoch=prepared.client.epoch,
            next_producer_id=NO_ID,
            next_epoch=NO_EPOCH,
        )

    def expire(self, held: HeldTransaction, now_ms: int) -> Transaction | None:
        """The expiry of an id that was unused for long, to be written as a tombstone; None if it is not due."""
        current = held.current
        if held.pending is not None or current.state not in AT_REST:
            return None
        if current.update_ms > now_ms - self._settings.expiration_ms:
            return None
        return current._replace(state=_S.DEAD, partitions=frozenset())

    def verify(self, held: HeldTransaction | None, producer: Producer, tp: TopicPartition) -> ErrorCode:
        """Whether the producer may begin to write to ``tp``: NONE if its open transaction names it."""
        error = _stranger(held, producer)
        if held is None or error is not ErrorCode.NONE:
            return error
        current = held.current
        ending = held.pending is not None and held.pending.state is not _S.ONGOING
        if ending or current.state in _PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        is_named = current.state is _S.ONGOING and not current.is_kept and tp in current.partitions
        return ErrorCode.NONE if is_named else ErrorCode.INVALID_TXN_STATE


def _stranger(held: HeldTransaction | None, producer: Producer) -> ErrorCode:
    """NONE if the producer may speak for the id."""
    if held is None or held.current.client.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if held.current.client == producer else ErrorCode.PRODUCER_FENCED


def _comes_again(current: Transaction, request: EndRequest) -> bool:
    return request.version is not ClientVersion.CLASSIC and current.was_ended_by(request.producer)


def _successor(client: Producer, fresh_id: int | None) -> Producer | None:
    """What ``client`` is after the next raise of its epoch; None if that takes a fresh producer id."""
    if client.epoch < LAST_EPOCH - 1:
        return Producer(client.producer_id, client.epoch + 1)
    return None if fresh_id is None else Producer(fresh_id, 0)


def _kept(current: Transaction, request: InitRequest, fresh_id: int | None, now_ms: int) -> Decision:
    """The transaction stays open as it is; the client's epoch is raised, so that the predecessor can neither end it any
    more, nor be taken for a client that did not hear of the new epoch.
    """
    if request.expected not in (None, current.client):
        return _FENCED
    client = _successor(current.client, fresh_id)
    if client is None:
        return Decision(needs_producer_id=True)
    return Decision(record=current.told(client)._replace(update_ms=now_ms, last_epoch=NO_EPOCH))


def _prepared(current: Transaction, request: EndRequest, fresh_id: int | None, now_ms: int) -> Decision:
    """The client's own end. In the second version its markers bear a raised epoch, and it goes on under the next."""
    state = _S.PREPARE_COMMIT if request.commit else _S.PREPARE_ABORT
    if request.version is ClientVersion.CLASSIC:
        return Decision(record=current._replace(state=state, update_ms=now_ms, client_version=request.version))
    client = _successor(current.client, fresh_id)
    if client is None:
        return Decision(needs_producer_id=True)
    prepared = current._replace(
        state=state,
        epoch=current.epoch + 1,
        last_producer_id=current.client.producer_id,
        last_epoch=current.client.epoch,
        start_ms=current.start_ms if current.state is _S.ONGOING else now_ms,
        update_ms=now_ms,
        client_version=request.version,
    )
    return Decision(record=prepared.told(client))


def _aborted_by_force(held: HeldTransaction, now_ms: int, *, goes_on: bool) -> Transaction:
    """The abort of what is open, under an epoch that its producer does not have.

    ``goes_on``: that producer may learn of the epoch by aborting, where one is left to give.
    """
    current = held.current
    raised = 0 if held.fence_failed else 1
    epoch, client = current.epoch + 1, current.client
    if max(epoch, client.epoch + raised) > LAST_EPOCH:
        raise AssertionError(f"{current.transactional_id}: epoch {current.epoch} was given to a producer")
    goes_on = goes_on and not held.fence_failed and client.epoch + raised < LAST_EPOCH
    aborted = current._replace(
        state=_S.PREPARE_ABORT,
        epoch=epoch,
        last_producer_id=client.producer_id,
        last_epoch=client.epoch if goes_on else NO_EPOCH,
        update_ms=now_ms,
        client_version=ClientVersion.EPOCH_A_TRANSACTION,
    )
    return aborted.told(client._replace(epoch=client.epoch + raised))


def _may_be(current: Transaction, expected: Producer) -> bool:
    """Whether the asker can be the newest producer of this id, or the one before that did not hear of its new id."""
    if current.client.producer_id == expected.producer_id:
        return True
    return current.last_producer_id == expected.producer_id and expected.epoch >= LAST_EPOCH - 1


def _next_epoch(current: Transaction, request: InitRequest, now_ms: int) -> Decision:
    expected = request.expected
    last = NO_EPOCH if expected is None else current.epoch
    if expected is None or expected.epoch == current.epoch:
        following = Producer(current.producer_id, current.epoch + 1)
        return Decision(record=_begun(current, following, last, request.resolved_timeout_ms, now_ms))
    if expected.epoch == current.last_epoch:  # it asks again, since it did not hear the answer
        again = _begun(current, current.producer, current.last_epoch, request.resolved_timeout_ms, now_ms)
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
