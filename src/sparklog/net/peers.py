"""Connections to other brokers: opened when they are first needed, kept until they fail, and then opened anew.

Each lane to a broker has a connection of its own. A lane is one kind of requests: a broker answers the requests of one
connection in their order, so that one that waits for replicas would hold up all others behind it.

Invariants:

- To one peer at most one connection is open or being opened, however many ask at once.
- A request is sent once. When it fails, the caller hears why; the next request finds another connection. Whether
  to try again, when, and in what order is the caller's policy.
- At most ``MAX_WAITING`` callers wait for one peer, for its connection or for an answer. The next one gets PeerBusy,
  and its request is not sent.
- After ``close``, and after a ``retain`` that leaves the endpoint out, nothing is open or being opened. The callers
  that waited get ConnectionFailed.
- A caller that is cancelled takes nothing from the others, not even the connection that is being opened for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from sparklog.errors import ConnectionFailed, PeerBusy
from sparklog.net.async_connection import AsyncConnection
from sparklog.net.tasks import Tasks, retrieve
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import A, Request
from sparklog.security.connecting import PLAIN, ConnectionSecurity
from sparklog.structs import Endpoint

MAX_WAITING = 5000
"""For one peer. A coordinator that takes over may end thousands of transactions at once, which all have to get in; and
with a kilobyte a request this is 5 MB, which each of a hundred brokers may keep us waiting with."""

_logger = logging.getLogger(__name__)


class Peer:
    """One broker, and the one connection to it. Belongs to the loop's thread."""

    def __init__(self, endpoint: Endpoint, client_id: str, security: ConnectionSecurity = PLAIN) -> None:
        self.endpoint = endpoint
        self._client_id = client_id
        self._security = security
        self._opening: asyncio.Task[AsyncConnection] | None = None
        self._waiting = 0
        self._is_closed = False

    async def request(self, api: ApiKey, build: Callable[[int], Request[A]], *, timeout: float = 30.0) -> A:
        """Ask once and wait; ``timeout`` seconds without an answer on the connection are too long.

        ``build`` is handed the version agreed on. Raises ConnectionFailed, AuthenticationFailed, ProtocolError
        or PeerBusy.
        """
        if self._waiting >= MAX_WAITING:
            raise PeerBusy(f"{self._waiting} requests wait for the broker at {self.endpoint} already")
        self._waiting += 1
        try:
            connection = await self._connect()
            return await connection.request(api, build, timeout=timeout)
        finally:
            self._waiting -= 1

    async def _connect(self) -> AsyncConnection:
        if self._is_closed:
            raise _closed(self.endpoint)
        opening = self._opening
        if opening is None or _has_failed(opening):
            opening = asyncio.create_task(
                AsyncConnection.open(self.endpoint, client_id=self._client_id, security=self._security)
            )
            opening.add_done_callback(retrieve)
            self._opening = opening
        if not opening.done():
            await asyncio.wait((opening,))
        if self._is_closed:
            raise _closed(self.endpoint)
        return opening.result()

    async def close(self) -> None:
        """Hang up for good; what is written already still goes out."""
        self._is_closed = True
        opening = self._opening
        if opening is None:
            return
        if not opening.done():
            opening.cancel()
            await asyncio.wait((opening,))
        if not _has_failed(opening):
            opening.result().close()


class Peers:
    """Other brokers by their endpoints, in lanes. Make it on the loop that will use it."""

    def __init__(self, client_id: str, security: ConnectionSecurity = PLAIN) -> None:
        self._client_id = client_id
        self._security = security
        self._peers: dict[tuple[Endpoint, str], Peer] = {}
        self._closings = Tasks(
            asyncio.get_running_loop(), lambda _, error: _logger.error("hanging up failed", exc_info=error)
        )
        self._is_closed = False

    async def request(
        self, endpoint: Endpoint, lane: str, api: ApiKey, build: Callable[[int], Request[A]], *, timeout: float = 30.0
    ) -> A:
        """``Peer.request``, of the peer that is at ``endpoint``.

        Raises what that does, and ConnectionFailed after ``close``.
        """
        if self._is_closed:
            raise _closed(endpoint)
        peer = self._peers.get((endpoint, lane))
        if peer is None:
            peer = self._peers[endpoint, lane] = Peer(endpoint, self._client_id, self._security)
        return await peer.request(api, build, timeout=timeout)

    def retain(self, live: Collection[Endpoint]) -> None:
        """Hang up on all others: no live broker is there."""
        for key in [key for key in self._peers if key[0] not in live]:
            self._closings.spawn(self._peers.pop(key).close())

    async def close(self) -> None:
        """Hang up on all, for good."""
        self._is_closed = True
        self.retain(())
        await self._closings.finish()


def _has_failed(opening: asyncio.Task[AsyncConnection]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None or opening.result().closed)


def _closed(endpoint: Endpoint) -> ConnectionFailed:
    return ConnectionFailed(f"the connection to the broker at {endpoint} was closed")
