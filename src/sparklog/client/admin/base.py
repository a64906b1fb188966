"""What every part of the asynchronous admin client shares: whom to ask, and what an error in an answer means."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from sparklog.client.cluster.retry import raise_worst, retrying_async
from sparklog.client.cluster.session import CONTROL, Build, Check, Session, raise_error_code
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import A
from sparklog.structs import BrokerId, TopicPartition

T = TypeVar("T")


class Judged(Protocol):
    """An answer, or a part of one, that says what became of it."""

    @property
    def error_code(self) -> int: ...


J = TypeVar("J", bound=Judged)
Answers = Mapping[TopicPartition, "T | ApiError"]


class AdminBase:
    """One session, and the ways to put a question to it. Errors that pass by themselves are retried."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _timeout_ms(self) -> int:
        """How long brokers may take over a change. They say what it waits for: so that comes while the call lasts."""
        config = self._session.config
        return min(config.request_timeout_ms, config.api_timeout_ms) * 9 // 10

    async def _ask_broker(
        self, broker: BrokerId, api: ApiKey, build: Build[A], check: Check[A] = raise_error_code
    ) -> A:
        async def ask() -> A:
            if broker not in self._session.leaders.brokers:
                await self._session.refresh([])
            answer = await self._session.request(broker, api, build, lane=CONTROL)
            check(answer)
            return answer

        return await retrying_async(self._session.backoff(), ask)

    async def _every_broker(self) -> list[BrokerId]:
        return sorted((await self._session.refresh([])).brokers)

    async def _ask_every_broker(
        self, api: ApiKey, build: Build[A], check: Check[A] = raise_error_code
    ) -> dict[BrokerId, A]:
        """What every broker of the cluster answers. Where one does not, all are asked again, those that are there by
        then: what a dead broker would have told is told by those that take over from it."""

        async def ask(broker: BrokerId) -> A:
            answer = await self._session.request(broker, api, build, lane=CONTROL)
            check(answer)
            return answer

        async def ask_all() -> dict[BrokerId, A]:
            brokers = await self._every_broker()
            return dict(zip(brokers, await asyncio.gather(*map(ask, brokers)), strict=True))

        return await retrying_async(self._session.backoff(), ask_all)

    async def _ask_reachable_brokers(
        self,
        api: ApiKey,
        build: Build[A],
        timeout: float,
        *,
        check: Check[A] = raise_error_code,
        lane: str = CONTROL,
    ) -> dict[BrokerId, A | SparklogError]:
        """What each broker answers within ``timeout`` seconds, or why it does not; each is asked once."""

        async def ask(broker: BrokerId) -> A | SparklogError:
            try:
                async with asyncio.timeout(timeout):
                    answer = await self._session.request(broker, api, build, lane=lane)
                check(answer)
                return answer
            except (SparklogError, TimeoutError) as error:
                return self._silence(broker, timeout, error)

        brokers = await self._every_broker()
        return dict(zip(brokers, await asyncio.gather(*map(ask, brokers)), strict=True))

    def _silence(self, broker: BrokerId, timeout: float, error: Exception) -> SparklogError:
        """The error that names a broker which did not answer; what a broker answers is an error of its own."""
        if isinstance(error, ApiError):
            return error
        at = self._session.leaders.brokers.get(broker)
        what = f"did not answer in {timeout:g} s" if isinstance(error, TimeoutError) else f"cannot be asked: {error}"
        return ConnectionFailed(f"broker {broker} at {at} {what}")

    async def _ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[BrokerId, list[TopicPartition]], Awaitable[Answers[T]]],
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, T]:
        """What each partition's leader answers; leaders that moved are followed. Raises ApiError for what does not
        pass by itself, when all leaders have been asked, and OutOfTime after ``timeout_ms``, by default
        ``default.api.timeout.ms``.
        """
        found: dict[TopicPartition, T] = {}
        left = set(partitions)

        async def put(broker: BrokerId, mine: list[TopicPartition]) -> None:
            told = await ask(broker, mine)
            found.update({tp: answer for tp, answer in told.items() if not isinstance(answer, ApiError)})
            left.difference_update(found)
            raise_worst(told.values())

        async def ask_what_is_left() -> None:
            by_leader, failures = await self._leaders(left)
            asked = (put(broker, mine) for broker, mine in by_leader.items())
            raise_worst([*failures, *await asyncio.gather(*asked, return_exceptions=True)])

        def forget_leaders() -> None:
            for tp in left:
                self._session.leaders.invalidate(tp.topic)

        await retrying_async(self._session.backoff(timeout_ms), ask_what_is_left, between=forget_leaders)
        return found

    async def _leaders(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[BrokerId, list[TopicPartition]], list[ApiError]]:
        """The partitions under their leaders, and why others have none now."""
        groups: dict[BrokerId, list[TopicPartition]] = {}
        failures = []
        wanted, leaders = sorted(partitions), self._session.leaders
        unknown = {tp.topic for tp in wanted if leaders.leader(tp) is None}
        errors = (await self._session.refresh(unknown)).errors if unknown else {}
        for tp in wanted:
            leader = leaders.leader(tp)
            if leader is None:
                failures.append(self._leaderless(tp, errors.get(tp.topic)))
            else:
                groups.setdefault(leader, []).append(tp)
        return groups, failures

    def _leaderless(self, tp: TopicPartition, error: ErrorCode | None) -> ApiError:
        if error is not None:
            return ApiError(error, f"topic {tp.topic!r} at {self._session.config.bootstrap_servers}")
        return self._session.leaders.leaderless([tp])


def error_of(each: Judged, what: str) -> ApiError | None:
    """The error that a part of an answer carries, named after ``what`` it concerns."""
    code = ErrorCode(each.error_code)
    if code is ErrorCode.NONE:
        return None
    return ApiError(code, f"{what}: {getattr(each, 'error_message', None) or code.name}")


def raise_error(each: Judged, what: str) -> None:
    """Raises the error that a part of an answer carries, if any."""
    error = error_of(each, what)
    if error is not None:
        raise error


def raise_first(results: Iterable[J], name: Callable[[J], str]) -> None:
    """Raises the error of the first part that has one."""
    for each in results:
        raise_error(each, name(each))
