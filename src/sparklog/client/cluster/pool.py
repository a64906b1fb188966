"""Connections to brokers, kept open between uses."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sparklog.client.cluster.broker_failures import PASSED_OVER, no_broker
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.throttling import Throttling
from sparklog.clock import Clock, SystemClock
from sparklog.errors import ConnectionFailed, SparklogError
from sparklog.net.connection import BlockingConnection, SecondsLeft
from sparklog.structs import Endpoint

T = TypeVar("T")


class ConnectionPool:
    """Lends connections, each to one borrower at a time; may be used by several threads.

    A connection comes back unless it failed or still waits for answers. One that idled may have been closed by its
    broker: its first request then raises ConnectionFailed, and a retry gets a new one.
    """

    def __init__(self, config: ClientConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock
        self._security = config.connection_security(clock or SystemClock())
        self._limits = threading.local()
        self._idle: dict[Endpoint, list[BlockingConnection]] = {}
        self._failed: set[Endpoint] = set()
        """Those that failed and have answered nothing since."""
        self._lock = threading.Lock()
        self._is_closed = False
        self.throttling = Throttling()
        """What brokers have asked to wait, on all connections."""

    @contextmanager
    def within(self, seconds_left: SecondsLeft) -> Iterator[None]:
        """What this thread borrows in here, it waits for no longer than this says, nor than a ``with`` around it."""
        around = self._limit
        self._limits.now = seconds_left if around is None else lambda: min(seconds_left(), around())
        try:
            yield
        finally:
            self._limits.now = around

    @property
    def _limit(self) -> SecondsLeft | None:
        return getattr(self._limits, "now", None)

    @contextmanager
    def borrow(self, endpoint: Endpoint) -> Iterator[BlockingConnection]:
        """A connection for the length of a ``with``. Raises ConnectionFailed if the broker cannot be reached."""
        connection = self.take(endpoint)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        else:
            self.give_back(connection)

    def take(self, endpoint: Endpoint) -> BlockingConnection:
        """A connection that the caller must give back or close."""
        with self._lock:
            idle = self._idle.get(endpoint)
            connection = idle.pop() if idle else None
        limit = self._limit
        if connection is None:
            connection = self._open(endpoint, math.inf if limit is None else limit())
        connection.bind(limit)
        return connection

    def _open(self, endpoint: Endpoint, seconds_left: float) -> BlockingConnection:
        if seconds_left <= 0:
            raise ConnectionFailed(f"no time is left to reach broker {endpoint}")
        return BlockingConnection(
            endpoint,
            client_id=self._config.client_id,
            connect_timeout=min(self._config.connect_timeout_ms / 1000, seconds_left),
            request_timeout=self._config.request_timeout_ms / 1000,
            clock=self._clock,
            security=self._security,
            throttled=self.throttling.add,
        )

    def give_back(self, connection: BlockingConnection) -> None:
        """For the next borrower; nothing may be in flight on it. After ``close`` there is none, and it is closed."""
        if connection.closed:
            return
        with self._lock:
            self._failed.discard(connection.endpoint)
            if not self._is_closed:
                self._idle.setdefault(connection.endpoint, []).append(connection)
                return
        connection.close()

    def forget(self, endpoint: Endpoint) -> None:
        """Close what idles to a broker that failed: it is as broken as the one that showed it."""
        with self._lock:
            idle = self._idle.pop(endpoint, [])
            self._failed.add(endpoint)
        for connection in idle:
            connection.close()

    def first_reachable(self, endpoints: list[Endpoint]) -> BlockingConnection:
        """A connection to the first of ``endpoints`` that is a broker. Raises ``no_broker``'s error."""
        return self._first(endpoints, self.take)

    def first_answer(self, endpoints: list[Endpoint], ask: Callable[[BlockingConnection], T]) -> T:
        """What ``ask`` returns for the first of ``endpoints`` that answers it. Raises ``no_broker``'s error."""

        def borrow_and_ask(endpoint: Endpoint) -> T:
            with self.borrow(endpoint) as connection:
                return ask(connection)

        return self._first(endpoints, borrow_and_ask)

    def _first(self, endpoints: list[Endpoint], attempt: Callable[[Endpoint], T]) -> T:
        """Those to which a connection is open are tried first, those that failed last: a frozen broker takes long."""
        failures: dict[Endpoint, SparklogError] = {}
        for endpoint in sorted(endpoints, key=lambda each: (each in self._failed, not self._idle.get(each))):
            try:
                return attempt(endpoint)
            except PASSED_OVER as error:
                failures[endpoint] = error
                self.forget(endpoint)
        raise no_broker(failures)

    def close(self) -> None:
        """Close what idles. What is lent now is closed when it comes back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()
