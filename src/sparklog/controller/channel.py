"""The line from the controller to one broker: requests in order, each tried until the broker answers or is gone.

The queue has no bound: no decision may be left out, and all that wait end with the broker's registration.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Generic, NamedTuple

from sparklog.errors import SparklogError
from sparklog.net.peers import Peer
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import A, Request
from sparklog.rate_limit import RateLimitedLogger
from sparklog.security.connecting import PLAIN, ConnectionSecurity
from sparklog.zk.znodes import BrokerInfo

_logger = logging.getLogger(__name__)
_RETRY_SECONDS = 0.2


class _Queued(NamedTuple, Generic[A]):
    api: ApiKey
    message: Request[A]
    answer: asyncio.Future[A]


class BrokerChannel:
    """Lives as long as the broker's registration does; ``close`` cancels what was not answered."""

    def __init__(self, broker: BrokerInfo, client_id: str, security: ConnectionSecurity = PLAIN) -> None:
        self.broker = broker
        self._peer = Peer(broker.endpoint, client_id, security)
        self._queue: asyncio.Queue[_Queued[Any]] = asyncio.Queue()
        self._warnings = RateLimitedLogger(_logger, asyncio.get_running_loop().time)
        self._task = asyncio.ensure_future(self._run())

    def send(self, api: ApiKey, message: Request[A]) -> asyncio.Future[A]:
        """Queue a request; the future is the answer, cancelled if the broker goes away first."""
        queued = _Queued[A](api, message, asyncio.get_running_loop().create_future())
        self._queue.put_nowait(queued)
        return queued.answer

    async def _run(self) -> None:
        while True:
            queued = await self._queue.get()
            try:
                answer = await self._ask(queued)
            except asyncio.CancelledError:
                queued.answer.cancel()
                raise
            if not queued.answer.done():
                queued.answer.set_result(answer)

    async def _ask(self, queued: _Queued[A]) -> A:
        while True:
            try:
                return await self._peer.request(queued.api, lambda _version: queued.message)
            except SparklogError as error:
                text = f"broker {self.broker.id} did not take {queued.api.name}, trying again: {error}"
                self._warnings.repeat(str(error), text)
                await asyncio.sleep(_RETRY_SECONDS)

    async def close(self) -> None:
        """Stop; nothing more is sent."""
        # More than once: under wait_for, Python 3.11 loses a cancellation that comes together with the answer.
        while not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=_RETRY_SECONDS)
        while not self._queue.empty():
            self._queue.get_nowait().answer.cancel()
        await self._peer.close()
