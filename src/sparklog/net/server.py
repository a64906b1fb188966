"""The broker's listening ends: which connections are let in, how long they may stay, and how it ends.

A newcomer is served before those that have had something. So while ``_CROWD`` connections wait for their turn, one is
let in each ``TURN_S``, and the others wait in the backlog: clients that connect without end hold up those that are
connected no longer than that crowd takes.

Strangers, those in a TLS handshake or before their authentication, have ``_KNOWN_WITHIN_S`` for it, and there are
``_MOST_STRANGERS`` at most: the one that has taken longest gives way to the next. So peers that begin and go no further
keep nobody out. No line is logged of one that sent nothing in its time: a controller's watch over this broker
(``net/vigil.py``) is one of these, and comes again.

A connection of an address that connects more often than it may (``quota/connections.py``) is held unread for a while
and closed then; no more than ``_MOST_HELD`` of them, the next is closed at once. It takes no place of another.

What happens on a connection: ``net/channel.py``. What its clients may have: ``net/limits.py``; the limits may be
replaced at any time and are in force at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sparklog.config.listeners import PLAINTEXT
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import AuthenticationFailed
from sparklog.net.answer import Dispatch
from sparklog.net.channel import ServerChannel
from sparklog.net.limits import AcceptRate, Limits
from sparklog.net.slow_requests import SlowRequests
from sparklog.net.tls import Handshake, TlsSocket
from sparklog.net.turns import TURN_S, Turns
from sparklog.quota.connections import ConnectionRates
from sparklog.rate_limit import RateLimitedLogger
from sparklog.security.address import plain_address
from sparklog.security.caller import Caller, Gate
from sparklog.security.principal import ANONYMOUS, Principal
from sparklog.structs import Endpoint

_logger = logging.getLogger(__name__)

_ACCEPTS_A_TURN = 64
_CROWD = 64
BACKLOG = 512
_ACCEPT_PAUSE_S = 1.0
_LOOKS_FOR_IDLE_EVERY_S = 30.0
_MOST_STRANGERS = 1000
_KNOWN_WITHIN_S = 30.0
_MOST_HELD = 1000


class Accounts(Protocol):
    """Counts what the loop spends on connections (``broker/client_quotas.py``)."""

    def begin(self, caller: Caller) -> None:
        """It has connected."""

    def settle(self, caller: Caller) -> None:
        """Its connection is closed; may be said again."""


@dataclass
class Entrance:
    """One listener: its name, and what it asks of its peers. ``tls`` may be replaced: it is for the next handshake."""

    listener: str = PLAINTEXT
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: ssl.SSLContext | None = None
    principal_of: Callable[[str, bytes | None], Principal] = lambda _, __: ANONYMOUS
    """Of a peer's address, and its certificate in DER; None where it has shown none."""
    gate: Callable[[Caller], Gate] | None = None
    """What peers have to pass before they are served."""


class _Door:
    """A listening socket, and whether it is being asked for connections."""

    def __init__(self, sock: socket.socket, entrance: Entrance) -> None:
        self.socket = sock
        self.entrance = entrance
        self.is_open = False


