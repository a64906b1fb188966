"""Putting batches on the wire: one request a broker at a time of many partitions, several requests in flight.

The sender turns whenever something may have changed: a batch was begun, closed or answered, metadata or a connection
came, a pause is over. Each turn it takes what the accumulator has due, groups it by leader, and sends what the order of
each partition allows. It decides nothing itself: ``accumulator``, ``sequences`` and ``transaction`` do.

The accumulator is shared with the threads that call ``send``, under ``lock``; futures are settled outside of it, so
that a callback may send.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from sparklog.client.cluster.retry import pause_after
from sparklog.client.cluster.session import Session
from sparklog.client.cluster.wakeup import Wakeup
from sparklog.client.producer.accumulator import Accumulator, PartitionQueue
from sparklog.client.producer.batch import ProducerBatch
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.refusal import TOO_LARGE
from sparklog.client.producer.sequences import ProducerId, Verdict
from sparklog.client.producer.transaction import LAST_PRODUCE_OF_FIRST_PROTOCOL, Transaction
from sparklog.cluster.leader_errors import LEADER_ERRORS
from sparklog.errors import ApiError, ClientClosed, ErrorCode, SparklogError
from sparklog.net.async_connection import Answer, AsyncConnection
from sparklog.net.versions import PeerVersions
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import produce
from sparklog.protocol.hot.produce import ProduceResult
from sparklog.protocol.messages import InitProducerIdRequest
from sparklog.structs import BrokerId, Chunk, TopicPartition

_log = logging.getLogger(__name__)
ADDING_PARTITIONS = "transaction"
"""The name of that errand."""
_RIGHTS = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: " (it takes WRITE on a topic, or IDEMPOTENT_WRITE on the cluster)",
}
_METADATA, _PRODUCER_ID = "metadata", "producer id"
_NO_ANSWER = ProduceResult(ErrorCode.NETWORK_EXCEPTION, message="the broker did not say what became of it")


class _Node:
    """The way to one leader."""

    def __init__(self, broker: BrokerId) -> None:
        self.broker = broker
        self.connection: AsyncConnection | None = None
        self.opened_at = -math.inf
        self.versions: PeerVersions | None = None
        self.in_flight = 0


class Sender:
    """One a producer, on its session's loop."""

    def __init__(
        self,
        session: Session,
        config: ProducerConfig,
        accumulator: Accumulator,
        lock: threading.RLock,
        transaction: Transaction | None = None,
    ) -> None:
        self.add_partitions: Callable[[], Awaitable[None]] | None = None
        """Asks the coordinator to take ``transaction.pending`` in."""
        self._session = session
        self._config = config
        self._accumulator = accumulator
        self._lock = lock
        self._transaction = transaction
        self._producer: ProducerId | None = None
        self._nodes: dict[BrokerId, _Node] = {}
        self._held: list[AsyncConnection] = []
        self._errands: dict[str, asyncio.Task[None]] = {}
        self._failures: Counter[str] = Counter()
        """How often each errand failed in a row."""
        self._reasons: dict[str, str] = {}
        """Why the last attempt of each errand failed, the latest last."""
        self._wakeup = Wakeup(self._turn)

    def wake(self) -> None:
        """Something may have changed."""
        self._wakeup.wake()

    def call(self) -> None:
        """``wake`` from any thread."""
        self._wakeup.call()

    def abandon(self) -> None:
        """Begin nothing more, from any thread; what is not settled stays so."""
        self._wakeup.stop()

    async def stop(self) -> None:
        """Send nothing more; what is not settled fails with ClientClosed."""
        self._wakeup.end()
        tasks = list(self._errands.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.fail_rest()

    def fail_rest(self) -> None:
        """Fail what is not settled, and wake the callers that wait for room: nothing will be sent any more."""
        with self._lock:
            left = self._accumulator.incomplete()
        for batch in left:
            batch.delivery.fail(ClientClosed("the producer was closed before the record was acknowledged"))
        self._make_room()

    async def flush(self) -> None:
        """Return when everything that was sent before is settled."""
        with self._lock:
            batches = self._accumulator.incomplete()
            self._accumulator.flushing(1)
        self.wake()
        try:
            for batch in batches:
                await batch.delivery.settled()
        finally:
            with self._lock:
                self._accumulator.flushing(-1)

    # Wakeup.

    def _turn(self) -> float | None:
        """Do what there is to do now; returns the seconds until there is more, None if nothing waits."""
        now = self._session.clock.monotonic()
        with self._lock:
            stranded = self._accumulator.stranded()
        self._settle_failed(stranded, _stranding)
        with self._lock:
            expired = self._accumulator.expire(now)
        self._settle_failed(expired, self._expiry)
        if self._is_stopped():
            return None
        try:
            while self._send_due(now):
                pass
        finally:
            while self._held:
                self._held.pop().let_go()
        with self._lock:
            return self._accumulator.next_event(now)

    def _send_due(self, now: float) -> bool:
        """Make requests of what is due, one a broker; whether there was any, for then there may be more."""
        with self._lock:
            due = list(self._accumulator.due(now))
        return bool(due) and self._has_identity() and self._dispatch(due)

    def _is_stopped(self) -> bool:
        """Where what waits will not be sent any more, give it up."""
        error = self._accumulator.fatal if self._transaction is None else self._transaction.obstacle
        if error is None:
            return False
        with self._lock:
            dropped = self._accumulator.drop_waiting()
        self._settle_failed(dropped, lambda _: error)
        return True

    def _has_identity(self) -> bool:
        if self._transaction is not None:
            self._producer = self._transaction.producer
        elif self._config.enable_idempotence and (
            self._producer is None or self._accumulator.needs_new_id(self._producer)
        ):
            self._errand(_PRODUCER_ID, self._ask_producer_id)
        return self._producer is not None or not self._config.enable_idempotence

    def _dispatch(self, due: Iterable[PartitionQueue]) -> bool:
        unknown: set[TopicPartition] = set()
        by_leader: dict[BrokerId, list[PartitionQueue]] = {}
        for queue in due:
            if not self._is_in_transaction(queue.tp):
                continue
            leader = self._session.leaders.leader(queue.tp)
            if leader is None:
                unknown.add(queue.tp)
            else:
                by_leader.setdefault(leader, []).append(queue)
        if unknown:
            self._errand(_METADATA, partial(self._look_up, unknown))
        served = [self._serve(leader, queues) for leader, queues in by_leader.items()]
        return any(served)

    def _is_in_transaction(self, tp: TopicPartition) -> bool:
        if self._transaction is None:
            return True
        self._transaction.joins(tp)
        if self._transaction.may_send(tp):
            return True
        if self._transaction.pending and self.add_partitions is not None:
            self._errand(ADDING_PARTITIONS, self.add_partitions)
        return False

    def _serve(self, leader: BrokerId, queues: list[PartitionQueue]) -> bool:
        node = self._nodes.setdefault(leader, _Node(leader))
        if node.in_flight >= self._config.max_in_flight:
            return False
        if node.connection is not None and node.connection.closed:
            self._lost(node, node.connection)
            self.wake()
            return False
        if node.connection is None or node.versions is None:
            self._errand(_connecting(leader), partial(self._connect, node))
            return False
        silence = node.connection.silent_seconds
        if silence:
            self._errand(_keeping_silent(leader), partial(asyncio.sleep, silence))
            return False
        batches = self._take(queues)
        if batches:
            if self._transaction is not None:
                self._transaction.goes_out()
            node.connection.hold()  # a write lets other threads in, which then have Python for milliseconds
            self._held.append(node.connection)
            self._send(node, node.connection, self._version(node.versions), batches)
        return bool(batches)

    def _take(self, queues: list[PartitionQueue]) -> list[ProducerBatch]:
        batches: list[ProducerBatch] = []
        size = 0
        with self._lock:
            for queue in queues:
                if batches and size + queue.waiting[0].size > self._config.max_request_size:
                    break
                batch = self._accumulator.take(queue, self._producer)
                if batch is not None:
                    batches.append(batch)
                    size += batch.size
            if self._accumulator.needs_new_id(self._producer):
                self.wake()
        return batches

    def _version(self, versions: PeerVersions) -> int:
        first_protocol = self._transaction is not None and not self._transaction.second_version
        return versions.best(ApiKey.PRODUCE, LAST_PRODUCE_OF_FIRST_PROTOCOL if first_protocol else None)

    # Requests and answers.

    def _send(self, node: _Node, connection: AsyncConnection, version: int, batches: list[ProducerBatch]) -> None:
        try:
            body = self._encode(version, batches)
        except Exception as error:
            _log.exception("a batch could not be encoded")
            result = ProduceResult(ErrorCode.UNKNOWN_SERVER_ERROR, message=f"it could not be encoded: {error}")
            self._judge([(batch, result) for batch in batches])
            return
        config = self._config
        node.in_flight += 1
        connection.ask(
            ApiKey.PRODUCE,
            version,
            body,
            partial(self._answered, node, connection, version, batches),
            timeout=config.request_timeout_ms / 1000,
            expect_response=config.required_acks != 0,
        )

    def _encode(self, version: int, batches: list[ProducerBatch]) -> list[Chunk]:
        config = self._config
        records: dict[TopicPartition, list[Chunk]] = {
            batch.tp: [batch.encode(config.compression_type, config.is_transactional)] for batch in batches
        }
        return produce.encode_request(
            config.required_acks, config.request_timeout_ms, records, version, config.transactional_id or None
        )

    def _answered(
        self,
        node: _Node,
        connection: AsyncConnection,
        version: int,
        batches: list[ProducerBatch],
        answer: Answer,
    ) -> None:
        node.in_flight -= 1
        silent = _NO_ANSWER
        results: dict[TopicPartition, ProduceResult] = {}
        try:
            if isinstance(answer, SparklogError):
                raise answer
            if self._config.required_acks == 0:
                silent = ProduceResult(ErrorCode.NONE)
            else:
                results = produce.decode_response(answer, version)
        except SparklogError as error:
            connection.close()
            self._lost(node, connection)
            silent = ProduceResult(ErrorCode.NETWORK_EXCEPTION, message=str(error))
        self._judge([(batch, results.get(batch.tp, silent)) for batch in batches])
        with self._lock:
            is_waiting = self._accumulator.is_waiting
        if is_waiting:
            self.wake()

    def _judge(self, answered: list[tuple[ProducerBatch, ProduceResult]]) -> None:
        now = self._session.clock.monotonic()
        judged = []
        with self._lock:
            for batch, result in answered:
                judged.append((self._accumulator.answered(batch, result.error, now), batch, result))
        for verdict, batch, result in judged:
            if result.error in LEADER_ERRORS:
                self._session.leaders.invalidate(batch.tp.topic)
            if verdict is Verdict.DONE:
                batch.delivery.succeed(result.base_offset, result.log_append_time_ms)
            elif verdict is Verdict.RETRY:
                batch.last_error = result.message or result.error.name
            elif verdict is not Verdict.SPLIT:
                self._refused(verdict, batch, result)
        self._make_room()

    def _refused(self, verdict: Verdict, batch: ProducerBatch, result: ProduceResult) -> None:
        error: SparklogError = _refusal(batch, result)
        if self._transaction is not None:
            error = self._transaction.explained(error)
            self._transaction.batch_failed(error)
        elif verdict is Verdict.FENCED:
            self._accumulator.fatal = error
        batch.delivery.fail(error)

    def _settle_failed(self, batches: list[ProducerBatch], error: Callable[[ProducerBatch], SparklogError]) -> None:
        """Fail batches that were taken out: nobody would ever do it later, so each is failed whatever is raised."""
        for batch in batches:
            try:
                why = error(batch)
            except Exception as failure:
                _log.exception("why a batch for %s failed cannot be told", batch.tp)
                text = f"{_counted(batch)} for {batch.tp} will not be sent, and why cannot be told: {failure!r}"
                why = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text + _doubt(batch))
            if self._transaction is not None:
                self._transaction.batch_failed(why)
            batch.delivery.fail(why)
        if batches:
            self._make_room()

    def _expiry(self, batch: ProducerBatch) -> SparklogError:
        text = f"{_counted(batch)} for {batch.tp} not acknowledged within delivery.timeout.ms"
        text += f"={self._config.delivery_timeout_ms}"
        reason = self._why_unsent(batch.tp) or ("" if batch.is_doubtful else batch.last_error)
        if reason:
            text += f": {reason}"
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, text + _doubt(batch))

    def _make_room(self) -> None:
        with self._lock:
            waiters = self._accumulator.pop_waiters()
        for waiter in waiters:
            waiter()

    # Errands: what has to be asked before something can be sent. One of a kind at a time.

    def _errand(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        if name not in self._errands:
            self._errands[name] = asyncio.create_task(self._run_errand(name, work), name=f"sparklog {name}")

    async def finish_errand(self, name: str) -> None:
        """Return when the errand that runs under this name, if one does, is done."""
        if name in self._errands:
            await asyncio.wait([self._errands[name]])

    async def _run_errand(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
            self._passed(name)
        except Exception as error:  # whatever it is, a pause comes before the next attempt
            self._failed(name, error)
            _log.debug("%s: %s", name, error, exc_info=not isinstance(error, SparklogError))
            await asyncio.sleep(self._pause_after(name, error))
        finally:
            self._errands.pop(name, None)
            self.wake()

    def _passed(self, name: str) -> None:
        self._failures.pop(name, None)
        self._reasons.pop(name, None)
        self._session.obstacles.over(name)

    def _failed(self, name: str, error: Exception) -> None:
        is_foreseen = isinstance(error, SparklogError)
        reason = str(error) if is_foreseen else f"{name}: {error!r}"
        self._failures[name] += 1
        self._reasons.pop(name, None)
        self._reasons[name] = reason
        self._session.obstacles.met(name, reason, at_once=not is_foreseen)

    def _why_unsent(self, tp: TopicPartition) -> str:
        """What the last errand failed with that ``tp`` waited for; empty where none did."""
        topic = self._session.leaders.last_known(tp.topic)
        info = None if topic is None else topic.partition(tp.partition)
        names = {_METADATA, _PRODUCER_ID, ADDING_PARTITIONS}
        if info is not None:
            names.add(_connecting(info.leader))
        return next((reason for name, reason in reversed(self._reasons.items()) if name in names), "")

    def _pause_after(self, name: str, error: Exception) -> float:
        """Seconds; what a broker answered is asked again soon, for it may have changed."""
        return pause_after(1 if isinstance(error, ApiError) else self._failures[name], self._config)

    async def _look_up(self, waiting: set[TopicPartition]) -> None:
        """Raises ApiError where one of them has no leader even so."""
        leaders = self._session.leaders
        await self._session.refresh(sorted({tp.topic for tp in waiting}), create=True)
        leaderless = next((tp for tp in sorted(waiting) if leaders.leader(tp) is None), None)
        if leaderless is not None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, leaders.why_no_leader(leaderless))

    def _lost(self, node: _Node, connection: AsyncConnection) -> None:
        """Have the leader of whatever this broker led looked for before more is sent: it may have moved.

        A broker that does not lead can say so to what wants no answer by hanging up alone.
        """
        if node.connection is connection:
            node.connection = None
            self._session.leaders.invalidate_led_by(node.broker)

    async def _connect(self, node: _Node) -> None:
        """One that hangs up each time is not connected to, nor metadata asked for its sake, all the time."""
        pause = pause_after(1, self._config)
        await asyncio.sleep(node.opened_at + pause - self._session.clock.monotonic())
        try:
            connection = await self._session.connection(node.broker)
            node.versions = await connection.versions(timeout=self._config.request_timeout_ms / 1000)
            node.connection, node.opened_at = connection, self._session.clock.monotonic()
        except Exception:
            for topic in list(self._session.leaders.topics):
                self._session.leaders.invalidate(topic)
            raise

    async def _ask_producer_id(self) -> None:
        try:
            answer = await self._session.any_broker_request(
                ApiKey.INIT_PRODUCER_ID,
                lambda version: InitProducerIdRequest(
                    version=version, transactional_id=None, transaction_timeout_ms=self._config.transaction_timeout_ms
                ),
            )
        except ApiError as error:
            if error.code.retriable:
                raise
            self._accumulator.fatal = ApiError(
                error.code, f"no producer id is given: {error}{_RIGHTS.get(error.code, '')}"
            )
        else:
            self._producer = ProducerId(answer.producer_id, answer.producer_epoch)


def _connecting(leader: BrokerId) -> str:
    return f"connection {leader}"


def _keeping_silent(leader: BrokerId) -> str:
    return f"silence {leader}"


def _counted(batch: ProducerBatch) -> str:
    return "1 record" if batch.count == 1 else f"{batch.count} records"


def _refusal(batch: ProducerBatch, result: ProduceResult) -> ApiError:
    text = f"{batch.tp} refused {_counted(batch)}"
    if result.message:
        text += f": {result.message}"
    if result.error in TOO_LARGE:
        text += f"; a record of {batch.size} bytes needs a higher max.message.bytes of the topic"
    return ApiError(result.error, text + _doubt(batch))


def _stranding(batch: ProducerBatch) -> ApiError:
    text = f"{_counted(batch)} for {batch.tp} cannot be sent again in their order: a batch before them was not written"
    return ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text + _doubt(batch))


def _doubt(batch: ProducerBatch) -> str:
    """What the user has to know of a batch whose fate is unknown."""
    if not batch.is_doubtful:
        return ""
    why = f" ({batch.last_error})" if batch.last_error else ""
    return (
        f"; an earlier attempt was not answered clearly{why}, so that they may have been written:"
        " look for them in the partition before you send them again"
    )
