"""TransactionCoordinator: one broker's share of the transactional ids, driven by one event loop.

An id lives in the partition of ``__transaction_state`` that it hashes to, and its coordinator is that partition's
leader. Everything here runs on the loop's thread: between two awaits nothing changes. A record is appended in the turn
in which it was decided, and counts once the append has returned. The invariants: ``docs/adr/0007-transactions.md`` and
``docs/adr/0010-transactions-second-version.md``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Generator, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from sparklog.clock import Clock
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.net.misplaced_names import MisplacedNames, misplaced_in
from sparklog.net.tasks import Tasks
from sparklog.record.partitioning import coordinator_partition
from sparklog.structs import DECIDER_PREFIX, TopicPartition
from sparklog.txn.completion import Completion
from sparklog.txn.machine import Decision, EndRequest, InitRequest, TransactionMachine, TransactionSettings
from sparklog.txn.markers import Marker, MarkerWriter, marker_of
from sparklog.txn.records import TransactionLoader, build_batch
from sparklog.txn.state import (
    COMPLETION,
    NO_EPOCH,
    NO_ID,
    ClientVersion,
    HeldTransaction,
    Producer,
    Transaction,
    TransactionState,
)

T = TypeVar("T")
_logger = logging.getLogger(__name__)
_LONGEST_ID = (1 << 15) - 1
"""What an id may take in a record, in bytes of UTF-8."""
_SLICE = 1000
"""So many ids are taken in in one turn of the loop."""
_RETRY_SECONDS = 0.5

_STORE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a failed append to ``__transaction_state`` means to a producer, as in Kafka."""


class TransactionLog(Protocol):
    """``__transaction_state`` as this broker sees it."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has, or will have when it is made."""

    def is_leader(self, partition: int) -> bool: ...

    def is_led_elsewhere(self, partition: int) -> bool:
        """Whether another broker is known to lead it; false while no broker is."""

    def leader_epoch(self, partition: int) -> int:
        """Of a partition that this broker leads."""

    async def append(self, partition: int, batch: bytes) -> None:
        """Return once the in-sync replicas have the batch; raise ApiError within bounded time otherwise.

        Batches land in the log in the order of the calls: the log is written before the first await.
        """

    async def committed(self, partition: int) -> None:
        """Return when every in-sync replica has what the log holds now; raise ApiError in bounded time otherwise."""

    def read(self, partition: int) -> AsyncIterator[memoryview]:
        """The whole log of the partition, from start to end, in pieces of whole batches that take about 1 ms each."""


NOBODY = Producer(NO_ID, NO_EPOCH)


class InitAnswer(NamedTuple):
    """``ongoing``: whose batches the transaction's are that the asker has kept, if there is one."""

    error: ErrorCode
    producer: Producer = NOBODY
    ongoing: Producer = NOBODY


class EndAnswer(NamedTuple):
    """``producer``: the client's producer id and epoch from now on."""

    error: ErrorCode
    producer: Producer = NOBODY


@dataclass(slots=True, eq=False)
class _LedPartition:
    """A partition that this broker coordinates; a new object each time that leadership arrives."""

    number: int
    is_loading: bool = True
    held: dict[str, HeldTransaction] = field(default_factory=dict)


