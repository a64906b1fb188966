"""The way of an asynchronous client to its cluster: connections, metadata, coordinators, retries.

One a client, on one event loop. Connections are shared by everything that asks a broker in the same *lane*: Kafka
answers the requests of one connection in order, so what may wait long at the broker (a fetch, a join) does not go
where something urgent would wait behind it.

``request`` asks once. The others ask until there is an answer: they follow the controller and coordinators where these
move, and pause as ``retry.backoff.ms`` says. ``default.api.timeout.ms``, or the patience they are given, bounds all of
it, an attempt under way included; its answer, if it comes, is read and dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from enum import IntEnum
from functools import partial
from typing import TypeVar

from sparklog.client.cluster.broker_failures import PASSED_OVER, no_broker
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.obstacles import Obstacles
from sparklog.client.cluster.retry import UNKNOWN_TOPIC_PATIENCE, Backoff, retrying_async
from sparklog.client.cluster.throttling import Throttling
from sparklog.clock import Clock, SystemClock
from sparklog.cluster.info import (
    ClusterInfo,
    PartitionInfo,
    TopicInfo,
    metadata_request,
    no_such_partition,
    read_metadata,
)
from sparklog.cluster.leaders import Leaders
from sparklog.errors import ApiError, ClientClosed, ConnectionFailed, ErrorCode, SparklogError
from sparklog.net.async_connection import AsyncConnection
from sparklog.net.tasks import retrieve
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import A, FindCoordinatorRequest, FindCoordinatorResponse, Request, Response
from sparklog.structs import BrokerId, Endpoint, TopicPartition

T = TypeVar("T")
Build = Callable[[int], Request[A]]
"""Makes a request in the version agreed on."""
Check = Callable[[A], None]
"""Raises ApiError for an answer that says no; a retriable one is asked for again."""

DATA, CONTROL, COORDINATOR = "data", "control", "coordinator"
"""The lanes: produce and fetch; metadata and administration; what a group or transaction asks its coordinator."""

_Wanted = tuple[frozenset[str] | None, bool]
"""What a question of metadata is about: these topics, or all, and whether they are to be created."""
_LONG = 1.0
"""Seconds after which an answer that is owed may never come."""
_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class CoordinatorKind(IntEnum):
    """The wire's numbers (``FindCoordinatorRequest.json``)."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def noun(self) -> str:
        """What its key is."""
        return "group" if self is CoordinatorKind.GROUP else "transactional id"


def raise_error_code(answer: Response) -> None:
    """Raises ApiError where the answer as a whole has an error code."""
    code = ErrorCode(getattr(answer, "error_code", 0) or 0)
    if code is not ErrorCode.NONE:
        raise ApiError(code, getattr(answer, "error_message", None) or "")


