"""Connections of an HTTP server: so many at a time, and none that does not say what it wants.

aiohttp takes any number of connections, and waits for the first request of each for ever. A client that opens some
thousand takes all descriptors of the process. Here a connection beyond the bound is aborted at once, and one whose
first request has no whole head after some seconds is aborted then. Between later requests aiohttp's own time holds
(``keepalive_timeout``). One that takes nothing of an answer for a while is aborted too: it would hold the answer, and
its place, for ever.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final, cast

from sparklog.errors import ConfigError
from sparklog.net.listen_failure import remedy

HANDSHAKE_S: Final = 10.0
"""How long a connection's TLS may take, and then its first request's head."""
STALLED_S: Final = 30.0
"""For how long a connection may take nothing of what is to be sent."""
_END_OF_HEAD: Final = b"\r\n\r\n"


def http_socket(host: str, port: int, asked_by: str) -> socket.socket:
    """A listening socket. Raises ConfigError; ``asked_by`` names in it what asks for the port."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(f"cannot listen for {asked_by} at {host}: {remedy(host, error)}") from error


class HttpConnections:
    """A factory of protocols for ``loop.create_server``: those that ``make`` makes, while there are few enough.

    ``most`` are open at a time, ``most_of_address`` of one address. The last ``kept_for_loopback`` are for clients on
    this machine, such as what looks whether a container lives. A client there has many addresses, 127.0.0.0 to
    127.255.255.255, so it can take all places.
    """

    def __init__(
        self, make: Callable[[], asyncio.Protocol], most: int, most_of_address: int, kept_for_loopback: int = 0
    ) -> None:
        self._make = make
        self._most = most
        self._most_of_address = most_of_address
        self._kept_for_loopback = kept_for_loopback
        self._open: Counter[str] = Counter()

    def __call__(self) -> asyncio.Protocol:
        return _Connection(self, self._make())

    async def listen(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        """Serve what connects to the socket, on the running loop."""
        handshake_s = None if tls is None else HANDSHAKE_S
        return await asyncio.get_running_loop().create_server(
            self, sock=sock, ssl=tls, ssl_handshake_timeout=handshake_s
        )

    def admit(self, address: str) -> bool:
        """Whether one more may be open; it counts from then on."""
        most = self._most if _is_loopback(address) else self._most - self._kept_for_loopback
        is_admitted = self._open.total() < most and self._open[address] < self._most_of_address
        if is_admitted:
            self._open[address] += 1
        return is_admitted

    def leave(self, address: str) -> None:
        """It is closed."""
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


class _Connection(asyncio.Protocol):
    """Hands all events on to ``inner``, if the connection is admitted."""

    def __init__(self, connections: HttpConnections, inner: asyncio.Protocol) -> None:
        self._connections = connections
        self._inner = inner
        self._address: str | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        address = str((transport.get_extra_info("peername") or ("",))[0])
        if not self._connections.admit(address):
            cast("asyncio.Transport", transport).abort()
            return
        self._address = address
        self._transport = cast("asyncio.Transport", transport)
        self._patience = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._transport.abort)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._address is None:
            return
        if self._patience is not None:
            self._look_for_the_end_of_the_head(data)
        self._inner.data_received(data)

    def _look_for_the_end_of_the_head(self, data: bytes) -> None:
        if _END_OF_HEAD in self._head + data:
            self._wait_no_more()
        self._head = (self._head + data)[-len(_END_OF_HEAD) + 1 :]

    def _wait_no_more(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def eof_received(self) -> bool | None:
        return None if self._address is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        if self._address is not None:
            self._inner.pause_writing()
            self._look_later()

    def resume_writing(self) -> None:
        self._look_no_more()
        if self._address is not None:
            self._inner.resume_writing()

    def _look_later(self) -> None:
        assert self._transport is not None
        left = self._transport.get_write_buffer_size()
        self._stalled = asyncio.get_running_loop().call_later(STALLED_S, self._look, left)

    def _look(self, before: int) -> None:
        assert self._transport is not None
        if self._transport.get_write_buffer_size() >= before:
            self._transport.abort()
        else:
            self._look_later()

    def _look_no_more(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is None:
            return
        self._wait_no_more()
        self._look_no_more()
        self._connections.leave(self._address)
        self._address = None
        self._inner.connection_lost(exc)
