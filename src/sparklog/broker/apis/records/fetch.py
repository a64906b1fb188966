"""Fetch: slices of segments, at once if there is enough, else when there is or the time is up; in a session only news.

The wait is for the whole request, or the whole session, together. What sessions are: ``broker/fetch_sessions.py``.

How much there is to wait for is what could be read of each partition, up to what is asked for of it at most: a first
batch that is left out for want of room counts too (``DelayedFetch.scala``). No more is waited for than all of them may
give together, so that no client waits for what has no room. Where that is reached, or a partition is read in a segment
before its last one, at least one batch is answered with: a client that asks again at once gets on.

An answer tells of some thousands of aborted transactions: where a partition has more of them, or those before it had,
fewer records are given, or none.

A follower (``replica_id``) is given all that the log has, and what it asks for tells how far it has come. Where its log
has another history, it is told so and given nothing.

A consumer of version 11 on may ask any replica (KIP-392). A leader with ``replica.selector.class`` sends one that says
its rack to a follower there, and gives it nothing. Then followers hear at once of a high watermark that has risen
since they were told last, or what they show would lag by a whole long poll.

A client of version 0 to 3 is given message sets, which are made off the loop (``broker/old_format.py``).

Where there is an authorizer it is asked for each topic that is read, and again when a request has waited: a right that
is taken away meanwhile counts no more. A partition of a session that stands as it was told is not read, so that its
consumer hears of a right that is gone when the partition moves.

A request of many partitions is served in steps, ``SLICE`` of them a step. What is told of one partition is of one
moment, of two of them it may be of two.
"""

from __future__ import annotations

from collections.abc import Awaitable
from uuid import UUID

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.fetch_sessions import Fetch, FetchAnswer, Rest
from sparklog.broker.handling.authorization import Rights, is_open, refusal
from sparklog.broker.old_format import in_old_format
from sparklog.clock import monotonic_ms
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.segments import MOST_ABORTED, LogPosition
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as wire
from sparklog.protocol.hot.fetch import FetchedPartition, FetchPartition, FetchRequest
from sparklog.protocol.slices import LARGE_ANSWER, SLICE, Steps, sliced
from sparklog.protocol.wire import ZERO_UUID
from sparklog.replica.caught_up_state import CaughtUpState
from sparklog.replica.manager import ENDLESS, Follower, ReplicaFetch
from sparklog.replica.partition import PartitionRead
from sparklog.replica.purgatory import DelayedOperation
from sparklog.security.access import Operation
from sparklog.structs import Chunk, TopicPartition, chunk_size

API = ApiKey.FETCH
VERSIONS = range(wire.MIN_VERSION, wire.MAX_VERSION + 1)
WAITS_FOR_OTHERS = True
_FIRST_VERSION_OF_STORAGE_ERRORS = 6
_FIRST_VERSION_OF_ZSTD = 10
_FIRST_VERSION_OF_RACKS = 11
_ANSWER_BYTES, _PARTITION_BYTES = 20, 60
"""Of an answer without partitions, and of one partition and its topic's name without records."""
_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

decode = wire.decode_request
decoding = wire.decoding_request


def encode(answer: FetchAnswer, version: int, throttle_ms: int = 0) -> list[Chunk] | Steps[list[Chunk]]:
    if len(answer.partitions) > LARGE_ANSWER:
        return wire.encoding_response(
            answer.partitions, version, error=answer.error, session_id=answer.session_id, throttle_ms=throttle_ms
        )
    return wire.encode_response(
        answer.partitions, version, error=answer.error, session_id=answer.session_id, throttle_ms=throttle_ms
    )


def handle(
    broker: BrokerContext, request: ApiRequest[FetchRequest]
) -> FetchAnswer | Awaitable[FetchAnswer] | Steps[FetchAnswer | Awaitable[FetchAnswer]]:
    if request.version < wire.FIRST_VERSION_OF_BATCHES:
        return in_old_format(broker, request, _serve)
    return _serve(broker, request)


def _serve(
    broker: BrokerContext, request: ApiRequest[FetchRequest]
) -> FetchAnswer | Awaitable[FetchAnswer] | Steps[FetchAnswer | Awaitable[FetchAnswer]]:
    message: FetchRequest = request.message
    sessions = broker.fetch_sessions
    if sessions.size_of(message) > SLICE:
        return _handle_large(broker, request)
    try:
        fetch = sessions.begin(message, monotonic_ms(broker.clock), uses_ids=_uses_ids(request))
    except ApiError as error:
        return _refused(broker, request, error)
    if len(fetch.asked) > SLICE:
        return _serve_large(broker, request, fetch)
    reading = _Reading(broker, request, fetch, is_news=True)
    reading.read(fetch.asked)
    if not reading.is_enough:
        return _wait(broker, request, fetch, reading)
    return _answer(broker, request, fetch, reading)


