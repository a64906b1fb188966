"""When to ask again: which errors pass by themselves, for how long, and how patiently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from sparklog.client.cluster.config import ClientConfig
from sparklog.clock import Clock
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode, SparklogError

T = TypeVar("T")

UNKNOWN_TOPIC_PATIENCE = 3.0
"""Seconds for which an unknown topic or partition is asked for again, from the first time that this is the answer: one
just created is not known everywhere yet, nor all topics to a broker that has just started."""


_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class OutOfTime(ApiError):
    """The deadline came while an attempt was under way."""

    def __init__(self, seconds: float, last_error: SparklogError | None) -> None:
        before = "" if last_error is None else f"; the attempt before failed: {last_error}"
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, f"no answer within {seconds:g} s{before}")


def is_retriable(error: SparklogError) -> bool:
    """Whether the same question may get another answer later: a network failure, or a code that says so."""
    return isinstance(error, ConnectionFailed) or (isinstance(error, ApiError) and error.code.retriable)


def raise_worst(outcomes: Iterable[object]) -> None:
    """Raise the first failure among these, if there is one: what does not pass by itself before what does."""
    failures = [each for each in outcomes if isinstance(each, BaseException)]
    for failure in sorted(failures, key=lambda each: isinstance(each, SparklogError) and is_retriable(each)):
        raise failure


def pause_after(failures: int, config: ClientConfig) -> float:
    """Seconds to wait after so many failures in a row: ``retry.backoff.ms``, doubled up to its limit."""
    doubled: int = config.retry_backoff_ms << min(failures - 1, 16)
    return min(doubled, config.retry_backoff_max_ms) / 1000


class Backoff:
    """Pauses that double up to a limit, until a deadline. ``reset`` after progress starts both over."""

    def __init__(
        self, config: ClientConfig, clock: Clock, timeout_ms: int, patience: float = UNKNOWN_TOPIC_PATIENCE
    ) -> None:
        self._config = config
        self._clock = clock
        self._timeout = timeout_ms / 1000
        self._patience = patience
        self.last_error: SparklogError | None = None
        """What the attempts failed with, so far."""
        self.reset()

    def reset(self) -> None:
        self._deadline = self._clock.monotonic() + self._timeout
        self._unknown_since: float | None = None
        self._pause = self._config.retry_backoff_ms / 1000

    @property
    def expired(self) -> bool:
        """Whether the time for retries is over."""
        return self._clock.monotonic() >= self._deadline

    @property
    def seconds_left(self) -> float:
        """How long until the time for retries is over."""
        return max(self._deadline - self._clock.monotonic(), 0.0)

    def out_of_time(self) -> OutOfTime:
        """What an attempt that the deadline ended is raised as."""
        return OutOfTime(self._timeout, self.last_error)

    def wait(self, error: SparklogError) -> None:
        """Let the next pause pass; raises ``error`` itself when it is not retriable or the deadline has come."""
        self._clock.sleep(self.next_pause(error))

    def next_pause(self, error: SparklogError) -> float:
        """Seconds to wait before the next attempt; raises ``error`` where there is to be none."""
        self.last_error = error
        if self._is_unknown_for_good(error) or self.expired or not is_retriable(error):
            raise error
        pause = min(self._pause, self.seconds_left)
        self._pause = min(2 * self._pause, self._config.retry_backoff_max_ms / 1000)
        return pause

    def _is_unknown_for_good(self, error: SparklogError) -> bool:
        if not isinstance(error, ApiError) or error.code not in _UNKNOWN:
            self._unknown_since = None
            return False
        now = self._clock.monotonic()
        if self._unknown_since is None:
            self._unknown_since = now
        return now >= self._unknown_since + self._patience


def retrying(backoff: Backoff, attempt: Callable[[], T], *, between: Callable[[], None] | None = None) -> T:
    """The first success of ``attempt``; ``between`` runs after each failure that will be retried."""
    while True:
        try:
            return attempt()
        except SparklogError as error:
            backoff.wait(error)
            if backoff.expired:
                raise
            if between is not None:
                between()


async def retrying_async(
    backoff: Backoff,
    attempt: Callable[[], Awaitable[T]],
    *,
    between: Callable[[], None] | None = None,
    cut: bool = True,
) -> T:
    """``retrying`` on an event loop. An attempt that is under way at the deadline is cancelled: OutOfTime is raised.

    Without ``cut`` the deadline is that of the retries alone.
    """
    while True:
        try:
            async with asyncio.timeout(backoff.seconds_left if cut else None) as limit:
                return await attempt()
        except TimeoutError:
            if limit.expired():
                raise backoff.out_of_time() from None
            raise
        except SparklogError as error:
            await asyncio.sleep(backoff.next_pause(error))
            if backoff.expired:
                raise
            if between is not None:
                between()
