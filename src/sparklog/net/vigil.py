"""Whether a process is there, by its address: what one connection attempt shows, and a connection that is kept for it.

A process that ends, however it ends, has its sockets closed by the kernel: connections to it break, and its address
refuses new ones. Only that refusal (RST, ``ECONNREFUSED``) is a sign of a process that is gone. A pause, a host without
power and a cut network refuse nothing: they are silent, and silence is UNKNOWN here, as is any other failure.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from enum import IntEnum

from sparklog.net.tasks import retrieve
from sparklog.net.unreachable import UNREACHABLE
from sparklog.structs import Endpoint

_TIMEOUT_S = 2.0
_MAX_PORT = 65535
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
_STEADY_S = 1.0
"""After a connection that lasted so long the pauses begin anew."""
_KEEPALIVE_S = 5
"""A host that was without power answers with a reset when it is back; until then nothing shows that it was away."""
_NO_SUCH_FAMILY = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""This machine has no IPv6 (or no IPv4): such an address of a name says nothing."""


class Sight(IntEnum):
    """What is seen at an address; the numbers are those of ProbeBroker's answer."""

    UNKNOWN = 0
    REACHED = 1
    """Somebody takes connections there."""
    REFUSED = 2
    """The kernel of the host says that nobody does."""


class Looks:
    """Looks at addresses, one connection attempt each; whoever wants to know the same waits for the same attempt."""

    def __init__(self) -> None:
        self._under_way: dict[Endpoint, asyncio.Task[Sight]] = {}

    async def at(self, endpoint: Endpoint) -> Sight:
        """What is seen there within two seconds."""
        task = self._under_way.get(endpoint)
        if task is None:
            task = self._under_way[endpoint] = asyncio.ensure_future(look_at(endpoint))
            task.add_done_callback(retrieve)
            task.add_done_callback(lambda _: self._under_way.pop(endpoint, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Look no more."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def look_at(endpoint: Endpoint) -> Sight:
    """Connect and hang up."""
    found = await _connect(endpoint)
    if isinstance(found, socket.socket):
        found.close()
        return Sight.REACHED
    return found


def sight_of(failures: Sequence[Exception]) -> Sight:
    """What the failures to connect to all addresses of a host show together: one that does not refuse may be it."""
    telling = [each for each in failures if not (isinstance(each, OSError) and each.errno in _NO_SUCH_FAMILY)]
    is_refused = bool(telling) and all(isinstance(each, ConnectionRefusedError) for each in telling)
    return Sight.REFUSED if is_refused else Sight.UNKNOWN


async def _connect(endpoint: Endpoint) -> socket.socket | Sight:
    if not 0 < endpoint.port <= _MAX_PORT or "\0" in endpoint.host:  # getaddrinfo would cut off what is too much
        return Sight.UNKNOWN
    loop = asyncio.get_running_loop()
    failures: list[Exception] = []
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            for family, kind, protocol, _, address in await loop.getaddrinfo(*endpoint, type=socket.SOCK_STREAM):
                try:
                    return await _connect_to(loop, socket.socket(family, kind, protocol), address)
                except UNREACHABLE as error:
                    failures.append(error)
    except UNREACHABLE:  # the time is over, or the name is not known
        return Sight.UNKNOWN
    return sight_of(failures)


async def _connect_to(loop: asyncio.AbstractEventLoop, sock: socket.socket, address: object) -> socket.socket:
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, address)  # type: ignore[arg-type]  # as getaddrinfo gave it
        if (
            sock.getsockname() == sock.getpeername()
        ):  # a free port of this host may be given to the one that asks for it
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connected to itself")
    except BaseException:
        sock.close()
        raise
    return sock


class Vigil:
    """A connection to an address, opened again whenever it breaks, that carries nothing; runs until ``close``.

    ``on_sight`` is told of each connection that is made, or breaks, and of each attempt that fails. The next attempt is
    made at once when a connection breaks, then after pauses that grow to a second.
    """

    def __init__(self, endpoint: Endpoint, on_sight: Callable[[Sight], None]) -> None:
        self.endpoint = endpoint
        self._on_sight = on_sight
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        loop, pause = asyncio.get_running_loop(), _FIRST_PAUSE_S
        while True:
            found = await _connect(self.endpoint)
            if isinstance(found, socket.socket):
                began = loop.time()
                self._on_sight(Sight.REACHED)
                await _until_lost(loop, found)
                self._on_sight(Sight.UNKNOWN)
                if loop.time() - began >= _STEADY_S:
                    pause = _FIRST_PAUSE_S
                    continue
            else:
                self._on_sight(found)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def close(self) -> None:
        """Hang up, and look no more."""
        while not self._task.done():  # more than once: an ``asyncio.timeout`` may take a cancellation for its own
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=_TIMEOUT_S)


class _Silence(asyncio.Protocol):
    def __init__(self, lost: asyncio.Event) -> None:
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (the transport passes it)
        self._lost.set()


async def _until_lost(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    lost = asyncio.Event()
    _keep_alive(sock)
    try:
        transport, _ = await loop.create_connection(lambda: _Silence(lost), sock=sock)
    except BaseException:
        sock.close()
        raise
    try:
        await lost.wait()
    finally:
        transport.abort()


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)