def _refused(broker: BrokerContext, request: ApiRequest[FetchRequest], error: ApiError) -> FetchAnswer:
    return FetchAnswer([], error=error.code, throttle_ms=_throttle_ms(broker, request, []))


def _answer(broker: BrokerContext, request: ApiRequest[FetchRequest], fetch: Fetch, reading: _Reading) -> FetchAnswer:
    """What was read, unless it is more than the consumer may have."""
    throttle_ms = _throttle_ms(broker, request, reading.fetched)
    if throttle_ms:
        return fetch.throttled(throttle_ms)
    reading.count()
    return fetch.answer(reading.fetched, reading.states)


def _throttle_ms(broker: BrokerContext, request: ApiRequest[FetchRequest], fetched: list[FetchedPartition]) -> int:
    """How long the consumer is to wait before it may be given this; 0: it may, and it counts."""
    quotas = broker.quotas
    if not quotas.is_on:
        return 0
    if request.message.replica_id >= 0 and quotas.follow(request.caller):
        return 0
    return quotas.charge_fetch(request.caller, request.client_id, _size_of(fetched))


def _size_of(fetched: list[FetchedPartition]) -> int:
    """About the bytes of an answer that holds this; the records' are exact."""
    size = _ANSWER_BYTES
    for each in fetched:
        for records in each.records:
            size += chunk_size(records) + _PARTITION_BYTES
    return size


def _handle_large(
    broker: BrokerContext, request: ApiRequest[FetchRequest]
) -> Steps[FetchAnswer | Awaitable[FetchAnswer]]:
    message: FetchRequest = request.message
    try:
        fetch = broker.fetch_sessions.open(message, monotonic_ms(broker.clock), uses_ids=_uses_ids(request))
        fetch.hold()
    except ApiError as error:
        return _refused(broker, request, error)
    is_whole = False
    try:
        for named in sliced(message.partitions):
            fetch.name(named, [])
            yield
        for gone in sliced(message.forgotten):
            fetch.name([], gone)
            yield
        begun = fetch.begin()
        is_whole = True
    except ApiError as error:
        return _refused(broker, request, error)
    finally:
        fetch.release(is_whole=is_whole)
    return (yield from _serve_large(broker, request, begun))


def _serve_large(
    broker: BrokerContext, request: ApiRequest[FetchRequest], fetch: Fetch
) -> Steps[FetchAnswer | Awaitable[FetchAnswer]]:
    if not fetch.hold():
        return fetch.answer([])
    is_whole = False
    try:
        reading = _Reading(broker, request, fetch, is_news=True)
        for asked in sliced(fetch.asked):
            reading.read(asked)
            yield
        answer = None
        if reading.is_enough:
            answer = yield from _answering(broker, request, fetch, reading)
        is_whole = True
    finally:
        fetch.release(is_whole=is_whole)
    return _wait_large(broker, request, fetch, reading) if answer is None else answer


def _answering(
    broker: BrokerContext, request: ApiRequest[FetchRequest], fetch: Fetch, reading: _Reading
) -> Steps[FetchAnswer]:
    throttle_ms = _throttle_ms(broker, request, reading.fetched)
    if throttle_ms:
        return fetch.throttled(throttle_ms)
    reading.count()
    for fetched, states in zip(sliced(reading.fetched), sliced(reading.states), strict=True):
        fetch.take(fetched, states)
        yield
    return fetch.answer([])


def _uses_ids(request: ApiRequest[FetchRequest]) -> bool:
    return request.version >= wire.TOPIC_ID_VERSION