class SocketServer:
    """Listens, and hands each request frame to ``dispatch``. All on one loop, in one thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        dispatch: Dispatch,
        limits: Limits,
        rates: ConnectionRates | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        self.loop = loop
        self.dispatch = dispatch
        self.warnings = RateLimitedLogger(_logger, loop.time)
        self.slow_requests = SlowRequests(self.warnings, limits.slow_request_s)
        self.turns = Turns(loop)
        self._limits = limits
        self._rates = rates
        self._accounts = accounts
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        self._channels: set[ServerChannel] = set()
        self.opened: Counter[str] = Counter()
        """Connections that have been opened, by listener."""
        self.authenticated: Counter[str] = Counter()
        """Peers that have proved by TLS or SASL who they are, or a listener's TLS handshakes, by listener."""
        self.refused: Counter[str] = Counter()
        """Those that have failed to, by listener."""
        self.turned_away = 0
        """Connections that were closed before they were one: too many of a host, too fast, or no handshake."""
        self._by_host: dict[str, int] = {}
        self._doors: list[_Door] = []
        self._accepting = False
        self._handshakes: set[Handshake] = set()
        self._strangers: dict[ServerChannel | Handshake, float] = {}
        self._strangers_timer: asyncio.TimerHandle | None = None
        self._accept_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._rate = AcceptRate(loop.time())
        self._request_bytes = 0
        self._answer_bytes = 0
        self._starved: dict[ServerChannel, None] = {}
        self._drained: asyncio.Future[None] | None = None

    @property
    def limits(self) -> Limits:
        """Setting them puts them in force: connections beyond them are closed, the longest idle first."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = limits
        self.slow_requests.limit_s = limits.slow_request_s
        excess = len(self._channels) - limits.max_connections
        if excess > 0:
            for channel in sorted(self._channels, key=lambda each: (not each.is_idle, each.last_active))[:excess]:
                channel.close("there are more connections than max.connections allows now")
        self._give_memory()
        self._look_for_idle_later()
        self._accept()

    # Accepting

    def bind(self, host: str, port: int, entrance: Entrance | None = None) -> Endpoint:
        """Take the port without listening yet; the real one is returned. Raises OSError if it is taken."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
        except OSError:
            listener.close()
            raise
        listener.setblocking(False)
        self._doors.append(_Door(listener, entrance or Entrance()))
        return Endpoint(host, listener.getsockname()[1])

    def start(self) -> None:
        """Begin to accept connections."""
        for door in self._doors:
            door.socket.listen(BACKLOG)
        self._accept()
        self._look_for_idle_later()

    def _accept(self) -> None:
        """Accept again, if it was left off and may go on."""
        if self._doors and not self._accepting and self._accept_timer is None:
            self._accepting = True
            for door in self._doors:
                self.loop.add_reader(door.socket.fileno(), self._on_connection, door)

    def _accept_no_more(self, pause_s: float | None = None) -> None:
        """Let new clients wait, for ``pause_s`` or until a connection ends."""
        if self._accepting:
            self._accepting = False
            for door in self._doors:
                self.loop.remove_reader(door.socket.fileno())
            if pause_s is not None:
                self._accept_timer = self.loop.call_later(pause_s, self._accept_after_pause)

    def _accept_after_pause(self) -> None:
        self._accept_timer = None
        self._accept()

    def _on_connection(self, door: _Door) -> None:
        is_crowded = self.turns.waiting >= _CROWD
        began = self.turns.time()
        self._accept_some(door, 1 if is_crowded else _ACCEPTS_A_TURN)
        self.turns.spend(began)
        if is_crowded:
            self._accept_no_more(TURN_S)

    def _accept_some(self, door: _Door, most: int) -> None:
        for _ in range(most):
            if door not in self._doors or not self._may_accept():
                return
            try:
                sock, address = door.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                self._rate.give_back()
                return
            except OSError as error:
                _logger.error("cannot accept a connection, trying again in %g s: %s", _ACCEPT_PAUSE_S, error.strerror)
                self._accept_no_more(_ACCEPT_PAUSE_S)
                return
            self._let_in(door.entrance, sock, plain_address(address[0]) or address[0], address[1])

    def _may_accept(self) -> bool:
        most = self._limits.max_connections
        if len(self._channels) + len(self._handshakes) >= most:
            self.warnings.warn("full", f"all max.connections={most} are taken; a new client waits for one to end")
            self._accept_no_more()
            return False
        delay = self._rate.delay(self._limits.max_rate, self.loop.time())
        if delay:
            self._accept_no_more(delay)
            return False
        return True

    def _let_in(self, entrance: Entrance, sock: socket.socket, host: str, port: int) -> None:
        held, most = self._by_host.get(host, 0), self._limits.of_host(host)
        if held >= most:
            self.warnings.warn(
                "host",
                f"hung up on {host}:{port}: {host} has {held} connections already, and max.connections.per.ip (or "
                f"max.connections.per.ip.overrides) allows it {most}",
            )
            self.turned_away += 1
            sock.close()
            return
        if self._rates is not None and self._rates.is_set:
            held_ms = self._rates.record(host, int(self.loop.time() * 1000))
            if held_ms:
                self._hold(sock, host, held_ms / 1000)
                return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._by_host[host] = held + 1
        if entrance.tls is None:
            self._open(entrance, sock, host, port)
        else:
            self._greet(entrance, entrance.tls, sock, host, port)

    def _hold(self, sock: socket.socket, host: str, seconds: float) -> None:
        """Hang up on it after a while: its client, which waits meanwhile, has connected more often than it may."""
        self.turned_away += 1
        self._rate.give_back()
        self.warnings.warn("rate", f"{host} connects more often than connection_creation_rate allows it")
        if len(self._held) >= _MOST_HELD:
            sock.close()
        else:
            self._held[sock] = self.loop.call_later(seconds, self._let_go, sock)

    def _let_go(self, sock: socket.socket) -> None:
        del self._held[sock]
        sock.close()

    def _greet(self, entrance: Entrance, tls: ssl.SSLContext, sock: socket.socket, host: str, port: int) -> None:
        def on_end(wrapped: TlsSocket | None, why: str) -> None:
            self._handshakes.discard(handshake)
            self._strangers.pop(handshake, None)
            if wrapped is not None:
                self._open(entrance, wrapped, host, port)
                return
            self._leave(host)
            self.turned_away += 1
            self.refused[entrance.listener] += 1
            if why:
                self.warnings.repeat(f"{host} {why}", f"closing the connection of {host}:{port}: {why}")

        try:
            handshake = Handshake(self.loop, self.turns, tls, sock, on_end)
        except OSError:  # its peer has gone already
            sock.close()
            self._leave(host)
            return
        self._handshakes.add(handshake)
        self._watch(handshake)

    def _open(self, entrance: Entrance, sock: socket.socket, host: str, port: int) -> None:
        certificate = sock.getpeercert(binary_form=True) if isinstance(sock, TlsSocket) else None
        try:
            principal = entrance.principal_of(host, certificate)
        except AuthenticationFailed as error:
            self.warnings.repeat(f"{host} {error}", f"closing the connection of {host}:{port}: {error}")
            self.turned_away += 1
            self.refused[entrance.listener] += 1
            sock.close()
            self._leave(host)
            return
        caller = Caller(host, entrance.listener, entrance.protocol, principal)
        if entrance.gate is not None:
            caller.gate = entrance.gate(caller)
        if self._accounts is not None:
            self._accounts.begin(caller)
        channel = ServerChannel(self, sock, f"{host}:{port}", caller)
        self._channels.add(channel)
        self.opened[entrance.listener] += 1
        if caller.gate is not None:
            self._watch(channel)
        elif entrance.tls is not None:
            self.authenticated[entrance.listener] += 1

    # Strangers

    def _watch(self, stranger: ServerChannel | Handshake) -> None:
        self._strangers[stranger] = self.loop.time() + _KNOWN_WITHIN_S
        if len(self._strangers) > _MOST_STRANGERS:
            self._dismiss(next(iter(self._strangers)), f"{_MOST_STRANGERS} others wait to authenticate")
        if self._strangers_timer is None:
            self._strangers_timer = self.loop.call_later(_KNOWN_WITHIN_S, self._dismiss_slow)

    def _dismiss_slow(self) -> None:
        self._strangers_timer = None
        now = self.loop.time()
        for stranger in [each for each, until in self._strangers.items() if until <= now]:
            why = "" if stranger.is_silent else f"it has not authenticated within {_KNOWN_WITHIN_S:g} s"
            self._dismiss(stranger, why)
        if self._strangers:
            next_end = next(iter(self._strangers.values()))
            self._strangers_timer = self.loop.call_at(next_end, self._dismiss_slow)

    def _dismiss(self, stranger: ServerChannel | Handshake, why: str) -> None:
        self._strangers.pop(stranger, None)
        if isinstance(stranger, ServerChannel):
            stranger.close(why)
        else:
            stranger.abort(why)

    def know(self, channel: ServerChannel) -> None:
        """Its peer has authenticated."""
        self._strangers.pop(channel, None)
        self.authenticated[channel.caller.listener] += 1

    def refuse(self, channel: ServerChannel) -> None:
        """Its peer has failed to."""
        self.refused[channel.caller.listener] += 1

    def settle(self, channel: ServerChannel) -> None:
        """It is closed, and the loop spends no more on it."""
        if self._accounts is not None:
            self._accounts.settle(channel.caller)

    def forget(self, channel: ServerChannel) -> None:
        """It is closed."""
        self._channels.discard(channel)
        self._starved.pop(channel, None)
        self._strangers.pop(channel, None)
        self._leave(channel.caller.host)
        if self._drained is not None and not self._channels and not self._drained.done():
            self._drained.set_result(None)

    def _leave(self, host: str) -> None:
        """A connection of this host has ended."""
        left = self._by_host[host] - 1
        if left:
            self._by_host[host] = left
        else:
            del self._by_host[host]
        if len(self._channels) < self._limits.max_connections:
            self._accept()

    @property
    def connections(self) -> int:
        return len(self._channels)

    def open_by_listener(self) -> Counter[str]:
        """How many connections are open now."""
        return Counter([channel.caller.listener for channel in self._channels])

    @property
    def strangers(self) -> int:
        """How many peers have yet to authenticate."""
        return len(self._strangers)

    # Memory for requests

    @property
    def request_bytes(self) -> int:
        """What requests that were read and are not answered hold."""
        return self._request_bytes

    @property
    def has_memory(self) -> bool:
        return self._limits.max_request_memory < 0 or self._request_bytes < self._limits.max_request_memory

    def account(self, size: int) -> None:
        """So many bytes of requests are held more, or less."""
        self._request_bytes += size
        if size < 0 and self._starved:
            self._give_memory()

    @property
    def answer_bytes(self) -> int:
        """What answers that are known and not sent hold."""
        return self._answer_bytes

    @property
    def has_answer_memory(self) -> bool:
        return self._answer_bytes < self._limits.max_answer_memory

    def account_answers(self, size: int) -> None:
        """So many bytes of answers are held more, or less."""
        self._answer_bytes += size

    def wait_for_memory(self, channel: ServerChannel) -> None:
        """Read on when there is memory again."""
        self._starved[channel] = None
        most = self._limits.max_request_memory
        self.warnings.warn(
            "memory",
            f"requests in hand have filled queued.max.request.bytes={most}; no connection is read until some are done",
        )

    def _give_memory(self) -> None:
        while self._starved and self.has_memory:
            channel = next(iter(self._starved))
            del self._starved[channel]
            self.loop.call_soon(channel.on_memory)

    # Idle ones

    def _look_for_idle_later(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._doors:
            longest = self._limits.max_idle_s
            interval = min(longest / 4 if longest >= 0 else math.inf, _LOOKS_FOR_IDLE_EVERY_S)
            self._idle_timer = self.loop.call_later(interval, self._close_idle)

    def _close_idle(self) -> None:
        for channel in [each for each in self._channels if each.is_gone]:
            channel.close()
        now, longest = self.loop.time(), self._limits.max_idle_s
        if longest < 0:
            longest = math.inf
        for channel in [each for each in self._channels if now - each.last_active > longest and each.is_idle]:
            if channel.is_stuck:
                channel.close("it neither sent a whole request nor took its answers for connections.max.idle.ms")
            else:
                channel.close()
        self._look_for_idle_later()

    # Ending

    def stop_accepting(self) -> None:
        """No new connections; those there go on."""
        for timer in (self._accept_timer, self._idle_timer, self._strangers_timer):
            if timer is not None:
                timer.cancel()
        self._accept_no_more()
        doors, self._doors = self._doors, []
        for door in doors:
            door.socket.close()
        for handshake in list(self._handshakes):
            handshake.abort("")
        for sock, timer in list(self._held.items()):
            timer.cancel()
            self._let_go(sock)

    def drain(self) -> asyncio.Future[None]:
        """Take no more requests; done when all that are in hand are answered, the answers sent and everyone gone."""
        self.stop_accepting()
        drained = self._drained = self.loop.create_future()
        for channel in list(self._channels):
            channel.drain()
        if not self._channels and not drained.done():
            drained.set_result(None)
        return drained

    def close(self) -> None:
        """Stop accepting and hang up on everyone."""
        self.stop_accepting()
        for channel in list(self._channels):
            channel.close()
