"""The asking end of a connection, blocking: what Spark tasks, the command line and the tests drive.

One ``ClientConnection`` (the protocol, without a socket) under one socket, which may be one of TLS. Requests may be
pipelined: ``send`` several, ``receive`` their answers in the same order. Not for use by several threads at once.

Where SASL is wanted, nothing is sent before we have authenticated. An authentication that ends is made anew in front of
the next request; answers that come before that are kept for ``receive``.

An answer may ask for silence (``throttle``): ``send`` then waits until that is over. It begins when the answer comes,
which may be long before it is read.
"""

from __future__ import annotations

import math
import socket
import ssl
import struct
import sys
from collections import deque
from collections.abc import Callable
from types import TracebackType

from sparklog import __version__
from sparklog.clock import Clock, SystemClock
from sparklog.errors import ConnectionFailed, PeerSilent, RemoteProtocolError, SparklogError
from sparklog.net.coalescing import coalesced
from sparklog.net.connection_failures import ASKS_FOR_MORE, is_tls, speaks_tls, tls_failure, unreachable
from sparklog.net.login import Question, advanced, login
from sparklog.net.throttle import throttle_seconds
from sparklog.net.unreachable import UNREACHABLE
from sparklog.net.versions import API_VERSIONS_ASKED, PeerVersions, answer_of, api_versions_request
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import ClientConnection
from sparklog.protocol.messages import A, ApiVersionsResponse, Request, decode, decode_answer, encode, encode_request
from sparklog.security.connecting import PLAIN, ConnectionSecurity
from sparklog.structs import Chunk, Endpoint, FileSlice

SecondsLeft = Callable[[], float]
Received = tuple[ApiKey, int, memoryview]
"""An answer: its API, version and body (a buffer of its own)."""
MAX_RESPONSE = 1 << 30
_BUFFERS_A_CALL = 512
_LAST_DATA_RECEIVED = struct.Struct("=52xI")
"""The beginning of Linux's ``struct tcp_info``, up to ``tcpi_last_data_recv``: milliseconds since data came."""


def seconds_since_data(connected: socket.socket) -> float:
    """How long ago the last bytes came to a TCP socket, be they read or not; 0 where that is not known."""
    if sys.platform != "linux":
        return 0.0
    try:
        told = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_RECEIVED.size)
    except OSError:
        return 0.0
    if len(told) < _LAST_DATA_RECEIVED.size:
        return 0.0
    milliseconds: int = _LAST_DATA_RECEIVED.unpack(told)[0]
    return milliseconds / 1000