class _Reading:
    """What the partitions of a request give, within the bytes that they may give together."""

    def __init__(
        self, broker: BrokerContext, request: ApiRequest[FetchRequest], fetch: Fetch, *, is_news: bool = False
    ) -> None:
        """``is_news``: the request has just come, so that a follower of this broker has come as far as it asks."""
        self._broker = broker
        self._fetch = fetch
        self._rest = rest = fetch.rest
        self._is_news = is_news
        self._follower = _follower_of(request.message)
        self._rights: Rights | None = None
        self._is_stranger = False
        self._is_asking = not is_open(broker)
        if self._is_asking:
            self._ask(broker, request)
        self._of_leader = request.version < _FIRST_VERSION_OF_RACKS
        by_rack = broker.config.selects_by_rack
        self._rack = request.message.rack_id if by_rack and self._follower is None else ""
        self._hastens = by_rack and self._follower is not None
        self._version = request.version
        self._is_unlimited = request.version < wire.FIRST_VERSION_WITH_LIMIT
        self._listener = request.caller.listener
        self._message: FetchRequest = request.message
        self._uses_ids = _uses_ids(request)
        self._most = min(self._message.max_bytes, broker.config.fetch_max_bytes)
        if broker.quotas.is_on and self._follower is None:
            self._most = min(self._most, broker.quotas.most_to_fetch(request.caller, request.client_id))
        self._size = self._aborted = self._throttled = 0
        self._room = rest.room
        self._failed = False
        self.fetched: list[FetchedPartition] = []
        """An element for each that was asked for."""
        self.states: list[CaughtUpState | None] = []
        """Of the same, whether that was all there is."""
        self.seen: dict[TopicPartition, tuple[FetchPartition, LogPosition]] = {}
        """What was asked of each partition that could be read, and how far it could be seen."""
        self.shown: dict[TopicPartition, int] = {}
        """The high watermarks that a follower knows by now, if it is to hear of others at once."""

    def _ask(self, broker: BrokerContext, request: ApiRequest[FetchRequest]) -> None:
        """A follower needs a right on the cluster and no other; a consumer's topics are asked for one by one."""
        if self._follower is None:
            self._rights = Rights(broker, request, Operation.READ)
        else:
            self._is_stranger = refusal(broker, request, Operation.CLUSTER_ACTION) is not ErrorCode.NONE

    def _refusal(self, topic: str | None) -> ErrorCode:
        """Of an id that has no name nothing is to be hidden; but a follower is told the same of all."""
        if self._is_stranger:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self._rights is not None and not self._rights.allows(topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.NONE

    @property
    def is_enough(self) -> bool:
        """Whether to answer at once: enough was read, or there is news of another kind, or nothing to wait for."""
        return (
            self._size >= min(self._message.min_bytes, self._most)
            or self._failed
            or self._message.max_wait_ms <= 0
            or (not self.fetched and not self._rest.count)
            or self._size >= self.wanted
        )

    @property
    def wanted(self) -> int:
        """The bytes to wait for: no more than all partitions may give, and may be sent."""
        return max(min(self._message.min_bytes, self._most, self._room), 1)

    def read(self, partitions: list[FetchPartition]) -> None:
        """Read these too."""
        for asked in partitions:
            topic = asked.topic or (self._broker.metadata.name_of(asked.topic_id) if self._uses_ids else "")
            refused = self._refusal(topic) if topic is None or self._is_asking else ErrorCode.NONE
            if topic is None or refused is not ErrorCode.NONE:
                self._fail(FetchedPartition(topic or "", asked.topic_id, asked.partition, refused))
            else:
                self._read_one(asked, TopicPartition(topic, asked.partition))

    def _read_one(self, asked: FetchPartition, tp: TopicPartition) -> None:
        """Read a partition of a topic that the caller may read."""
        broker = self._broker
        topic_id = None if asked.topic_id is ZERO_UUID else asked.topic_id
        max_bytes = min(asked.max_bytes, max(self._most - self._size, 0)) if self._aborted < MOST_ABORTED else 0
        is_held_back = False
        try:
            if self._rack:
                read = self._read_near(tp, topic_id, asked, max_bytes)
            elif self._follower is None:
                read = broker.replicas.read(
                    tp,
                    topic_id,
                    asked.offset,
                    max_bytes,
                    self._message.isolation,
                    leader_epoch=asked.current_leader_epoch,
                    of_leader=self._of_leader,
                    min_one_batch=self._size == 0 or self._is_unlimited,
                )
            else:
                is_throttled = broker.replicas.leader_throttle.is_limited and broker.replicas.is_throttled(tp)
                is_held_back = is_throttled and broker.replicas.holds_back(tp, self._follower.id)
                read = self._read_as_follower(self._follower, tp, topic_id, asked, max_bytes, is_held_back=is_held_back)
                if is_throttled and read.records is not None:
                    self._throttled += read.records.size
        except ApiError as error:
            self._fail(_failed(broker, self._listener, asked, tp, error.code, self._version))
            return
        if not is_held_back:  # its records are not waited for
            self.seen[tp] = asked, read.bound
            self._room += max(asked.max_bytes, 0)
        if read.records is not None:
            self._size += read.records.size
            self._aborted += len(read.aborted or ())
        told = _told(asked, tp.topic, read)
        if self._version < _FIRST_VERSION_OF_ZSTD and _is_withheld(broker, tp, self._version, told):
            self._fail(told)
        else:
            self._add(told, self._caught_up(tp, asked, read))

    def _hasten(self, tp: TopicPartition, asked: FetchPartition, high_watermark: int) -> None:
        """Let the follower hear of the high watermark now, if it knows another."""
        self.shown[tp] = high_watermark
        if self._fetch.is_behind(asked, high_watermark):
            self._failed = True

    def _read_near(
        self, tp: TopicPartition, topic_id: UUID | None, asked: FetchPartition, max_bytes: int
    ) -> PartitionRead:
        """For a consumer that says its rack. Raises ApiError with the code to answer."""
        replicas, rack_of, epoch = self._broker.replicas, self._broker.metadata.rack_of, asked.current_leader_epoch
        sent_away = replicas.sent_away(tp, topic_id, asked.offset, self._rack, rack_of, leader_epoch=epoch)
        if sent_away is not None:
            self._failed = True  # it is told at once
            return sent_away
        return replicas.read(
            tp,
            topic_id,
            asked.offset,
            max_bytes,
            self._message.isolation,
            leader_epoch=epoch,
            of_leader=False,
            min_one_batch=self._size == 0,
        )

    def _fail(self, told: FetchedPartition) -> None:
        """``told`` is to be answered at once."""
        self._failed = True
        self._add(told)

    def _add(self, told: FetchedPartition, caught_up: CaughtUpState | None = None) -> None:
        self.fetched.append(told)
        self.states.append(caught_up)

    def _caught_up(self, tp: TopicPartition, asked: FetchPartition, read: PartitionRead) -> CaughtUpState | None:
        if read.records is not None or read.diverging is not None or asked.offset != read.bound.offset:
            return None
        if self._rack or self._hastens:  # it is to be told of more than that tells
            return None
        return self._broker.replicas.caught_up(tp, read.bound, self._follower)

    def count(self) -> None:
        """This is answered: it counts for its topics, and what of it is throttled for that."""
        traffic, to_follower = self._broker.replicas.traffic, self._follower is not None
        for each in self.fetched:
            for records in each.records:
                traffic.send(each.topic, chunk_size(records), to_follower=to_follower)
        if self._throttled:
            self._broker.replicas.leader_throttle.record(self._throttled)

    def _read_as_follower(
        self,
        follower: Follower,
        tp: TopicPartition,
        topic_id: UUID | None,
        asked: FetchPartition,
        max_bytes: int,
        *,
        is_held_back: bool,
    ) -> PartitionRead:
        """Raises ApiError with the code to answer."""
        room = 0 if is_held_back else max_bytes
        read = self._broker.replicas.read_as_follower(
            tp,
            topic_id,
            follower,
            ReplicaFetch(
                asked.offset, asked.last_fetched_epoch, asked.current_leader_epoch, room, asked.log_start_offset
            ),
            min_one_batch=self._size == 0 and not is_held_back,
            is_news=self._is_news,
        )
        if self._hastens:
            self._hasten(tp, asked, read.high_watermark)
        if read.diverging is not None:
            self._failed = True  # it is told at once
        return read


def _follower_of(message: FetchRequest) -> Follower | None:
    return Follower(message.replica_id, message.replica_epoch) if message.replica_id >= 0 else None


def _is_withheld(broker: BrokerContext, tp: TopicPartition, version: int, told: FetchedPartition) -> bool:
    """Whether a client of this version, before that of zstd, is given nothing of the partition; it is told why."""
    config = broker.replicas.partition(tp).config
    if config.compression_type == "zstd":
        told.error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    elif version < wire.FIRST_VERSION_OF_BATCHES and not config.message_downconversion_enable:
        told.error = ErrorCode.UNSUPPORTED_VERSION
    else:
        return False
    told.records.clear()
    return True


def _told(asked: FetchPartition, topic: str, read: PartitionRead) -> FetchedPartition:
    return FetchedPartition(
        topic,
        asked.topic_id,
        asked.partition,
        ErrorCode.NONE,
        read.high_watermark,
        read.last_stable_offset,
        read.log_start_offset,
        None if read.aborted is None else [(each.producer_id, each.first_offset) for each in read.aborted],
        [] if read.records is None else [read.records],
        diverging=read.diverging,
        preferred_read_replica=read.preferred,
    )


def _failed(
    broker: BrokerContext, listener: str, asked: FetchPartition, tp: TopicPartition, code: ErrorCode, version: int
) -> FetchedPartition:
    """Tell a client that asks the wrong broker so, and where to go; in codes that its version knows."""
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and broker.metadata.knows(tp):
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < _FIRST_VERSION_OF_STORAGE_ERRORS:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    failed = FetchedPartition(tp.topic, asked.topic_id, tp.partition, code)
    if code in _MOVED:
        failed.leader = broker.leader_hint(tp, listener)
    return failed


class _Wait:
    """How much a long poll could be given by now. What each partition adds is found out when it is looked at first."""

    def __init__(self, broker: BrokerContext, request: ApiRequest[FetchRequest], reading: _Reading, rest: Rest) -> None:
        message = request.message
        is_follower = message.replica_id >= 0
        self._replicas = broker.replicas
        self._isolation = None if is_follower else message.isolation
        self._of_leader = is_follower or request.version < _FIRST_VERSION_OF_RACKS
        self._shown = reading.shown
        self._wanted = reading.wanted
        self._seen = reading.seen
        self._rest = rest
        self._since: dict[TopicPartition, LogPosition] = {}
        self._given: dict[TopicPartition, int] = {}
        self._size = 0

    def is_enough(self, moved: TopicPartition) -> bool:
        """With what ``moved`` could give now."""
        found = self._seen.get(moved) or self._rest.seen(moved)
        if found is None:  # it is asked for no longer
            return False
        if self._shown and self._replicas.shows_until(moved) != self._shown.get(moved):
            return True
        asked, bound = found
        since = self._since.get(moved)
        if since is None:
            since = self._since[moved] = self._replicas.start_of_readable(moved, asked.offset, bound)
        available = self._replicas.available(
            moved, since, self._isolation, leader_epoch=asked.current_leader_epoch, of_leader=self._of_leader
        )
        given = available if available >= ENDLESS else max(min(available, asked.max_bytes), 0)
        self._size += given - self._given.get(moved, 0)
        self._given[moved] = given
        return self._size >= self._wanted


async def _wait(
    broker: BrokerContext, request: ApiRequest[FetchRequest], fetch: Fetch, reading: _Reading
) -> FetchAnswer:
    message: FetchRequest = request.message
    operation = _operation(broker, request, fetch, reading)
    operation.wait_for(reading.seen)
    operation.arm(message.max_wait_ms)
    await operation.future
    fetch.again()
    if len(fetch.asked) > SLICE:
        return await _again_in_steps(broker, request, fetch)
    again = _Reading(broker, request, fetch)
    again.read(fetch.asked)
    return _answer(broker, request, fetch, again)


def _operation(
    broker: BrokerContext, request: ApiRequest[FetchRequest], fetch: Fetch, reading: _Reading
) -> DelayedOperation:
    """What waits, as yet under the partitions alone that need not be read."""
    enough = _Wait(broker, request, reading, fetch.rest).is_enough
    standing = fetch.rest.standing(broker.replicas.fetch_purgatory)
    if standing is None:
        return DelayedOperation(broker.replicas.fetch_purgatory, enough)
    standing.begin(enough)
    return standing


async def _wait_large(
    broker: BrokerContext, request: ApiRequest[FetchRequest], fetch: Fetch, reading: _Reading
) -> FetchAnswer:
    """``_wait`` in steps."""
    message: FetchRequest = request.message
    operation = _operation(broker, request, fetch, reading)
    waiting = operation.future
    try:
        await broker.turns.drive(_enter(operation, list(reading.seen)), _what)
        operation.wait_for(fetch.rest.moved())  # since they were looked at
        operation.arm(message.max_wait_ms)
        await waiting
    finally:
        waiting.cancel()
    fetch.again()
    return await _again_in_steps(broker, request, fetch)


async def _again_in_steps(broker: BrokerContext, request: ApiRequest[FetchRequest], fetch: Fetch) -> FetchAnswer:
    if not fetch.hold():
        return fetch.answer([])
    is_whole = False
    try:
        answer = await broker.turns.drive(_reading_again(broker, request, fetch), _what)
        is_whole = True
    finally:
        fetch.release(is_whole=is_whole)
    return answer


def _what() -> str:
    return "a Fetch of many partitions"


def _enter(operation: DelayedOperation, partitions: list[TopicPartition]) -> Steps[None]:
    for each in sliced(partitions):
        operation.wait_for(each)
        yield


def _reading_again(broker: BrokerContext, request: ApiRequest[FetchRequest], fetch: Fetch) -> Steps[FetchAnswer]:
    reading = _Reading(broker, request, fetch)
    for asked in sliced(fetch.asked):
        reading.read(asked)
        yield
    return (yield from _answering(broker, request, fetch, reading))