class TransactionCoordinator:
    """All methods belong to the loop's thread. ``take_producer_id`` gives an id never given before, or ApiError."""

    def __init__(
        self,
        config: BrokerConfig,
        log: TransactionLog,
        markers: MarkerWriter,
        take_producer_id: Callable[[], Awaitable[int]],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._machine = TransactionMachine(
            TransactionSettings(
                config.transaction_max_timeout_ms,
                config.transactional_id_expiration_ms,
                config.transaction_two_phase_commit_enable,
            )
        )
        self._log = log
        self._take_producer_id = take_producer_id
        self._clock = clock
        self._loop = loop
        self._completion = Completion(markers, clock)
        self._led: dict[int, _LedPartition] = {}
        self._tasks = Tasks(loop, _on_failure)
        self._loading = asyncio.Lock()
        self.ended: Counter[tuple[TransactionState, bool]] = Counter()
        """Transactions that were completed here, by how, and whether they were of two phases."""
        self.decisions = 0
        """Of these the committed ones of Spark's sinks' deciders, each of which is a decision."""
        self.matching = asyncio.Lock()
        """Held while ids are matched by an expression: those of groups wait behind one such request, not behind all."""

    def partition_for(self, transactional_id: str) -> int:
        """The partition of ``__transaction_state`` whose leader coordinates the id."""
        return coordinator_partition(transactional_id, self._log.partition_count)

    # Requests. ``_status`` first: is the id ours, and loaded?

    async def init_producer_id(self, request: InitRequest) -> InitAnswer:
        """A producer id and an epoch that fence every producer that used the id before."""

        def decide(held: HeldTransaction | None, fresh_id: int | None) -> Decision:
            return self._machine.init(held, request, fresh_id, self._clock.now_ms())

        error = self._machine.init_error(request)
        if error is not ErrorCode.NONE:
            return InitAnswer(error)
        error, record = await self._decide(request.transactional_id, decide)
        if error is not ErrorCode.NONE or record is None:
            return InitAnswer(error)
        return InitAnswer(error, record.client, record.producer if record.is_kept else NOBODY)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        version: ClientVersion = ClientVersion.CLASSIC,
    ) -> ErrorCode:
        """NONE once the log says that the producer's transaction reaches these partitions."""

        def decide(held: HeldTransaction | None, _fresh_id: int | None) -> Decision:
            return self._machine.add_partitions(held, producer, partitions, self._clock.now_ms(), version)

        error, _ = await self._decide(transactional_id, decide)
        return error

    async def end(self, transactional_id: str, request: EndRequest) -> EndAnswer:
        """NONE once the outcome is in the log; the markers follow."""

        def decide(held: HeldTransaction | None, fresh_id: int | None) -> Decision:
            return self._machine.end(held, request, fresh_id, now_ms=self._clock.now_ms())

        error, record = await self._decide(transactional_id, decide)
        if error is not ErrorCode.NONE:
            return EndAnswer(error)
        if record is None:  # it was ended before
            held = self._find(transactional_id)
            record = held.current if held else None
        return EndAnswer(error, record.client if record else NOBODY)

    def is_elsewhere(self, transactional_id: str) -> bool:
        """Whether another broker is known to coordinate the id."""
        return self._log.is_led_elsewhere(self.partition_for(transactional_id))

    def verify(self, transactional_id: str, producer: Producer, tp: TopicPartition) -> ErrorCode:
        """Whether the producer's open transaction names ``tp``."""
        error = self._status(transactional_id)
        if error is not ErrorCode.NONE:
            return error
        return self._machine.verify(self._find(transactional_id), producer, tp)

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        """The id as the log has it."""
        error = self._status(transactional_id)
        held = self._find(transactional_id) if error is ErrorCode.NONE else None
        if error is ErrorCode.NONE and (held is None or held.current.epoch == NO_EPOCH):
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        return error, held.current if held else None

    def list_transactions(self) -> tuple[ErrorCode, list[Transaction]]:
        """The ids that this broker coordinates; an error if some are still being loaded."""
        if any(each.is_loading for each in self._led.values()):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
        held = (each.current for led in self._led.values() for each in led.held.values())
        return ErrorCode.NONE, [each for each in held if each.epoch != NO_EPOCH]

    def each(self) -> Iterator[Transaction]:
        """The ids that this broker coordinates and has loaded, at the time when each is come to."""
        return (held.current for _, held in self._at_hand() if held.current.epoch != NO_EPOCH)

    # Time.

    def abort_timed_out(self) -> Generator[None, None, None]:
        """Abort the transactions that have been open longer than their producers allowed; one id a step."""
        return self._look_at_each(self._abort_if_timed_out)

    def _abort_if_timed_out(self, led: _LedPartition, held: HeldTransaction) -> None:
        aborted = self._machine.time_out(held, self._clock.now_ms())
        if aborted is not None:
            _logger.info("aborting the transaction of %s, which took too long", aborted.transactional_id)
            self._write(led, held, aborted)

    def expire_ids(self) -> Generator[None, None, None]:
        """Forget the ids that were unused for ``transactional.id.expiration.ms``; one a step."""
        return self._look_at_each(self._expire)

    def _expire(self, led: _LedPartition, held: HeldTransaction) -> None:
        dead = self._machine.expire(held, self._clock.now_ms())
        if dead is not None:
            self._write(led, held, dead)

    def _look_at_each(self, look: Callable[[_LedPartition, HeldTransaction], None]) -> Generator[None, None, None]:
        """An id with which something is wrong is named in the log, and holds up no other."""
        for led, held in self._at_hand():
            try:
                look(led, held)
            except Exception:
                _logger.exception("%s cannot be looked after", held.current.transactional_id)
            yield

    def _at_hand(self) -> Iterator[tuple[_LedPartition, HeldTransaction]]:
        """The ids that are coordinated here when it is their turn."""
        for led in [each for each in self._led.values() if not each.is_loading]:
            for held in list(led.held.values()):
                if self._led.get(led.number) is not led:
                    break
                if led.held.get(held.current.transactional_id) is held:
                    yield led, held

    # Leadership.

    async def load(self, partition: int) -> None:
        """This broker leads the partition now: read its ids, then finish the transactions that were prepared.

        Nothing is said or done before what was read is on every replica in sync: the next leader could find less, and
        decide otherwise.
        """
        self.unload(partition)
        led = self._led[partition] = _LedPartition(partition)
        async with self._loading:  # one after another, so that each turn of the loop is short
            found = await self._read(led)
        if found is None or not await self._is_committed(led):
            return
        led.held = found
        led.is_loading = False
        for held in [each for each in found.values() if each.current.state in COMPLETION]:
            self._complete_if_prepared(led, held)
        misplaced = await misplaced_in(self._log, led.number, led.held, lambda: self._led.get(led.number) is led)
        if misplaced is not None:
            _say_misplaced(led.number, misplaced)

    async def _read(self, led: _LedPartition) -> dict[str, HeldTransaction] | None:
        """What the log says; None if another broker leads it by now."""
        loader = TransactionLoader(f"__transaction_state-{led.number}")
        async for piece in self._log.read(led.number):
            loader.add(piece)
            await asyncio.sleep(0)  # let other requests through
            if self._led.get(led.number) is not led:
                return None
        for _ in loader.parse():
            await asyncio.sleep(0)
        found: dict[str, HeldTransaction] = {}
        for number, (id_, each) in enumerate(loader.transactions.items()):
            found[id_] = HeldTransaction(each)
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        return found if self._led.get(led.number) is led else None

    async def _is_committed(self, led: _LedPartition) -> bool:
        """Return when what was read of the log is on every replica in sync; False if another broker leads it then."""
        is_told = False
        while self._led.get(led.number) is led:
            try:
                await self._log.committed(led.number)
            except ApiError as error:
                text = "__transaction_state-%d is not coordinated before its followers have what it holds: %s"
                _logger.log(logging.DEBUG if is_told else logging.WARNING, text, led.number, error)
                is_told = True
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return self._led.get(led.number) is led
        return False

    def unload(self, partition: int) -> None:
        """Another broker leads the partition now, and writes the markers that are still owed."""
        self._led.pop(partition, None)

    async def close(self) -> None:
        """Stop; the next leader completes what is prepared."""
        self._led.clear()
        await self._tasks.cancel()

    # The machinery.

    def _status(self, transactional_id: str) -> ErrorCode:
        if not transactional_id or len(transactional_id.encode()) > _LONGEST_ID:
            return ErrorCode.INVALID_REQUEST
        partition = self.partition_for(transactional_id)
        if not self._log.is_leader(partition):
            return ErrorCode.NOT_COORDINATOR
        led = self._led.get(partition)
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if led is None or led.is_loading else ErrorCode.NONE

    def _find(self, transactional_id: str) -> HeldTransaction | None:
        return self._led[self.partition_for(transactional_id)].held.get(transactional_id)

    async def _decide(
        self, transactional_id: str, decide: Callable[[HeldTransaction | None, int | None], Decision]
    ) -> tuple[ErrorCode, Transaction | None]:
        """Carry out what is decided, with a fresh producer id where that is needed; what was written, if anything."""
        fresh_id: int | None = None
        while True:
            error = self._status(transactional_id)
            if error is not ErrorCode.NONE:
                return error, None
            decision = decide(self._find(transactional_id), fresh_id)
            if not decision.needs_producer_id:
                return await self._carry_out(transactional_id, decision), decision.record
            try:
                fresh_id = await self._take_producer_id()
            except ApiError:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE, None

    async def _carry_out(self, transactional_id: str, decision: Decision) -> ErrorCode:
        """Write the record, if there is one, and say what the asker is told."""
        record = decision.record
        if record is None:
            return decision.error
        led = self._led[self.partition_for(transactional_id)]
        held = led.held.get(transactional_id)
        if held is None:
            held = led.held[transactional_id] = HeldTransaction(record._replace(epoch=NO_EPOCH))
        error = await asyncio.shield(self._write(led, held, record))
        return decision.error if error is ErrorCode.NONE else error

    def _write(self, led: _LedPartition, held: HeldTransaction, record: Transaction) -> asyncio.Task[ErrorCode]:
        """From this turn on nothing else is decided for the id until the record is in the log, or cannot be."""
        held.begin(record)
        return self._tasks.spawn(self._written(led, held, record))

    async def _written(self, led: _LedPartition, held: HeldTransaction, record: Transaction) -> ErrorCode:
        """Append the record, take it over when it is replicated, and go on to the markers if it is a prepared one."""
        error = await self._append(led, record)
        if self._led.get(led.number) is not led:
            return ErrorCode.NOT_COORDINATOR
        if error is ErrorCode.NONE:
            held.written()
            self._complete_if_prepared(led, held)
        else:
            held.failed()
        if held.current.state is TransactionState.DEAD or held.current.epoch == NO_EPOCH:  # or it never came to be
            del led.held[record.transactional_id]
        return error

    async def _append(self, led: _LedPartition, record: Transaction) -> ErrorCode:
        if self._led.get(led.number) is not led:
            return ErrorCode.NOT_COORDINATOR
        try:
            await self._log.append(led.number, build_batch(record, self._clock.now_ms()))
        except ApiError as error:
            _logger.warning("%s: cannot write to __transaction_state: %s", record.transactional_id, error)
            return _STORE_ERRORS.get(error.code, error.code)
        except Exception:  # whatever it is, the id must not stay as one of which a record is being written
            _logger.exception("%s: cannot write to __transaction_state", record.transactional_id)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    def _complete_if_prepared(self, led: _LedPartition, held: HeldTransaction) -> None:
        if held.current.state in COMPLETION:
            # The leader epoch of now: it rises also where this broker is elected again and keeps what it holds.
            marker = marker_of(held.current, self._log.leader_epoch(led.number))
            self._tasks.spawn(self._complete(led, held, marker))

    async def _complete(self, led: _LedPartition, held: HeldTransaction, marker: Marker) -> None:
        """From the prepared record to the complete one; on the way every partition is told."""
        prepared = held.current

        def is_ours() -> bool:
            return self._led.get(led.number) is led and held.current is prepared

        if not await self._completion.deliver(marker, prepared.partitions, is_ours):
            return
        # The markers are never written again. A record that could not be confirmed may be in the log of the next
        # coordinator, which writes none then: under the same epochs a second marker would end the next transaction.
        while is_ours():
            complete = self._machine.complete(prepared, self._clock.now_ms())
            if await self._write(led, held, complete) is ErrorCode.NONE:
                self._count(prepared)
                return
            await asyncio.sleep(_RETRY_SECONDS)

    def _count(self, prepared: Transaction) -> None:
        self.ended[COMPLETION[prepared.state], prepared.is_two_phase] += 1
        is_of_decider = prepared.transactional_id.startswith(DECIDER_PREFIX)
        self.decisions += is_of_decider and prepared.state is TransactionState.PREPARE_COMMIT


def _on_failure(_: str, error: BaseException) -> None:
    _logger.error("a transaction is stuck until its partition is loaded again", exc_info=error)


def _say_misplaced(partition: int, misplaced: MisplacedNames) -> None:
    _logger.error(
        "__transaction_state-%d holds %d transactional id(s) that are looked for in other partitions: %s. The topic "
        "has %d partitions, and had another number when they were written. A producer of such an id begins anew: it "
        "neither fences the one before it nor ends its transaction. 'sparklog txn list' shows what is open",
        *(partition, misplaced.number, misplaced, misplaced.partition_count),
    )
