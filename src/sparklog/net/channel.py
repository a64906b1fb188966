"""One accepted connection: frames in, answers out in the order of the requests, never more in hand than allowed.

Sockets are driven on an asyncio loop through ``add_reader`` and ``add_writer`` rather than through its transports: a
large request is received into its own buffer, and a segment goes from the page cache to the socket by ``sendfile``,
between two pieces of the same response, without a task or a copy.

Flow control: a connection is read no further while it has ``max_in_flight`` requests unanswered or ``MAX_UNSENT`` bytes
of answers unsent, nor begins a request while those of all connections have filled the memory allowed for them. A
request that has begun to come is read to its end, or nobody might ever give memory back.

A connection is idle since the last whole request, the last ``_PROGRESS`` bytes of one, or the last byte of an answer
that its peer took: who sends a request in drops or takes no answer is idle. Who waits for an answer is not.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from sparklog.errors import RemoteProtocolError
from sparklog.net.complaints import Complaints
from sparklog.net.limits import Limits
from sparklog.protocol.frame import FrameReader
from sparklog.structs import Chunk, FileSlice, chunk_size

_logger = logging.getLogger(__name__)

MAX_UNSENT = 64 << 20
_PROGRESS = 64 << 10
_SENDFILE_AT_LEAST = 16 << 10
_CORKED_AT_MOST = 256 << 10
_BUFFERS_A_CALL = 64

Answer = list[Chunk] | None
"""The chunks of a whole response frame, or None for a request that gets no answer."""
Dispatch = Callable[[memoryview, str], "Answer | Awaitable[Answer]"]
"""Serves one request frame from a client's address. Raises RemoteProtocolError to have the connection closed."""


class Owner(Protocol):
    """What a channel needs of its server."""

    loop: asyncio.AbstractEventLoop
    dispatch: Dispatch
    limits: Limits
    complaints: Complaints

    @property
    def has_memory(self) -> bool:
        """Whether a further request may be begun to be read."""

    def account(self, size: int) -> None:
        """So many bytes of requests are held more, or less."""

    def wait_for_memory(self, channel: ServerChannel) -> None:
        """Call ``channel.on_memory`` when there is some again."""

    def forget(self, channel: ServerChannel) -> None:
        """``channel`` is closed."""


