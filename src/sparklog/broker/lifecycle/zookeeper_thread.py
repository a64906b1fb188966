"""The thread on which a broker asks ZooKeeper, for its client blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sparklog.clock import Clock
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, CoordinationError, ErrorCode, MalformedZnode
from sparklog.net.request_meter import RequestMeter
from sparklog.zk.holding import HoldingClient

T = TypeVar("T")


class ZooKeeperThread:
    """Runs calls of ``client`` in order. Belongs to the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="zookeeper")
        self.client: HoldingClient
        """Once ``connect`` has returned."""
        self.is_patient = True
        """Whether a connection that breaks only delays a call."""
        self.meter = RequestMeter("ZooKeeper", 1)
        """How long what was asked of ZooKeeper took, with its wait for what was asked before."""
        self._given_up = threading.Event()
        self._silent: asyncio.Future[None] = loop.create_future()
        """Set by ``give_up`` while no ZooKeeper answers."""
        self._is_connected: Callable[[], bool] = lambda: False

    async def connect(self, config: BrokerConfig, on_session: Callable[[str], None]) -> None:
        """Have a session, whose events are told to ``on_session`` on the loop. Raises CoordinationError."""

        def hear(event: str) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(on_session, event)

        self.client = await self._loop.run_in_executor(self._thread, lambda: _client(config, hear, self._given_up))
        self._is_connected = lambda: self.client.is_connected

    async def run(self, call: Callable[..., T], *args: object) -> T:
        """Run a blocking call of ``client``. Raises CoordinationError."""
        ask = self.client.lasting if self.is_patient else self.client.guarded
        began = self._clock.monotonic()
        try:
            answer = self._loop.run_in_executor(self._thread, lambda: ask(call, *args))
            if self.is_patient:
                await self._unless_silent(answer)
            return await answer
        finally:
            self.meter.answer(self._clock.monotonic() - began)

    async def _unless_silent(self, answer: asyncio.Future[T]) -> None:
        """Wait for an answer. Raises CoordinationError after ``give_up``; the call ends with the client then."""
        await asyncio.wait((answer, self._silent), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            answer.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise CoordinationError("stopped before ZooKeeper had answered")

    async def ask(self, call: Callable[..., T], *args: object) -> T:
        """``run`` for an API handler: a silent ZooKeeper becomes what a client is told, and tries again;
        what it holds and should not is no reason to."""
        try:
            return await self.run(call, *args)
        except MalformedZnode as error:  # asking again does not help
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
        except CoordinationError as error:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper did not answer the broker: {error}") from error

    def give_up(self) -> None:
        """Wait no longer while it is patient, where no ZooKeeper answers: CoordinationError is raised instead."""
        self._given_up.set()
        if not self._is_connected() and not self._silent.done():
            self._silent.set_result(None)

    def disconnect(self) -> Awaitable[None]:
        """End the session, on another thread than the one of the calls, for one of them may wait for ZooKeeper."""
        return self._loop.run_in_executor(None, self.client.close)

    def close(self) -> None:
        """End the thread, after the call that it is at."""
        self._thread.shutdown()


def _client(config: BrokerConfig, on_session: Callable[[str], None], given_up: threading.Event) -> HoldingClient:
    return HoldingClient(
        config.zookeeper_connect,
        session_timeout=config.zookeeper_session_timeout_ms / 1000,
        on_session=on_session,
        between_brokers=config.ends.between_brokers,
        security=config.zookeeper_security,
        given_up=given_up,
    )
