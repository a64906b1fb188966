"""The asking end of a connection, blocking: what Spark tasks, the command line and the tests drive.

One ``ClientConnection`` (the protocol, without a socket) under one socket. Requests may be pipelined: ``send`` several,
``receive`` their answers in the same order. Not for use by several threads at once.

An answer may ask for silence (``throttle``): ``send`` then waits until that is over. It begins when the answer comes,
which may be long before it is read.
"""

from __future__ import annotations

import math
import socket
import struct
import sys
from collections.abc import Callable
from types import TracebackType

from sparklog import __version__
from sparklog.clock import Clock, SystemClock
from sparklog.errors import ConnectionFailed, PeerSilent, RemoteProtocolError
from sparklog.net.throttle import throttle_seconds
from sparklog.net.unreachable import UNREACHABLE
from sparklog.net.versions import API_VERSIONS_ASKED, PeerVersions, answer_of, api_versions_request
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import ClientConnection
from sparklog.protocol.messages import A, ApiVersionsResponse, Request, decode, decode_answer, encode
from sparklog.structs import Chunk, Endpoint, FileSlice

SecondsLeft = Callable[[], float]
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
    """A connection to one broker. Every failure of the network raises ConnectionFailed and closes it."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        client_id: str = "sparklog",
        connect_timeout: float = 10.0,
        request_timeout: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._request_timeout = request_timeout
        self._clock: Clock = clock or SystemClock()
        self._silent_until = -math.inf
        self._seconds_left: SecondsLeft | None = None
        self._protocol = ClientConnection(client_id)
        try:
            self._socket = socket.create_connection(endpoint, timeout=connect_timeout)
        except UNREACHABLE as error:
            raise ConnectionFailed(f"cannot reach a broker at {endpoint}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.versions = self._negotiate()  # under connect_timeout: who accepts and says nothing is not reached
            self._socket.settimeout(request_timeout)
        except BaseException as error:
            self.close()
            if isinstance(error.__cause__, TimeoutError):
                silence = f"{endpoint} accepts connections, and answers nothing within {connect_timeout:g} s"
                raise PeerSilent(silence) from None
            raise

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

    def request(self, api: ApiKey, build: Callable[[int], Request[A]], *, ceiling: int | None = None) -> A:
        """Ask and wait: ``build`` is handed the version agreed on and returns the request."""
        version = self.versions.best(api, ceiling)
        asked = build(version)
        self.send(api, version, [encode(asked, version)])
        _, version, body = self.receive()
        with answer_of(self, api):
            return decode_answer(asked, version, body)

    def send(self, api: ApiKey, version: int, body: list[Chunk], *, expect_response: bool = True) -> None:
        """Put a request on the wire, its chunks uncopied."""
        try:
            self._keep_silent()
            chunks = self._protocol.request(api, version, body, expect_response=expect_response)
            self._arm()
            self._send_all([memoryview(chunk) for chunk in chunks if not isinstance(chunk, FileSlice)])
        except OSError as error:
            raise self._failed("sending to", error) from error

    def _keep_silent(self) -> None:
        wait = self._silent_until - self._clock.monotonic()
        if wait <= 0:
            return
        allowed = wait if self._seconds_left is None else self._seconds_left()
        self._clock.sleep(min(wait, allowed))
        if allowed < wait:
            raise TimeoutError(f"it wants nothing to be sent for {wait:g} s")

    def _send_all(self, views: list[memoryview]) -> None:
        while views:
            sent = self._socket.sendmsg(views[:_BUFFERS_A_CALL])
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if sent:
                views[0] = views[0][sent:]

    def receive(self) -> tuple[ApiKey, int, memoryview]:
        """The next answer: its API, version and body (a buffer of its own)."""
        try:
            (size,) = struct.unpack(">i", self._receive_exactly(4))
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
        if seconds := throttle_seconds(api, version, body):
            came = self._clock.monotonic() - seconds_since_data(self._socket)
            self._silent_until = max(self._silent_until, came + seconds)
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

    def _failed(self, doing: str, error: OSError) -> ConnectionFailed:
        self.close()
        return ConnectionFailed(f"{doing} broker {self.endpoint} failed: {str(error) or type(error).__name__}")
