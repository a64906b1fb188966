"""The asking end of a connection on an event loop: what a broker asks other brokers with, and the client any broker.

Requests are pipelined: each goes out as soon as it is made, and the answers come back in the same order, as Kafka
promises for one connection. A broker takes them one after another, so a request's time is not counted while those
before it are answered: it begins when the request is sent, and anew with each answer. A request whose time is over
closes the connection, because what comes next on it could not be told from the late answer's place in the order; one
timer a connection stands for the earliest of them. A caller that is cancelled leaves its answer to be read and dropped.
What wants no answer has as much time to be with the socket, counted in the same way: for a peer that reads nothing may
keep its end open for ever.

An answer may ask for silence (``throttle``). What is asked meanwhile is kept, in order, and goes out when that is over;
its time begins then, and what is cancelled before is not sent.

Where SASL is wanted, ``open`` returns when we have authenticated. What a mechanism asks others for, such as a KDC for a
ticket, it waits for on a thread. An authentication that ends is made anew before it does (KIP-368): behind what is in
flight then, and what is asked meanwhile is kept as in a silence.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import NamedTuple, Self

from sparklog import __version__
from sparklog.errors import ConnectionFailed, RemoteProtocolError, SparklogError
from sparklog.net.coalescing import coalesced
from sparklog.net.connection_failures import ASKS_FOR_MORE, is_tls, speaks_tls, tls_failure, unreachable
from sparklog.net.login import LoggedIn, Login, Question, advanced, login
from sparklog.net.tasks import on_a_thread, retrieve
from sparklog.net.throttle import throttle_seconds
from sparklog.net.unreachable import UNREACHABLE
from sparklog.net.versions import API_VERSIONS_ASKED, PeerVersions, answer_of, api_versions_request
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import ClientConnection
from sparklog.protocol.frame import FrameReader
from sparklog.protocol.messages import A, ApiVersionsResponse, Request, decode, decode_answer, encode, encode_request
from sparklog.security.connecting import PLAIN, ConnectionSecurity
from sparklog.security.sasl.mechanism import Mechanism
from sparklog.structs import Chunk, Endpoint

MAX_RESPONSE = 1 << 30
_ASKED_FOR = 8 << 20
"""An answer of up to so many bytes is received in place: a fetch of one partition is no more by default."""


_SHUTDOWN_S = 5.0
"""How long a peer is waited for that does not end its side of TLS when we end ours."""
_LOOK_S = 0.01
"""Between two looks whether the socket has taken what was written; asyncio tells only of all, and not over TLS."""
_AGAIN_WITHIN_S = 30.0
"""Until we have authenticated again, from when the last answer is due for what was asked before."""

Answer = memoryview | SparklogError
"""An answer's body, still encoded, or why there is none."""


class _Asked(NamedTuple):
    """A request that is not on the wire yet."""

    api: ApiKey
    version: int
    body: list[Chunk]
    told: Callable[[Answer], object]
    timeout: float
    expect_response: bool
    name: ApiKey
    """What a failure's message names."""


class _Waiting(NamedTuple):
    """A request on the wire: its callback, when it was sent by the loop's clock, and for how many seconds it waits."""

    api: ApiKey
    told: Callable[[Answer], object]
    sent_at: float
    timeout: float


class _Written(NamedTuple):
    """A request without an answer that the socket has not taken whole; its last byte is the ``end``th of all."""

    waiting: _Waiting
    end: int