class Session:
    """Asks the brokers of one cluster. ``start`` it on the loop that will use it; ``close`` it there."""

    def __init__(self, config: ClientConfig, clock: Clock | None = None) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self._security = config.connection_security(self.clock)
        self.leaders = Leaders()
        self.obstacles = Obstacles(self.clock)
        self.throttling = Throttling()
        self._connections: dict[tuple[Endpoint, str], asyncio.Task[AsyncConnection]] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], BrokerId] = {}
        self._refreshes: dict[_Wanted, asyncio.Task[ClusterInfo]] = {}
        """The questions that a caller who wants the same joins."""
        self._refreshing: set[asyncio.Task[ClusterInfo]] = set()
        """Every question of metadata that is under way."""
        self._aging: asyncio.Task[None] | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Begin to renew metadata every ``metadata.max.age.ms``. Asks nothing yet."""
        self._aging = asyncio.create_task(self._renew(), name="sparklog metadata")

    async def close(self) -> None:
        """Hang up; requests under way fail with ConnectionFailed. Later calls raise ClientClosed.

        A close that is cancelled has hung up too.
        """
        self._is_closed = True
        tasks = [*self._connections.values(), *self._refreshing, *([self._aging] if self._aging else [])]
        self._hang_up()
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._hang_up()  # on those that were being opened
        self._connections.clear()
        await asyncio.sleep(0)  # a transport lets go of its socket a turn later; the loop may have no other

    def _hang_up(self) -> None:
        for opening in self._connections.values():
            if opening.done() and not _has_failed(opening):
                opening.result().abort()

    # One question to one broker.

    async def connection(self, broker_id: BrokerId, lane: str = DATA) -> AsyncConnection:
        """The connection to a broker in a lane, opened if there is none. Raises ConnectionFailed or ApiError."""
        return await self._connect(self.endpoint(broker_id), lane)

    def endpoint(self, broker_id: BrokerId) -> Endpoint:
        """Where a broker listens. Raises ApiError (retriable) for one that is not in the cluster now."""
        endpoint = self.leaders.brokers.get(broker_id)
        if endpoint is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {broker_id} is not in the cluster now")
        return endpoint

    async def request(
        self,
        broker_id: BrokerId,
        api: ApiKey,
        build: Build[A],
        *,
        timeout: float | None = None,
        lane: str = DATA,
        ceiling: int | None = None,
    ) -> A:
        """Ask once; ``timeout`` in seconds is ``request.timeout.ms`` if not said, ``ceiling`` the highest version."""
        connection = await self.connection(broker_id, lane)
        return await connection.request(api, build, timeout=self._seconds(timeout), ceiling=ceiling)

    def _seconds(self, timeout: float | None) -> float:
        return self.config.request_timeout_ms / 1000 if timeout is None else timeout

    async def _connect(self, endpoint: Endpoint, lane: str) -> AsyncConnection:
        if self._is_closed:
            raise ClientClosed("this client was closed")
        opening = self._connections.get((endpoint, lane))
        if opening is None or (opening.done() and _has_failed(opening)):
            opening = self._connections[endpoint, lane] = asyncio.create_task(self._open(endpoint))
            opening.add_done_callback(retrieve)
        return await _shared(opening)

    async def _open(self, endpoint: Endpoint) -> AsyncConnection:
        seconds = self.config.connect_timeout_ms / 1000
        return await AsyncConnection.open(
            endpoint,
            client_id=self.config.client_id,
            timeout=seconds,
            security=self._security,
            throttled=self.throttling.add,
        )

    # Questions that are asked until they are answered.

    def backoff(self, timeout_ms: int | None = None, patience: float = UNKNOWN_TOPIC_PATIENCE) -> Backoff:
        """A fresh deadline for retries, ``default.api.timeout.ms`` away if not said otherwise."""
        limit = self.config.api_timeout_ms if timeout_ms is None else timeout_ms
        return Backoff(self.config, self.clock, limit, patience)

    async def any_broker_request(
        self,
        api: ApiKey,
        build: Build[A],
        *,
        check: Check[A] = raise_error_code,
        timeout: float | None = None,
        patience_ms: int | None = None,
    ) -> A:
        """Ask whichever broker answers."""

        async def ask() -> A:
            answer = await self._ask_any(api, build, timeout)
            check(answer)
            return answer

        return await self._retrying(ask, patience_ms)

    async def controller_request(
        self,
        api: ApiKey,
        build: Build[A],
        *,
        check: Check[A] = raise_error_code,
        timeout: float | None = None,
        patience_ms: int | None = None,
    ) -> A:
        """Ask the controller; ``check`` raises NOT_CONTROLLER where it has moved."""

        async def ask() -> A:
            controller = self.leaders.controller
            if controller is None:
                controller = (await self._refresh_once([], create=False)).controller
            answer = await self.request(controller, api, build, timeout=timeout, lane=CONTROL)
            check(answer)
            return answer

        def forget() -> None:
            self.leaders.controller = None

        return await self._retrying(ask, patience_ms, between=forget)

    async def coordinator_request(
        self,
        kind: CoordinatorKind,
        key: str,
        api: ApiKey,
        build: Build[A],
        *,
        check: Check[A] = raise_error_code,
        timeout: float | None = None,
        patience_ms: int | None = None,
        ceiling: int | None = None,
    ) -> A:
        """Ask the coordinator of a group or transactional id, wherever it moves.

        Errors that ``check`` raises are retried if their code is retriable; anything else is the caller's.
        """

        async def ask() -> A:
            broker = await self._coordinator_once(kind, key)
            try:
                answer = await self.request(broker, api, build, timeout=timeout, lane=COORDINATOR, ceiling=ceiling)
                check(answer)
            except SparklogError as error:
                if isinstance(error, ConnectionFailed) or (isinstance(error, ApiError) and error.code in _ELSEWHERE):
                    self.forget_coordinator(kind, key)
                raise
            return answer

        return await self._retrying(ask, patience_ms)

    async def coordinator(self, kind: CoordinatorKind, key: str) -> BrokerId:
        """The broker that coordinates ``key``, remembered until it is forgotten."""
        return await self._retrying(lambda: self._coordinator_once(kind, key))

    def remember_coordinator(self, kind: CoordinatorKind, key: str, broker: BrokerId) -> None:
        """What another answer told; where it is wrong, the broker's refusal has it looked for."""
        self._coordinators[kind, key] = broker

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Look for it again before the next use."""
        self._coordinators.pop((kind, key), None)

    async def _coordinator_once(self, kind: CoordinatorKind, key: str) -> BrokerId:
        known = self._coordinators.get((kind, key))
        if known is not None and known in self.leaders.brokers:
            return known
        answer = await self._ask_any(ApiKey.FIND_COORDINATOR, lambda version: _find_request(version, kind, key), None)
        broker, endpoint = _found_coordinator(answer, kind, key)
        if self.leaders.brokers.get(broker) != endpoint:
            self.leaders.brokers = {**self.leaders.brokers, broker: endpoint}
        self._coordinators[kind, key] = broker
        return broker

    # Metadata.

    async def topic(self, name: str, *, create: bool = False, backoff: Backoff | None = None) -> TopicInfo:
        """What is known of a topic, asking only if nothing is. Raises ApiError if the topic cannot be described.

        An unknown topic is asked for again for a moment only: it may just have been created.
        """

        async def describe() -> TopicInfo:
            info = await self._refresh_once([name], create)
            if name in info.errors:
                raise ApiError(info.errors[name], f"topic {name!r} at {self.config.bootstrap_servers}")
            return info.topic(name)

        known = self.leaders.topic(name)
        return known if known is not None else await retrying_async(backoff or self.backoff(), describe)

    async def leader(self, tp: TopicPartition, *, backoff: Backoff | None = None) -> PartitionInfo:
        """The partition with a leader that is in the cluster, asking until there is one."""

        async def ask() -> PartitionInfo:
            topic = await self.topic(tp.topic, backoff=backoff)
            info = self.leaders.partition(tp)
            if info is not None and self.leaders.leader(tp) is not None:
                return info
            self.leaders.invalidate(tp.topic)
            if info is not None:
                raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {tp} has no leader")
            raise no_such_partition(topic, tp.partition)

        return await retrying_async(backoff or self.backoff(), ask)

    async def refresh(self, topics: Collection[str] | None = None, *, create: bool = False) -> ClusterInfo:
        """Ask now: these topics, or all for None. Retries while no broker answers; errors of topics are returned."""
        return await self._retrying(lambda: self._refresh_once(topics, create))

    async def _refresh_once(self, topics: Collection[str] | None, create: bool) -> ClusterInfo:
        """Callers that want the same at the same time share one question.

        One that has kept a caller too long is joined by nobody any more, while there is a broker that owes no answer:
        the next caller asks that one. Those who wait for the old question still get its answer.
        """
        wanted: _Wanted = (None if topics is None else frozenset(topics), create)
        asking = self._refreshes.get(wanted)
        if asking is None:
            asking = self._refreshes[wanted] = asyncio.create_task(self._fetch_metadata(topics, create))
            self._refreshing.add(asking)
            asking.add_done_callback(self._refreshing.discard)
            asking.add_done_callback(partial(self._join_no_more, wanted))
            asking.add_done_callback(retrieve)
        try:
            return await _shared(asking)
        except asyncio.CancelledError:
            if not all(map(self._is_busy, self._least_busy())):
                self._join_no_more(wanted, asking)
            raise

    def _join_no_more(self, wanted: _Wanted, asking: asyncio.Task[ClusterInfo]) -> None:
        if self._refreshes.get(wanted) is asking:
            del self._refreshes[wanted]

    async def _fetch_metadata(self, topics: Collection[str] | None, create: bool) -> ClusterInfo:
        answer = await self._ask_any(
            ApiKey.METADATA, lambda version: metadata_request(version, topics, create), timeout=None
        )
        info = read_metadata(answer)
        self.leaders.apply(info)
        return info

    async def _renew(self) -> None:
        """New partitions, and leaders that moved while they were not asked anything.

        It ends when the session is closed: ``close`` cancels the question too, and then ``_shared`` raises ClientClosed
        in place of the cancellation.
        """
        while not self._is_closed:
            await asyncio.sleep(self.config.metadata_max_age_ms / 1000)
            try:
                await self.refresh(sorted(self.leaders.topics))
            except SparklogError:
                continue  # a caller that needs it will ask, and be told

    async def _ask_any(self, api: ApiKey, build: Build[A], timeout: float | None) -> A:
        """Ask broker after broker until one answers. Raises ``no_broker``'s error if none does."""
        failures: dict[Endpoint, SparklogError] = {}
        since = self.clock.monotonic()
        for endpoint in self._least_busy():
            try:
                connection = await self._connect(endpoint, CONTROL)
                answer = await connection.request(api, build, timeout=self._seconds(timeout))
                self.obstacles.over("brokers")
                return answer
            except PASSED_OVER as error:
                failures[endpoint] = error
        unreachable = no_broker(failures)
        self.obstacles.met("brokers", unreachable, since)
        raise unreachable

    def _least_busy(self) -> list[Endpoint]:
        """The brokers to ask, one after another: those that stand still last, before them those that owe an answer.

        Of the others those that are connected come first.
        """
        known = dict.fromkeys([*self._connected(), *self.leaders.brokers.values(), *self.config.bootstrap])
        still = self._standing_still()
        return sorted(known, key=lambda each: (each in still, self._is_busy(each)))

    def _standing_still(self) -> set[Endpoint]:
        """Those that may be stopped, or hang: in some lane the connection was lost, or an answer is owed for long."""
        return {
            endpoint
            for (endpoint, _), opening in self._connections.items()
            if opening.done() and (_has_failed(opening) or opening.result().waits_for > _LONG)
        }

    def _is_busy(self, endpoint: Endpoint) -> bool:
        opening = self._connections.get((endpoint, CONTROL))
        if opening is None or (opening.done() and _has_failed(opening)):
            return False
        return not opening.done() or opening.result().in_flight > 0

    def _connected(self) -> list[Endpoint]:
        return [
            endpoint
            for (endpoint, lane), opening in self._connections.items()
            if lane == CONTROL and opening.done() and not _has_failed(opening)
        ]

    async def _retrying(
        self,
        attempt: Callable[[], Awaitable[T]],
        patience_ms: int | None = None,
        between: Callable[[], None] | None = None,
    ) -> T:
        return await retrying_async(self.backoff(patience_ms), attempt, between=between)


async def _shared(work: asyncio.Task[T]) -> T:
    """The result of what several may wait for: a cancelled caller leaves it running, only ``close`` cancels it."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if work.cancelled():
            raise ClientClosed("this client was closed") from None
        raise


def _has_failed(opening: asyncio.Task[AsyncConnection]) -> bool:
    return opening.cancelled() or opening.exception() is not None or opening.result().closed


def _find_request(version: int, kind: CoordinatorKind, key: str) -> FindCoordinatorRequest:
    if version >= 4:
        return FindCoordinatorRequest(version=version, key_type=int(kind), coordinator_keys=[key])
    return FindCoordinatorRequest(version=version, key_type=int(kind), key=key)


def _found_coordinator(answer: FindCoordinatorResponse, kind: CoordinatorKind, key: str) -> tuple[BrokerId, Endpoint]:
    found = answer.coordinators[0] if answer.coordinators else answer
    code = ErrorCode(found.error_code)
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"{kind.noun} {key!r}: {found.error_message or 'no broker coordinates it'}")
    return BrokerId(found.node_id), Endpoint(found.host, found.port)