class BlockingConnection:
    """A connection to one broker. Every failure of the network raises ConnectionFailed and closes it.

    AuthenticationFailed is raised, and the connection closed, where one end does not take the other for who it says.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        client_id: str = "sparklog",
        connect_timeout: float = 10.0,
        request_timeout: float = 30.0,
        clock: Clock | None = None,
        security: ConnectionSecurity = PLAIN,
        throttled: Callable[[float], object] = lambda _: None,
    ) -> None:
        """``throttled`` is called with the seconds for which an answer wants nothing to be sent."""
        self.endpoint = endpoint
        self._throttled = throttled
        self._security = security
        self._log_in_again_at: float | None = None
        self._early: deque[Received] = deque()
        self._has_answered = False
        """Whether it has answered anything but which versions it speaks."""
        self._request_timeout = request_timeout
        self._clock: Clock = clock or SystemClock()
        self._silent_until = -math.inf
        self._seconds_left: SecondsLeft | None = None
        self._protocol = ClientConnection(client_id)
        self._socket = self._connect(connect_timeout)
        try:
            self.versions = self._negotiate()  # under connect_timeout: a silent peer is not reached
            self._log_in()
            self._socket.settimeout(request_timeout)
        except BaseException as error:
            self.close()
            if isinstance(error.__cause__, TimeoutError):
                silence = f"{endpoint} accepts connections, and answers nothing within {connect_timeout:g} s"
                raise PeerSilent(silence) from None
            raise

    def _connect(self, timeout: float) -> socket.socket:
        try:
            connected = socket.create_connection(self.endpoint, timeout=timeout)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._security.tls is None:
                return connected
            return self._security.tls.wrap_socket(connected, server_hostname=self.endpoint.host)
        except ssl.SSLError as error:
            raise tls_failure(self.endpoint, error) from error
        except UNREACHABLE as error:
            raise unreachable(self.endpoint, error, self._security) from error

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def bind(self, seconds_left: SecondsLeft | None) -> None:
        """Wait from now on only as long as this says when a wait begins; None: for the request timeout alone."""
        self._seconds_left = seconds_left
        if seconds_left is None and not self.closed:
            self._socket.settimeout(self._request_timeout)

    def _arm(self) -> None:
        """Before each wait: raises TimeoutError where no time is left."""
        if self._seconds_left is not None:
            left = self._seconds_left()
            if left <= 0:
                raise TimeoutError("no time is left")
            self._socket.settimeout(min(left, self._request_timeout))

    @property
    def closed(self) -> bool:
        return self._socket.fileno() < 0

    def _negotiate(self) -> PeerVersions:
        body = encode(api_versions_request("sparklog", __version__), API_VERSIONS_ASKED)
        self.send(ApiKey.API_VERSIONS, API_VERSIONS_ASKED, [body])
        _, version, answer = self.receive()
        with answer_of(self, ApiKey.API_VERSIONS):
            return PeerVersions(self.endpoint, decode(ApiVersionsResponse, version, answer))

    def _log_in(self) -> None:
        if self._security.mechanism is None:
            return
        steps = login(self.endpoint, self._security.mechanism, self.versions)
        try:
            asked = advanced(steps, None)
            while isinstance(asked, Question):
                asked = advanced(steps, self._answer_to(asked))
        except SparklogError:
            self.close()
            raise
        self._log_in_again_at = None if asked.lasts_s is None else self._clock.monotonic() + asked.lasts_s

    def _answer_to(self, asked: Question) -> object:
        self._put(asked.api, asked.version, [encode(asked.message, asked.version)])
        _, version, body = self._take()
        with answer_of(self, asked.api):
            return decode_answer(asked.message, version, body)

    def _log_in_again(self) -> None:
        """Where it is time for that."""
        if self._log_in_again_at is not None and self._clock.monotonic() >= self._log_in_again_at:
            while self._protocol.in_flight:
                self._early.append(self._take())
            self._log_in()

    def request(self, api: ApiKey, build: Callable[[int], Request[A]], *, ceiling: int | None = None) -> A:
        """Ask and wait: ``build`` is handed the version agreed on and returns the request."""
        version = self.versions.best(api, ceiling)
        asked = build(version)
        self.send(api, version, [encode_request(asked, version)])
        _, version, body = self.receive()
        with answer_of(self, api):
            return decode_answer(asked, version, body)

    def send(self, api: ApiKey, version: int, body: list[Chunk], *, expect_response: bool = True) -> None:
        """Put a request on the wire, its chunks uncopied."""
        self._log_in_again()
        self._put(api, version, body, expect_response=expect_response)

    def _put(self, api: ApiKey, version: int, body: list[Chunk], *, expect_response: bool = True) -> None:
        try:
            self._keep_silent()
            chunks = self._protocol.request(api, version, body, expect_response=expect_response)
            self._arm()
            self._send_all([memoryview(chunk) for chunk in chunks if not isinstance(chunk, FileSlice)])
        except OSError as error:
            raise self._failed("sending to", self._alert_behind(error)) from error

    def _keep_silent(self) -> None:
        wait = self._silent_until - self._clock.monotonic()
        if wait <= 0:
            return
        allowed = wait if self._seconds_left is None else self._seconds_left()
        self._clock.sleep(min(wait, allowed))
        if allowed < wait:
            raise TimeoutError(f"it wants nothing to be sent for {wait:g} s")

    def _send_all(self, views: list[memoryview]) -> None:
        if isinstance(self._socket, ssl.SSLSocket):  # it sends one piece a call
            for piece in coalesced(views):
                self._socket.sendall(piece)
            return
        while views:
            sent = self._socket.sendmsg(views[:_BUFFERS_A_CALL])
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if sent:
                views[0] = views[0][sent:]

    def receive(self) -> Received:
        """The next answer: its API, version and body (a buffer of its own)."""
        return self._early.popleft() if self._early else self._take()

    def _take(self) -> Received:
        """The next answer from the wire."""
        try:
            opening = self._receive_exactly(4)
            if not self._has_answered and is_tls(opening):
                raise speaks_tls(self.endpoint)
            (size,) = struct.unpack(">i", opening)
            if not 0 <= size <= MAX_RESPONSE:
                raise RemoteProtocolError(
                    f"{self.endpoint} announces a response of {size} bytes; is it a Kafka listener?"
                )
            api, version, body = self._protocol.response(self._receive_exactly(size))
        except OSError as error:
            raise self._failed("waiting for an answer of", error) from error
        except RemoteProtocolError:
            self.close()
            raise
        self._has_answered |= api is not ApiKey.API_VERSIONS
        if seconds := throttle_seconds(api, version, body):
            came = self._clock.monotonic() - seconds_since_data(self._socket)
            self._silent_until = max(self._silent_until, came + seconds)
            self._throttled(seconds)
        return api, version, body

    def _receive_exactly(self, size: int) -> memoryview:
        view = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            self._arm()
            count = self._socket.recv_into(view[filled:])
            if count == 0:
                raise ConnectionResetError("the peer closed the connection")
            filled += count
        return view

    def _alert_behind(self, error: OSError) -> OSError:
        """Why a peer with TLS hung up, if it said so before: it is read, though nothing can be sent any more."""
        if isinstance(self._socket, ssl.SSLSocket) and isinstance(error, ssl.SSLEOFError | ConnectionError):
            try:
                self._socket.recv(1)
            except ssl.SSLError as alert:
                return alert
            except OSError:
                return error
        return error

    def _failed(self, doing: str, error: OSError) -> SparklogError:
        self.close()
        if isinstance(error, ssl.SSLError):
            return tls_failure(self.endpoint, error)
        hint = ASKS_FOR_MORE if isinstance(error, ConnectionError) and self._is_plain_stranger else ""
        return ConnectionFailed(f"{doing} broker {self.endpoint} failed: {str(error) or type(error).__name__}{hint}")

    @property
    def _is_plain_stranger(self) -> bool:
        """Whether the broker may want to be spoken to in another way: it has served nothing on a plain connection."""
        return not self._has_answered and self._security is PLAIN