class AsyncConnection(asyncio.BufferedProtocol):
    """A connection to one broker; any number of requests may be in flight.

    A failure raises ConnectionFailed, ProtocolError or AuthenticationFailed in all of them and closes it; open another.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client_id: str,
        security: ConnectionSecurity = PLAIN,
        throttled: Callable[[float], object] = lambda _: None,
    ) -> None:
        self.endpoint = endpoint
        self._throttled = throttled
        self._security = security
        self._has_answered = False
        """Whether it has answered anything but which versions it speaks."""
        self._has_heard = False
        self._opening: memoryview | None = None
        """Where the first bytes are put that it sends, until they are there."""
        self._is_logging_in = False
        """Whether it authenticates again, and all else has to wait."""
        self._log_in_timer: asyncio.TimerHandle | None = None
        self._logging_in: asyncio.Task[None] | None = None
        self._protocol = ClientConnection(client_id)
        self._frames = FrameReader(MAX_RESPONSE, _ASKED_FOR)
        self._waiting: deque[_Waiting] = deque()
        self._answered_at = -math.inf
        """When the last answer came, by the loop's clock."""
        self._kept: deque[_Asked] = deque()
        self._silence: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._beneath: asyncio.Transport | None = None
        """Over TLS: what takes the encrypted bytes to the socket, and holds those that it does not take yet."""
        self._look: asyncio.TimerHandle | None = None
        self._failure: SparklogError | None = None
        self._hello: asyncio.Future[memoryview] | None = None
        self._versions: PeerVersions | None = None
        self._handed = 0
        """Bytes that were written ever."""
        self._written: deque[_Written] = deque()
        self._taken_at = -math.inf
        """When the socket had last taken one of these whole, by the loop's clock."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_held = False
        self._held: list[Chunk] = []

    @classmethod
    async def open(
        cls,
        endpoint: Endpoint,
        *,
        client_id: str = "sparklog",
        timeout: float = 10.0,
        security: ConnectionSecurity = PLAIN,
        throttled: Callable[[float], object] = lambda _: None,
    ) -> AsyncConnection:
        """Connect, and authenticate. Raises ConnectionFailed if that has not succeeded within ``timeout`` seconds.

        Raises AuthenticationFailed where one end does not take the other for who it says. ``throttled`` is called with
        the seconds of each silence that an answer asks for.
        """
        try:
            async with asyncio.timeout(timeout):
                connection = await cls._connected(
                    endpoint, security.tls, partial(cls, endpoint, client_id, security, throttled)
                )
                if security.mechanism is not None:
                    await connection._log_in_or_close(security.mechanism, timeout)
        except ssl.SSLError as error:
            raise tls_failure(endpoint, error) from error
        except SparklogError:
            raise
        except UNREACHABLE as error:
            raise unreachable(endpoint, error, security) from error
        return connection

    @classmethod
    async def _connected(cls, endpoint: Endpoint, tls: ssl.SSLContext | None, make: Callable[[], Self]) -> Self:
        connection = make()
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection,
                *endpoint,
                ssl=tls,
                server_hostname=None if tls is None else endpoint.host,
                ssl_shutdown_timeout=None if tls is None else _SHUTDOWN_S,
            )
        except BaseException:
            connection.abort()  # asyncio would wait for the peer to end TLS, maybe longer than the loop lasts
            raise
        return connection

    async def _log_in_or_close(self, mechanism: Mechanism, timeout: float) -> None:
        try:
            await self._log_in(mechanism, timeout)
        except BaseException:
            self.abort()
            raise

    async def _log_in(self, mechanism: Mechanism, timeout: float) -> None:
        steps = login(self.endpoint, mechanism, await self._agree(ApiKey.SASL_HANDSHAKE, timeout))
        asked = await self._advanced(mechanism, steps, None)
        while isinstance(asked, Question):
            asked = await self._advanced(mechanism, steps, await self._answer_to(asked, timeout))
        if asked.lasts_s is not None:
            self._log_in_timer = self._loop.call_later(asked.lasts_s, self._begin_again, mechanism)

    async def _advanced(self, mechanism: Mechanism, steps: Login, answer: object) -> Question | LoggedIn:
        """The next step of an authentication: on a thread, if it may wait for others."""
        return await on_a_thread(advanced, steps, answer) if mechanism.may_wait else advanced(steps, answer)

    async def _answer_to(self, question: Question, timeout: float) -> object:
        """In front of all that is kept."""
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        api, version, message = question
        asked = _Asked(api, version, [encode(message, version)], partial(_settle, answer), timeout, True, api)
        if not self._refuse(asked):
            self._put(asked)
            self._write_held()
        body = await answer
        with answer_of(self, api):
            return decode_answer(message, version, body)

    def _begin_again(self, mechanism: Mechanism) -> None:
        self._is_logging_in = True
        self._logging_in = self._loop.create_task(self._log_in_again(mechanism))
        self._logging_in.add_done_callback(retrieve)

    async def _log_in_again(self, mechanism: Mechanism) -> None:
        last = max(map(self._deadline, self._waiting), default=self._loop.time())
        timeout = last - self._loop.time() + _AGAIN_WITHIN_S
        try:
            async with asyncio.timeout(timeout):
                await self._log_in(mechanism, timeout)
        except TimeoutError:
            self._fail(ConnectionFailed("there were no credentials to authenticate again with in time"))
        except SparklogError as error:
            self._fail(error)
        finally:
            self._is_logging_in = False
        self._send_kept()

    async def request(
        self, api: ApiKey, build: Callable[[int], Request[A]], *, timeout: float = 30.0, ceiling: int | None = None
    ) -> A:
        """Ask and wait: ``build`` is handed the version agreed on, at most ``ceiling``, and returns the request."""
        version = (await self._agree(api, timeout)).best(api, ceiling)
        asked = build(version)
        body = await self.submit(api, version, [encode_request(asked, version)], timeout=timeout)
        with answer_of(self, api):
            return decode_answer(asked, version, body)

    async def versions(self, *, timeout: float = 30.0) -> PeerVersions:
        """What the broker speaks, asked once a connection."""
        return await self._agree(ApiKey.API_VERSIONS, timeout)

    async def _agree(self, asked_for: ApiKey, timeout: float) -> PeerVersions:
        if self._versions is None:
            if self._hello is None:
                body = encode(api_versions_request("sparklog", __version__), API_VERSIONS_ASKED)
                self._hello = self.submit(
                    ApiKey.API_VERSIONS, API_VERSIONS_ASKED, [body], timeout=timeout, asked_for=asked_for
                )
            answer = await asyncio.shield(self._hello)
            if self._versions is None:
                self._versions = self._read_versions(answer)
        return self._versions

    def _read_versions(self, answer: memoryview) -> PeerVersions:
        with answer_of(self, ApiKey.API_VERSIONS):
            return PeerVersions(self.endpoint, decode(ApiVersionsResponse, API_VERSIONS_ASKED, answer))

    def submit(
        self,
        api: ApiKey,
        version: int,
        body: list[Chunk],
        *,
        timeout: float = 30.0,
        expect_response: bool = True,
        asked_for: ApiKey | None = None,
    ) -> asyncio.Future[memoryview]:
        """Put an encoded request on the wire now; the future is its answer's body, still encoded.

        Requests go out in the order of the calls. Without ``expect_response`` (a produce with ``acks=0``) the future is
        an empty body once the request was handed to the socket. ``asked_for`` is what a failure's message names.
        """
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        told = partial(_settle, answer)
        self.ask(api, version, body, told, timeout=timeout, expect_response=expect_response, asked_for=asked_for)
        if self._keeps:
            answer.add_done_callback(partial(self._withdraw, told))
        return answer

    def _withdraw(self, told: Callable[[Answer], object], answer: asyncio.Future[memoryview]) -> None:
        if answer.cancelled():
            self._kept = deque(each for each in self._kept if each.told is not told)

    def ask(
        self,
        api: ApiKey,
        version: int,
        body: list[Chunk],
        told: Callable[[Answer], object],
        *,
        timeout: float = 30.0,
        expect_response: bool = True,
        asked_for: ApiKey | None = None,
    ) -> None:
        """``submit`` without a future: ``told`` is called as soon as the answer is read, but not in here."""
        asked = _Asked(api, version, body, told, timeout, expect_response, asked_for or api)
        if self._refuse(asked):
            return
        if self._keeps:
            self._kept.append(asked)
        else:
            self._put(asked)

    def _refuse(self, asked: _Asked) -> bool:
        """Whether nothing can be asked any more, which is told then."""
        if self._failure is None and self._transport is not None and not self._transport.is_closing():
            return False
        cause = self._failure or ConnectionFailed("it was closed")
        self._loop.call_soon(asked.told, _unanswered(self.endpoint, asked.name, cause))
        return True

    @property
    def _keeps(self) -> bool:
        """Whether what is asked has to wait."""
        return self._silence is not None or self._is_logging_in

    def _put(self, asked: _Asked) -> None:
        """On the wire with it."""
        self._held += self._protocol.request(
            asked.api, asked.version, asked.body, expect_response=asked.expect_response
        )
        if not self._is_held or not asked.expect_response:
            self._write_held()
        if not asked.expect_response and not self._unsent:
            self._loop.call_soon(asked.told, memoryview(b""))
            return
        now = self._loop.time()
        waiting = _Waiting(asked.name, asked.told, now, asked.timeout)
        if asked.expect_response:
            self._waiting.append(waiting)
        else:
            self._written.append(_Written(waiting, self._handed))
            self._look_again()
        self._watch(now + asked.timeout)

    @property
    def silent_seconds(self) -> float:
        """How long the broker wants nothing to be sent; 0 if it may be now."""
        return 0.0 if self._silence is None else max(self._silence.when() - self._loop.time(), 0.0)

    def _keep_silent(self, seconds: float) -> None:
        """A silence that is being kept already is made longer, never shorter."""
        until = self._loop.time() + seconds
        if self._silence is None or until > self._silence.when():
            self._end_silence()
            self._silence = self._loop.call_at(until, self._speak)

    def _end_silence(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _speak(self) -> None:
        self._end_silence()
        self._send_kept()

    def _send_kept(self) -> None:
        while self._kept and not self._keeps and self._failure is None:
            self._put(self._kept.popleft())

    def hold(self) -> None:
        """Keep requests back until ``let_go``, so that many are one write. Those without an answer go at once."""
        self._is_held = True

    def let_go(self) -> None:
        """Write what was kept back."""
        self._is_held = False
        self._write_held()

    def _write_held(self) -> None:
        held, self._held = self._held, []
        if self._transport is not None and not self._transport.is_closing():
            for data in coalesced(held):
                self._transport.write(data)
                self._handed += len(data)

    def _watch(self, deadline: float) -> None:
        """Have the timer go off at ``deadline`` or before. One that goes off early is cheaper than one a request."""
        if self._timer is None or deadline < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._end_late, deadline)

    def _end_late(self, now: float) -> None:
        self._timer = None
        deadlines = [*map(self._deadline, self._waiting), *map(self._write_deadline, self._written)]
        if not deadlines:
            return
        earliest = min(deadlines)
        if earliest <= now:
            self._fail(ConnectionFailed("timed out"))
        else:
            self._watch(earliest)

    def _deadline(self, waiting: _Waiting) -> float:
        return max(waiting.sent_at, self._answered_at) + waiting.timeout

    def _write_deadline(self, written: _Written) -> float:
        return max(written.waiting.sent_at, self._taken_at) + written.waiting.timeout

    @property
    def in_flight(self) -> int:
        """Requests whose answers are to come."""
        return len(self._waiting) + len(self._kept)

    @property
    def waits_for(self) -> float:
        """For how many seconds the peer has owed the next answer, or not taken what wants none; 0 if none is due."""
        since = [max(each.sent_at, self._answered_at) for each in islice(self._waiting, 1)]
        since += [max(each.waiting.sent_at, self._taken_at) for each in islice(self._written, 1)]
        return max((self._loop.time() - each for each in since), default=0.0)

    def close(self) -> None:
        """Requests in flight fail with ConnectionFailed.

        What asks for no answer, and whose callback was called, is with the socket: it goes out, however slowly the peer
        reads. Other requests that the socket has not taken may be lost over TLS.
        """
        if self._transport is not None:
            self._transport.close()
        self._fail(ConnectionFailed("it was closed"))

    def abort(self) -> None:
        """As ``close``, but at once: what is not on the wire yet is dropped, whether the peer reads or not."""
        if self._transport is not None:
            self._transport.abort()
        self._fail(ConnectionFailed("it was closed"))

    @property
    def closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _fail(self, error: SparklogError) -> None:
        """Hang up, and fail all requests under way with the first failure."""
        if self._failure is None:
            self._failure = error
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for timer in (self._log_in_timer, self._look):
            if timer is not None:
                timer.cancel()
        self._end_silence()
        waiting = [*self._waiting, *(each.waiting for each in self._written)]
        self._waiting, self._written = deque(), deque()
        for each in waiting:
            self._tell(each.told, _unanswered(self.endpoint, each.api, self._failure))
        kept, self._kept = self._kept, deque()
        for asked in kept:
            self._tell(asked.told, _unanswered(self.endpoint, asked.name, self._failure))

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=0)
        self._transport = transport
        self._beneath = _beneath(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):
            self._fail(tls_failure(self.endpoint, exc))
            return
        hint = ASKS_FOR_MORE if self._security is PLAIN and not self._has_answered else ""
        self._fail(ConnectionFailed((str(exc) if exc else "the peer closed the connection") + hint))

    def resume_writing(self) -> None:
        self._tell_written()

    @property
    def _unsent(self) -> int:
        """Bytes that the socket has not taken; over TLS, those that are encrypted already are among them."""
        return sum(each.get_write_buffer_size() for each in (self._transport, self._beneath) if each is not None)

    def _tell_written(self) -> None:
        """Tell whose requests are with the socket; look again soon where some are not."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        taken = self._handed - self._unsent
        while self._written and self._written[0].end <= taken:
            self._taken_at = self._loop.time()
            self._tell(self._written.popleft().waiting.told, memoryview(b""))
        if self._written:
            self._look_again()

    def _look_again(self) -> None:
        if self._look is None:
            self._look = self._loop.call_later(_LOOK_S, self._tell_written)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the transport passes it)
        buffer = self._frames.buffer()
        if not self._has_heard:
            self._has_heard, self._opening = True, buffer
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        opening, self._opening = self._opening, None
        if opening is not None and is_tls(opening):
            self._fail(speaks_tls(self.endpoint))
            return
        try:
            for frame in self._frames.received(nbytes):
                self._answer(frame)
        except RemoteProtocolError as error:
            self._fail(RemoteProtocolError(f"{self.endpoint}: {error}; is it a Kafka listener?"))

    def _answer(self, frame: memoryview) -> None:
        if self._failure is not None:
            return  # whom it is for has been told that
        api, version, body = self._protocol.response(frame)
        self._has_answered |= api is not ApiKey.API_VERSIONS
        if seconds := throttle_seconds(api, version, body):
            self._throttled(seconds)
            self._keep_silent(seconds)
        self._answered_at = self._loop.time()
        self._tell(self._waiting.popleft().told, body)

    def _tell(self, told: Callable[[Answer], object], answer: Answer) -> None:
        try:
            told(answer)
        except Exception as error:  # it is not the connection's
            self._loop.call_exception_handler({"message": "an answer could not be dealt with", "exception": error})


def _beneath(transport: asyncio.Transport) -> asyncio.Transport | None:
    """What carries a transport of TLS: asyncio shows it to nobody. None for one without TLS."""
    found = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    return found if isinstance(found, asyncio.Transport) else None


def _settle(future: asyncio.Future[memoryview], answer: Answer) -> None:
    if future.done():
        return
    if isinstance(answer, SparklogError):
        future.set_exception(answer)
        future.exception()  # a caller that was cancelled does not come for it
    else:
        future.set_result(answer)


def _unanswered(endpoint: Endpoint, api: ApiKey, cause: SparklogError) -> SparklogError:
    """One error a request: an exception that is raised twice grows a traceback of both."""
    if isinstance(cause, ConnectionFailed):
        return ConnectionFailed(f"broker {endpoint} did not answer {api.name}: {cause}")
    return type(cause)(str(cause))
