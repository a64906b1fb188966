"""One accepted connection: frames in, answers out in the order of the requests, never more in hand than allowed.

Sockets are driven on an asyncio loop through ``add_reader`` and ``add_writer`` rather than through its transports: a
large request is received into its own buffer, and a segment goes from the page cache to the socket by ``sendfile``,
between two pieces of the same response, without a task or a copy.

Flow control: a connection is read no further while it has ``max_in_flight`` requests unanswered or ``MAX_UNSENT`` bytes
of answers unsent, nor begins a request while those of all connections have filled the memory allowed for them. A
request that has begun to come is read to its end, or no memory might ever be given back. Answers count as memory from
when they are known until they are sent, whether they wait for the peer or for an answer before them: with some of its
own unsent a connection begins no request while it has ``MAX_ANSWERS`` of them or all connections together have filled
``max_answer_memory``. One with none may always begin one, so that peers that do not read hold up no other.

What is sent from a file is looked for in the page cache first, ``_AT_HAND`` bytes at a time: what is not there is read
by a thread (``net/page_cache.py``), and the loop never waits for the disk.

Order: what is asked on a connection sees what was asked there before. A request whose work is done in steps, or that is
answered later, is followed by no other before there is an answer, as in Kafka. There are two exceptions. An ``Ordered``
one may be followed by others of its own API, which are told their predecessor. A ``Waiting`` one may be followed by
any.

Turns (``net/turns.py``): a connection serves what it has read, and sends its answers, when it is its turn, and no
longer than that. A request whose work is long is served in steps; until they are done the connection begins no other,
and when it is closed they are dropped, with all that it had not begun.

A connection is idle since the last whole request, the last ``_PROGRESS`` bytes of one, or the last byte of an answer
that its peer took. A client that sends a request in drops, or takes no answer, is idle. One that waits for an answer is
not, nor is one that is muted. Of a muted one nothing is read, so that nobody is told when its peer hangs up: whoever
looks for idle ones asks for it (``is_gone``), or clients that come again and again would leave connections behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import suppress
from typing import Any, Protocol

from sparklog.errors import AnotherProtocol, RemoteProtocolError
from sparklog.net.answer import Answer, Dispatch, Ordered, Served, Waiting, Work
from sparklog.net.limits import Limits
from sparklog.net.page_cache import is_cached, read_ahead, read_if_cached
from sparklog.net.slow_requests import Begun, SlowRequests, head_of
from sparklog.net.tls import TlsSocket
from sparklog.net.turns import SHARE_S, SLOW_S, Turns, Usage, take
from sparklog.protocol.connection import describe_request
from sparklog.protocol.frame import SCRATCH_SIZE, FrameReader
from sparklog.rate_limit import RateLimitedLogger
from sparklog.security.caller import Caller, Meter
from sparklog.structs import Chunk, FileSlice, chunk_size

_logger = logging.getLogger(__name__)

MAX_UNSENT = 64 << 20
MAX_ANSWERS = 4 << 20
_PROGRESS = 64 << 10
_SENDFILE_AT_LEAST = 16 << 10
_CORKED_AT_MOST = 256 << 10
_BUFFERS_A_CALL = 64
_SENT_A_CALL = 512 << 10
_AT_HAND = 1 << 20
_ENCRYPTED_A_CALL = 64 << 10
_FAREWELL = 31
"""Bytes of a TLS record that says goodbye, with the ciphers of today; the shortest request takes more."""
_API_KEY = 2
"""Bytes at the beginning of a request."""

_NOTHING = memoryview(b"")


class Owner(Protocol):
    """What a channel needs of its server."""

    loop: asyncio.AbstractEventLoop
    dispatch: Dispatch
    limits: Limits
    warnings: RateLimitedLogger
    slow_requests: SlowRequests
    turns: Turns

    @property
    def has_memory(self) -> bool:
        """Whether a further request may be begun to be read."""

    def account(self, size: int) -> None:
        """So many bytes of requests are held more, or less."""

    @property
    def has_answer_memory(self) -> bool:
        """Whether a further answer may be made by a connection that has some unsent."""

    def account_answers(self, size: int) -> None:
        """So many bytes of answers are held more, or less."""

    def wait_for_memory(self, channel: ServerChannel) -> None:
        """Call ``channel.on_memory`` when there is some again."""

    def know(self, channel: ServerChannel) -> None:
        """The peer of ``channel`` has authenticated."""

    def refuse(self, channel: ServerChannel) -> None:
        """The peer of ``channel`` has failed to authenticate."""

    def settle(self, channel: ServerChannel) -> None:
        """``channel`` is closed, and the loop spends no more on it; may be said again."""

    def forget(self, channel: ServerChannel) -> None:
        """``channel`` is closed."""


class ServerChannel:
    """One accepted connection."""

    def __init__(self, server: Owner, sock: socket.socket, address: str, caller: Caller) -> None:
        self._server = server
        self._socket: Any = sock
        self._is_tls = isinstance(sock, TlsSocket)
        self._fd = sock.fileno()
        self._address = address
        self.caller = caller
        self._opened = self.last_active = server.loop.time()
        if caller.gate is None:
            self._frames = FrameReader(server.limits.max_request_size)
        else:
            self._frames = FrameReader(caller.gate.max_size, at_once=SCRATCH_SIZE)
        self._backlog: deque[memoryview] = deque()
        self._slots: deque[tuple[asyncio.Future[Answer], int, Meter | None, float, Begun | None]] = deque()
        self._arrived = 0.0  # when the requests were read that are in the backlog, or begun
        self._taken_up = 0.0  # when the last of them was begun
        self._slow = server.slow_requests
        self._sending: deque[tuple[int, float, Begun]] = (
            deque()
        )  # up to which byte, since when; with a log of slow ones
        self._sent = 0  # bytes so far
        self._steps: Work | None = None
        self._ordered = 0  # requests that are to take effect later, and hold up what is asked behind them
        self._ordered_api = b""
        self._placed: asyncio.Future[Any] | None = None  # when the last of them has its place
        self._served: memoryview = _NOTHING
        self.usage = Usage()
        self._asked_for_turn = False
        self._held = 0
        self._kept = self._answer_bytes = 0
        self._begun = 0
        self._progress = 0
        self._draining = False
        self._unsent: deque[Chunk] = deque()
        self._unsent_bytes = 0
        self._reading = False
        self._writing = False
        self._may_send = False
        self._corked = False
        self._reading_ahead = False
        self._at_hand: FileSlice | None = None
        self._closed = False
        self._muted: asyncio.TimerHandle | None = None
        caller.connection = self
        self._resume_reading()

    def mute(self, seconds: float) -> None:
        """Read nothing more for so long; what is in hand is answered."""
        until = self._server.loop.time() + seconds
        if self._closed or (self._muted is not None and self._muted.when() >= until):
            return
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._server.loop.call_at(until, self._on_unmuted)
        self._pause_reading()

    def _on_unmuted(self) -> None:
        self._muted = None
        self.last_active = self._server.loop.time()
        self._take_up()

    def admit(self) -> None:
        """The peer has authenticated: it may send what others may."""
        self._frames.allow(self._server.limits.max_request_size)
        self._server.know(self)

    def refuse(self) -> None:
        """The peer has failed to authenticate."""
        self._server.refuse(self)

    def _resume_reading(self) -> None:
        if not self._reading and not self._closed:
            self._server.loop.add_reader(self._fd, self._on_readable)
            self._reading = True
            self._read_what_is_decrypted()

    def _read_what_is_decrypted(self) -> None:
        """The system calls a socket readable only for what TLS does not have in hand yet."""
        if self._is_tls and not self._closed and self._socket.pending():
            self._server.loop.call_soon(self._on_decrypted)

    def _on_decrypted(self) -> None:
        if self._reading:
            self._on_readable()

    def _pause_reading(self) -> None:
        if self._reading:
            self._server.loop.remove_reader(self._fd)
            self._reading = False

    def _on_readable(self) -> None:
        if not self._may_read():
            self._pause_reading()
            return
        try:
            count = self._socket.recv_into(self._frames.buffer())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"read failed: {error.strerror}")
            return
        if count == 0:
            self.close("it hung up in the middle of a request" if self._frames.in_frame else None)
            return
        try:
            frames = list(self._frames.received(count))
        except AnotherProtocol as error:
            self._turn_away(error)
            return
        except RemoteProtocolError as error:
            self.close(str(error))
            return
        begun = self._frames.body_bytes or 0
        self._hold(sum(map(len, frames)) + begun - self._begun)
        self._begun = begun
        self._backlog.extend(frames)
        self._progress += count
        if frames or self._progress >= _PROGRESS:
            self._progress = 0
            self.last_active = self._server.loop.time()
            if frames:
                self._arrived = self.last_active
        self._take_up()
        if self._reading:
            self._read_what_is_decrypted()

    def _turn_away(self, error: AnotherProtocol) -> None:
        """Say in the peer's own protocol that this one is not for it, if the socket takes that at once; hang up."""
        with suppress(OSError):
            self._socket.send(error.answer)
        self._server.warnings.warn(error.protocol, f"closing the connection of {self._address}: {error}", most=1)
        self.close()

    def _hold(self, size: int) -> None:
        self._held += size
        self._server.account(size)

    @property
    def is_idle(self) -> bool:
        """Whether the next move is the peer's. Of one that is muted it is not, unless the peer has hung up."""
        if self._muted is not None and not self._is_hung_up:
            return self._unsent_bytes > 0
        return (not self._slots and self._steps is None) or self._unsent_bytes > 0

    @property
    def is_gone(self) -> bool:
        """Whether it is muted, and its peer has hung up meanwhile and has left nothing to be read."""
        return self._muted is not None and self.is_done and self._is_hung_up and not self._has_unread

    @property
    def _is_hung_up(self) -> bool:
        """Asked of the system, which tells a reader alone."""
        asked = select.poll()
        asked.register(self._fd, select.POLLRDHUP)
        return bool(asked.poll(0))

    @property
    def _has_unread(self) -> bool:
        try:
            left = len(socket.socket.recv(self._socket, _FAREWELL + 1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:  # it was reset
            left = 0
        return bool(left > _FAREWELL or self._socket.pending()) if self._is_tls else left > 0

    @property
    def is_silent(self) -> bool:
        """Whether the peer has sent nothing yet."""
        return self.last_active == self._opened and not self._frames.in_frame

    @property
    def is_stuck(self) -> bool:
        """Whether the peer has left something half done."""
        return self._frames.in_frame or self._unsent_bytes > 0

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to be answered or sent."""
        return not self._slots and not self._unsent and self._steps is None

    def drain(self) -> None:
        """Read nothing more; hang up once what is in hand is answered."""
        self._draining = True
        self._backlog.clear()
        self._pause_reading()
        if self.is_done:
            self.close()

    def on_memory(self) -> None:
        """There is memory for requests again."""
        if not self._closed:
            self._take_up()

    @property
    def _has_room(self) -> bool:
        return (
            not self._closed
            and not self._draining
            and self._muted is None
            and self._steps is None
            and (not self._ordered or self._is_ordered_too)
            and len(self._slots) < self._server.limits.max_in_flight
            and self._unsent_bytes < MAX_UNSENT
            and (not self._answer_bytes or (self._answer_bytes < MAX_ANSWERS and self._server.has_answer_memory))
        )

    @property
    def _is_ordered_too(self) -> bool:
        """Whether the next request is of the API of those that are to take effect later."""
        return not self._backlog or self._backlog[0][:_API_KEY] == self._ordered_api

    @property
    def _has_work(self) -> bool:
        return self._may_send or self._steps is not None or (bool(self._backlog) and self._has_room)

    def _may_read(self) -> bool:
        if self._backlog or not self._has_room:
            return False
        if self._server.has_memory or self._frames.body_bytes is not None:
            return True
        self._server.wait_for_memory(self)
        return False

    def _take_up(self) -> None:
        """Send and serve what was read, if it is this connection's turn, else when it is; then read on."""
        if (self._backlog or self._steps is not None or self._may_send) and not self._asked_for_turn:
            seconds = self._server.turns.left_s
            if seconds > 0:
                self._work(seconds)
        self._go_on()

    def work(self, seconds: float) -> None:
        """It is this connection's turn, for so long."""
        self._asked_for_turn = False
        self._work(seconds)
        self._go_on()

    def _go_on(self) -> None:
        if self._draining and self.is_done:
            self.close()
        if self._has_work and not self._asked_for_turn:
            self._asked_for_turn = True
            self._server.turns.ask(self)
        if self._may_read():
            self._resume_reading()
        else:
            self._pause_reading()

    def _work(self, seconds: float) -> None:
        """Send and serve, as far as the time and flow control allow; some of it however short the time is."""
        turns, why = self._server.turns, None
        began = now = turns.time()
        until = turns.until = began + seconds
        # The answers to requests that came together leave together: sending costs as much as serving a small one.
        self._corked = True
        try:
            if self._may_send:
                self._flush(until)
                now = turns.time()
            while now < until and (self._steps is not None or (self._backlog and self._has_room)):
                before = now
                is_answered = self._serve_some(before, until)
                now = turns.time()
                meter = self.caller.meter
                if meter is not None:
                    meter.loop_s += now - before
                    if is_answered:
                        meter.answer(now - self._arrived)
                self._leave(now - before)
        except RemoteProtocolError as error:
            why = str(error)
        except Exception:
            _logger.exception("a request from %s failed", self._address)
            why = "its request could not be served"
        self._corked = False
        if self._unsent and not self._writing and not self._may_send:
            self._flush(turns.time() + SHARE_S)
        took_s = turns.spend(began)
        self.caller.busy_s += took_s
        turns.count(self.usage, took_s)
        if why:
            self.close(why)
        elif self._closed:  # in this turn, which is over now
            self._server.settle(self)

    def _serve_some(self, now: float, until: float) -> bool:
        """Begin the next request, or go on with the one begun. Whether it is answered now, in its place."""
        if self._steps is None:
            frame = self._served = self._backlog.popleft()
            self._taken_up = now
            after = self._placed if self._ordered else None
            dispatch = self._server.dispatch
            answer = dispatch(frame, self.caller) if after is None else dispatch(frame, self.caller, after)
            meter = self.caller.meter
            if meter is not None:
                meter.queued_s += now - self._arrived
            if answer is None or isinstance(answer, list) or not isinstance(answer, Generator):
                return self._answer(answer, len(frame))
            self._steps = answer
            return False
        try:
            take(self._steps, until, self._server.turns.time)
        except StopIteration as end:
            self._steps = None
            return self._answer(end.value, len(self._served))
        return False

    def _leave(self, seconds: float) -> None:
        """The request in hand has had so long. Where it is done, its memory is not kept, however long none follows."""
        if seconds > SLOW_S:
            self._server.turns.tell(seconds, self._what)
        if self._steps is None:
            self._served = _NOTHING

    def _what(self) -> str:
        return f"{describe_request(self._served)} from {self._address}"

    def _answer(self, answer: Served, size: int) -> bool:
        """The request of ``size`` bytes that was begun last is answered so, or is to be. Whether it is now."""
        if answer is None or isinstance(answer, list):
            if not self._slots:
                self._hold(-size)
                self._send(answer, self._begun_now(size))
                return True
            known: asyncio.Future[Answer] = self._server.loop.create_future()
            known.set_result(answer)
            self._slots.append((known, size, self.caller.meter, self._arrived, self._begun_now(size)))
            self._keep(_memory_of(answer))
            return False
        holds_up = not isinstance(answer, Waiting)
        if holds_up:
            self._order(answer)
        if isinstance(answer, (Ordered, Waiting)):
            answer = answer.answer
        later = asyncio.ensure_future(answer, loop=self._server.loop)
        if self._closed:
            later.cancel()
            return False
        self._slots.append((later, size, self.caller.meter, self._arrived, self._begun_now(size)))
        if holds_up:
            later.add_done_callback(self._on_effect)
        later.add_done_callback(self._on_answered)
        return False

    def _order(self, answer: Served) -> None:
        """The request that was begun last takes effect when there is ``answer``."""
        self._ordered += 1
        if not isinstance(answer, Ordered):
            self._ordered_api = b""
            return
        self._ordered_api = bytes(self._served[:_API_KEY])
        if answer.placed is not None or self._ordered == 1:
            self._placed = answer.placed

    def _on_effect(self, _: asyncio.Future[Answer]) -> None:
        self._ordered -= 1

    def _on_answered(self, answered: asyncio.Future[Answer]) -> None:
        if self._closed:
            return
        if not answered.cancelled() and answered.exception() is None:
            self._keep(_memory_of(answered.result()))
        while self._slots and self._slots[0][0].done() and not self._closed:
            slot, size, meter, arrived, begun = self._slots.popleft()
            self._hold(-size)
            if slot.cancelled():
                self.close("a request was cancelled")
            elif (error := slot.exception()) is not None:
                if not isinstance(error, RemoteProtocolError):
                    _logger.error("a request from %s failed", self._address, exc_info=error)
                self.close(str(error) or type(error).__name__)
            else:
                if meter is not None:
                    meter.answer(self._server.turns.time() - arrived)
                self._keep(-_memory_of(slot.result()))
                self._send(slot.result(), begun)
        self._take_up()

    def _keep(self, size: int) -> None:
        """So many bytes more, or less, of answers are known and wait for one before them."""
        self._kept += size
        self._account()

    def _account(self) -> None:
        """Count the memory that answers take, as long as they are not sent."""
        size = self._kept + _memory_of(self._unsent)
        self._server.account_answers(size - self._answer_bytes)
        self._answer_bytes = size

    def _begun_now(self, size: int) -> Begun | None:
        """The request that was begun last, for the log of slow ones; None without one."""
        if not self._slow.is_on:
            return None
        return Begun(head_of(self._served), size, self._arrived, self._taken_up)

    def _send(self, answer: Answer, begun: Begun | None) -> None:
        if answer is None or self._closed:
            if begun is not None:
                self._follow(begun)
                self._look_at_sent(self._server.turns.time())
            return
        for chunk in answer:
            size = chunk_size(chunk)
            if (
                isinstance(chunk, FileSlice)
                and size < _SENDFILE_AT_LEAST
                and (data := read_if_cached(chunk)) is not None
            ):
                if len(data) < size:
                    self.close("a segment was cut before it was sent")
                    return
                chunk = data
            self._unsent.append(chunk)
            self._unsent_bytes += size
        if begun is not None:
            self._follow(begun)
        if self._writing or self._may_send or self._reading_ahead:
            self._account()
        elif not self._corked or self._unsent_bytes > _CORKED_AT_MOST:
            turns = self._server.turns
            began = turns.time()
            self._flush(began + SHARE_S)
            if not self._corked:
                took_s = turns.spend(began)
                self.caller.busy_s += took_s
                self.usage.served_s += took_s

    def _follow(self, begun: Begun) -> None:
        """Look at the request again when its answer, which is known now and put behind the others, is sent."""
        self._sending.append((self._sent + self._unsent_bytes, self._server.turns.time(), begun))

    def _look_at_sent(self, now: float) -> None:
        while self._sending and self._sending[0][0] <= self._sent:
            _, answered, begun = self._sending.popleft()
            if now - begun.arrived > self._slow.limit_s:
                self._slow.tell(self.caller, self._address, begun, answered, now)

    def _flush(self, until: float) -> None:
        """Send what the socket takes, until then; what is left by then is sent in the next turn."""
        if self._reading_ahead:
            return
        before = self._unsent_bytes
        try:
            self._send_until(until)
            blocked = False
        except (BlockingIOError, InterruptedError):
            blocked = True
        except OSError as error:
            self.close(f"write failed: {error.strerror}")
            return
        if self._unsent_bytes < before:
            self.last_active = self._server.loop.time()
            if self._sending:
                self._look_at_sent(self.last_active)
        if not self._unsent:
            self._at_hand = None  # or a file that is deleted would be held open
        if self._unsent or self._answer_bytes:
            self._account()
        if not blocked:
            self._stop_writing()
        elif not self._writing:
            self._server.loop.add_writer(self._fd, self._on_writable)
            self._writing = True

    def _send_until(self, until: float) -> None:
        """Raises OSError where the socket takes no more, or never will."""
        self._may_send = False
        before, time = self._unsent_bytes, self._server.turns.time
        while self._unsent:
            if self._unsent_bytes < before and time() >= until:
                self._may_send = True
                return
            first = self._unsent[0]
            if isinstance(first, FileSlice) and not self._is_at_hand(first):
                self._read_ahead(FileSlice(first.file, first.position, min(first.size, _AT_HAND)))
                return
            sent = self._send_file(first) if isinstance(first, FileSlice) else self._send_bytes()
            self._unsent_bytes -= sent
            self._sent += sent

    def _stop_writing(self) -> None:
        if self._writing:
            self._server.loop.remove_writer(self._fd)
            self._writing = False

    def _is_at_hand(self, piece: FileSlice) -> bool:
        """Whether the next bytes of ``piece`` can be sent without a wait for the disk."""
        known = self._at_hand
        if known is not None and piece.file is known.file and known.position <= piece.position < _end(known):
            return True
        next_ = FileSlice(piece.file, piece.position, min(piece.size, _AT_HAND))
        if not is_cached(next_):
            return False
        self._at_hand = next_
        return True

    def _read_ahead(self, piece: FileSlice) -> None:
        """Go on when a thread has read ``piece``; whatever else is to be sent waits behind it."""
        self._reading_ahead = True
        reading = self._server.loop.run_in_executor(None, read_ahead, piece)
        reading.add_done_callback(lambda done: self._on_read_ahead(piece, done))

    def _on_read_ahead(self, piece: FileSlice, done: asyncio.Future[None]) -> None:
        self._reading_ahead = False
        if done.cancelled() or self._closed:
            return
        if (error := done.exception()) is not None:
            self.close(f"cannot read what is to be sent: {error}")
            return
        self._at_hand = piece
        self._may_send = True
        self._take_up()

    def _on_writable(self) -> None:
        self._may_send = True
        self._take_up()
        if self._may_send:
            self._stop_writing()  # until its turn has come: the loop would call this in every round

    def _send_bytes(self) -> int:
        views: list[bytes | bytearray | memoryview] = []
        more = size = 0
        for chunk in self._unsent:
            if isinstance(chunk, FileSlice):
                more = socket.MSG_MORE
                break
            left = _SENT_A_CALL - size
            views.append(chunk if len(chunk) <= left else memoryview(chunk)[:left])
            size += len(views[-1])
            if len(views) == _BUFFERS_A_CALL or size == _SENT_A_CALL:
                break
        total: int = self._socket.sendmsg(views, (), more)
        sent = total
        while sent:
            first = self._unsent.popleft()
            assert not isinstance(first, FileSlice)
            if sent < len(first):
                self._unsent.appendleft(memoryview(first)[sent:])
                break
            sent -= len(first)
        while self._unsent and chunk_size(self._unsent[0]) == 0:
            self._unsent.popleft()
        return total

    def _send_file(self, piece: FileSlice) -> int:
        assert self._at_hand is not None
        size = min(piece.size, _end(self._at_hand) - piece.position)
        if self._is_tls:
            data = os.pread(piece.file.fileno(), min(size, _ENCRYPTED_A_CALL), piece.position)
            sent = self._socket.sendmsg([data]) if data else 0
        else:
            sent = os.sendfile(self._fd, piece.file.fileno(), piece.position, size)
        if sent == 0 and piece.size:
            raise OSError(0, "a segment was cut while it was being sent")
        if sent < piece.size:
            self._unsent[0] = FileSlice(piece.file, piece.position + sent, piece.size - sent)
        else:
            self._unsent.popleft()
        return sent

    def close(self, why: str | None = None) -> None:
        """Hang up; ``why`` goes to the log."""
        if self._closed:
            return
        if why:
            self._server.warnings.warn("close", f"closing the connection of {self._address}: {why}")
        self._pause_reading()
        if self._writing:
            self._server.loop.remove_writer(self._fd)
        self._closed = True
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        self._may_send = False
        self._socket.close()
        self._unsent.clear()
        self._sending.clear()
        self._at_hand = None
        self._backlog.clear()
        self._served = _NOTHING  # the caller refers to this connection too: what it held would wait for the collector
        self._frames.discard()
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        for slot, *_ in self._slots:
            slot.cancel()
        self._slots.clear()
        self._hold(-self._held)
        self._kept = 0
        self._account()
        self._server.forget(self)
        self._server.settle(self)


def _end(piece: FileSlice) -> int:
    return piece.position + piece.size


def _memory_of(chunks: Iterable[Chunk] | None) -> int:
    """What is sent from a file takes none."""
    return sum(len(chunk) for chunk in chunks or () if not isinstance(chunk, FileSlice))
