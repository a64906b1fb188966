"""Visitors of the page, and their sessions: each has connections of its own, which are those of its user."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.client.admin.admin import AsyncAdmin
from sparklog.client.cluster.config import ClientConfig
from sparklog.clock import Clock
from sparklog.errors import ApiError, ClientClosed, ConfigError, ErrorCode
from sparklog.security.mechanisms import JAAS
from sparklog.security.sasl.jaas import login_of
from sparklog.web.fresh import FreshAnswers
from sparklog.web.history import Growth, History
from sparklog.web.settings import WebSettings

IDLE_S: Final = 1800.0
LONGEST_S: Final = 12 * 3600.0
_SESSIONS: Final = 200
_STREAMS: Final = 4
_SWEEP_S: Final = 30.0


@dataclass(eq=False)
class Visitor:
    """One session. ``user`` is empty where the cluster asks for no password."""

    user: str
    config: ClientConfig = field(repr=False)
    clock: Clock
    fresh_s: float
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """What a change must come with."""

    def __post_init__(self) -> None:
        self.admin = AsyncAdmin(self.config)
        self.fresh = FreshAnswers(self.clock, self.fresh_s)
        self.lags = History(self.clock)
        self.growth = Growth(self.clock)
        self.began = self.seen = self.clock.monotonic()
        self._streams: dict[asyncio.Task[object], str] = {}

    async def open(self) -> None:
        """Ask a broker. Raises AuthenticationFailed for a wrong password."""
        await self.admin.__aenter__()
        try:
            await self.admin.describe_topics([])
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End what it has under way, and hang up."""
        streams = [each for each in self._streams if each is not asyncio.current_task()]
        for each in streams:
            each.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        await self.fresh.close()
        await self.admin.__aexit__(None, None, None)

    @property
    def is_over(self) -> bool:
        now = self.clock.monotonic()
        return now - self.seen > IDLE_S or now - self.began > LONGEST_S

    def stream(self, address: str) -> _Stream:
        """``with`` it: something that goes on. Raises ApiError where there are too many already.

        Where everybody is one visitor, each address has its own.
        """
        return _Stream(self._streams, self.user or address)


class _Stream:
    """Counts the task that is in it among its visitor's, and has the visitor's end cancel it."""

    def __init__(self, streams: dict[asyncio.Task[object], str], whose: str) -> None:
        self._streams = streams
        self._whose = whose

    def __enter__(self) -> None:
        if Counter(self._streams.values())[self._whose] >= _STREAMS:
            text = f"{_STREAMS} searches and live tails are open already: close one of them"
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
        task = asyncio.current_task()
        assert task is not None
        self._streams[task] = self._whose

    def __exit__(self, *_: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._streams.pop(task, None)


class Visitors:
    """All sessions of a server. Where nobody logs in there is one visitor, whom everybody is."""

    def __init__(self, settings: WebSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._sessions: dict[bytes, Visitor] = {}
        self._everybody: Visitor | None = None
        self._opening: asyncio.Lock = asyncio.Lock()
        self._sweeping: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self) -> None:
        """End sessions when their time has come."""
        self._sweeping = asyncio.create_task(self._sweep(), name="sparklog web sessions")

    async def close(self) -> None:
        """End all sessions; there are no new ones."""
        self._is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeping
        found = [*self._sessions.values(), *([self._everybody] if self._everybody else [])]
        self._sessions.clear()
        await asyncio.gather(*(each.close() for each in found))

    async def anybody(self) -> Visitor:
        """The one visitor of a cluster that asks for no password."""
        async with self._opening:
            self._check_open()
            if self._everybody is None:
                visitor = self._visitor("", self._settings.client)
                await visitor.open()
                self._everybody = visitor
        return self._everybody

    def of_cookie(self, cookie: str) -> Visitor | None:
        """Whose session it is; None for one that is over, or never was."""
        visitor = self._sessions.get(_hashed(cookie))
        if visitor is None or visitor.is_over:
            return None
        visitor.seen = self._clock.monotonic()
        return visitor

    async def log_in(self, user: str, password: str) -> tuple[str, Visitor]:
        """A new session, and its cookie.

        Raises AuthenticationFailed for a wrong password, ApiError where there are too many sessions.
        """
        await self.sweep()
        self._check_open()
        if len(self._sessions) >= _SESSIONS:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many visitors are logged in: try again later")
        visitor = self._visitor(user, self._config_of(user, password))
        await visitor.open()
        cookie = secrets.token_urlsafe(32)
        self._sessions[_hashed(cookie)] = visitor
        return cookie, visitor

    async def log_out(self, cookie: str) -> None:
        """End a session."""
        visitor = self._sessions.pop(_hashed(cookie), None)
        if visitor is not None:
            await visitor.close()

    async def sweep(self) -> None:
        """End the sessions whose time has come."""
        over = [key for key, each in self._sessions.items() if each.is_over]
        await asyncio.gather(*(self._sessions.pop(key).close() for key in over))

    def _visitor(self, user: str, config: ClientConfig) -> Visitor:
        return Visitor(user, config, self._clock, self._settings.fresh_s)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the server stops")

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            await self.sweep()

    def _config_of(self, user: str, password: str) -> ClientConfig:
        if not user or not password:
            raise ConfigError("a user and a password are needed")
        client = self._settings.client
        login = login_of(self._settings.mechanism, user, password)
        return replace(client, security={**client.security, JAAS: login})


def _hashed(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).digest()