class ServerChannel:
    """One accepted connection."""

    def __init__(self, server: Owner, sock: socket.socket, address: str) -> None:
        self._server = server
        self._socket = sock
        self._fd = sock.fileno()
        self._address = address
        self.host = address.rpartition(":")[0]
        self.last_active = server.loop.time()
        self._frames = FrameReader(server.limits.max_request_size)
        self._backlog: deque[memoryview] = deque()
        self._slots: deque[tuple[asyncio.Future[Answer], int]] = deque()
        self._held = 0
        self._begun = 0
        self._progress = 0
        self._draining = False
        self._unsent: deque[Chunk] = deque()
        self._unsent_bytes = 0
        self._reading = False
        self._writing = False
        self._corked = False
        self._closed = False
        self._resume_reading()

    def _resume_reading(self) -> None:
        if not self._reading and not self._closed:
            self._server.loop.add_reader(self._fd, self._on_readable)
            self._reading = True

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
        except RemoteProtocolError as error:
            self.close(f"{error} (socket.request.max.bytes)")
            return
        begun = self._frames.body_bytes or 0
        self._hold(sum(map(len, frames)) + begun - self._begun)
        self._begun = begun
        self._backlog.extend(frames)
        self._progress += count
        if frames or self._progress >= _PROGRESS:
            self._progress = 0
            self.last_active = self._server.loop.time()
        self._take_up()

    def _hold(self, size: int) -> None:
        self._held += size
        self._server.account(size)

    @property
    def is_idle(self) -> bool:
        """Whether the next move is the peer's."""
        return not self._slots or self._unsent_bytes > 0

    @property
    def is_stuck(self) -> bool:
        """Whether the peer has left something half done."""
        return self._frames.in_frame or self._unsent_bytes > 0

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to be answered or sent."""
        return not self._slots and not self._unsent

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
            and len(self._slots) < self._server.limits.max_in_flight
            and self._unsent_bytes < MAX_UNSENT
        )

    def _may_read(self) -> bool:
        if not self._has_room:
            return False
        if self._server.has_memory or self._frames.body_bytes is not None:
            return True
        self._server.wait_for_memory(self)
        return False

    def _take_up(self) -> None:
        """Serve what was read, as far as flow control allows; read on when all of it is served."""
        why = None
        # The answers to requests that came together leave together: sending costs as much as serving a small one.
        self._corked = True
        try:
            while self._backlog and self._has_room:
                self._serve(self._backlog.popleft())
        except RemoteProtocolError as error:
            why = str(error)
        except Exception:
            _logger.exception("a request from %s failed", self._address)
            why = "its request could not be served"
        self._corked = False
        if self._unsent and not self._writing:
            self._flush()
        if why:
            self.close(why)
        if self._draining and self.is_done:
            self.close()
        if self._may_read():
            self._resume_reading()
        else:
            self._pause_reading()

    def _serve(self, frame: memoryview) -> None:
        answer = self._server.dispatch(frame, self.host)
        size = len(frame)
        if not isinstance(answer, list | None):
            slot: asyncio.Future[Answer] = asyncio.ensure_future(answer, loop=self._server.loop)
        elif self._slots:
            slot = self._server.loop.create_future()
            slot.set_result(answer)
        else:
            self._hold(-size)
            self._send(answer)
            return
        self._slots.append((slot, size))
        slot.add_done_callback(self._on_answered)

    def _on_answered(self, _slot: asyncio.Future[Answer]) -> None:
        while self._slots and self._slots[0][0].done() and not self._closed:
            slot, size = self._slots.popleft()
            self._hold(-size)
            if slot.cancelled():
                self.close("a request was cancelled")
            elif (error := slot.exception()) is not None:
                if not isinstance(error, RemoteProtocolError):
                    _logger.error("a request from %s failed", self._address, exc_info=error)
                self.close(str(error) or type(error).__name__)
            else:
                self._send(slot.result())
        self._take_up()

    def _send(self, answer: Answer) -> None:
        if answer is None or self._closed:
            return
        for chunk in answer:
            size = chunk_size(chunk)
            if isinstance(chunk, FileSlice) and size < _SENDFILE_AT_LEAST:
                chunk = os.pread(chunk.file.fileno(), size, chunk.position)
                if len(chunk) < size:
                    self.close("a segment was cut before it was sent")
                    return
            self._unsent.append(chunk)
            self._unsent_bytes += size
        if not self._writing and (not self._corked or self._unsent_bytes > _CORKED_AT_MOST):
            self._flush()

    def _flush(self) -> None:
        before = self._unsent_bytes
        try:
            while self._unsent:
                sent = self._send_file() if isinstance(self._unsent[0], FileSlice) else self._send_bytes()
                self._unsent_bytes -= sent
            self.last_active = self._server.loop.time()
        except (BlockingIOError, InterruptedError):
            if self._unsent_bytes < before:
                self.last_active = self._server.loop.time()
            if not self._writing:
                self._server.loop.add_writer(self._fd, self._on_writable)
                self._writing = True
            return
        except OSError as error:
            self.close(f"write failed: {error.strerror}")
            return
        if self._writing:
            self._server.loop.remove_writer(self._fd)
            self._writing = False

    def _on_writable(self) -> None:
        self._flush()
        self._take_up()

    def _send_bytes(self) -> int:
        views: list[bytes | bytearray | memoryview] = []
        more = 0
        for chunk in self._unsent:
            if isinstance(chunk, FileSlice):
                more = socket.MSG_MORE
                break
            views.append(chunk)
            if len(views) == _BUFFERS_A_CALL:
                break
        sent = total = self._socket.sendmsg(views, (), more)
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

    def _send_file(self) -> int:
        piece = self._unsent[0]
        assert isinstance(piece, FileSlice)
        sent = os.sendfile(self._fd, piece.file.fileno(), piece.position, piece.size)
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
            self._server.complaints.warn("close", f"closing the connection of {self._address}: {why}")
        self._pause_reading()
        if self._writing:
            self._server.loop.remove_writer(self._fd)
        self._closed = True
        self._socket.close()
        self._unsent.clear()
        self._backlog.clear()
        for slot, _ in self._slots:
            slot.cancel()
        self._slots.clear()
        self._hold(-self._held)
        self._server.forget(self)
