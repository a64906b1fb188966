"""The broker's listening end: accept, read frames, answer in order, send file slices without reading them.

Sockets are driven on an asyncio loop through ``add_reader`` and ``add_writer`` rather than through its transports: a
large request is received into its own buffer, and a segment goes from the page cache to the socket by ``sendfile``,
between two pieces of the same response, without a task or a copy.

Each connection answers its requests in the order in which they came, as Kafka clients demand, though several may be in
hand at once. Flow control: no more than ``max_in_flight`` requests unanswered and ``MAX_UNSENT`` bytes of answers
unsent a connection; beyond either it is read no further until the peer has caught up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable

from sparklog.errors import RemoteProtocolError
from sparklog.protocol.frame import FrameReader
from sparklog.structs import Chunk, Endpoint, FileSlice, chunk_size

_logger = logging.getLogger(__name__)

MAX_UNSENT = 64 << 20
_SENDFILE_AT_LEAST = 16 << 10
_CORKED_AT_MOST = 256 << 10
_BUFFERS_A_CALL = 64
_ACCEPTS_A_TURN = 64
_BACKLOG = 512
_ACCEPT_PAUSE_S = 1

Answer = list[Chunk] | None
"""The chunks of a whole response frame, or None for a request that gets no answer."""
Dispatch = Callable[[memoryview, str], "Answer | Awaitable[Answer]"]
"""Serves one request frame from a client's address. Raises RemoteProtocolError to have the connection closed."""


class ServerChannel:
    """One accepted connection."""

    def __init__(self, server: SocketServer, sock: socket.socket, address: str) -> None:
        self._server = server
        self._socket = sock
        self._fd = sock.fileno()
        self._address = address
        self._host = address.rpartition(":")[0]
        self._frames = FrameReader(server.max_request_size)
        self._backlog: deque[memoryview] = deque()
        self._slots: deque[asyncio.Future[Answer]] = deque()
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
            self._backlog.extend(self._frames.received(count))
        except RemoteProtocolError as error:
            self.close(str(error))
            return
        self._take_up()

    @property
    def _has_room(self) -> bool:
        return not self._closed and len(self._slots) < self._server.max_in_flight and self._unsent_bytes < MAX_UNSENT

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
        if self._has_room:
            self._resume_reading()
        else:
            self._pause_reading()

    def _serve(self, frame: memoryview) -> None:
        answer = self._server.dispatch(frame, self._host)
        if not isinstance(answer, list | None):
            slot: asyncio.Future[Answer] = asyncio.ensure_future(answer, loop=self._server.loop)
        elif self._slots:
            slot = self._server.loop.create_future()
            slot.set_result(answer)
        else:
            self._send(answer)
            return
        self._slots.append(slot)
        slot.add_done_callback(self._on_answered)

    def _on_answered(self, _slot: asyncio.Future[Answer]) -> None:
        while self._slots and self._slots[0].done() and not self._closed:
            slot = self._slots.popleft()
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
        try:
            while self._unsent:
                sent = self._send_file() if isinstance(self._unsent[0], FileSlice) else self._send_bytes()
                self._unsent_bytes -= sent
        except (BlockingIOError, InterruptedError):
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
            _logger.warning("closing the connection of %s: %s", self._address, why)
        self._pause_reading()
        if self._writing:
            self._server.loop.remove_writer(self._fd)
        self._closed = True
        self._socket.close()
        self._unsent.clear()
        self._backlog.clear()
        for slot in self._slots:
            slot.cancel()
        self._slots.clear()
        self._server.forget(self)


class SocketServer:
    """Listens, and hands each request frame to ``dispatch``. All on one loop, in one thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, dispatch: Dispatch, *, max_request_size: int, max_in_flight: int
    ) -> None:
        self.loop = loop
        self.dispatch = dispatch
        self.max_request_size = max_request_size
        self.max_in_flight = max_in_flight
        self._channels: set[ServerChannel] = set()
        self._listener: socket.socket | None = None

    def bind(self, host: str, port: int) -> Endpoint:
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
        self._listener = listener
        return Endpoint(host, listener.getsockname()[1])

    def start(self) -> None:
        """Begin to accept connections."""
        assert self._listener is not None
        self._listener.listen(_BACKLOG)
        self.loop.add_reader(self._listener.fileno(), self._on_connection)

    def _on_connection(self) -> None:
        assert self._listener is not None
        for _ in range(_ACCEPTS_A_TURN):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _logger.error("cannot accept a connection, trying again in %d s: %s", _ACCEPT_PAUSE_S, error.strerror)
                self.loop.remove_reader(self._listener.fileno())
                self.loop.call_later(_ACCEPT_PAUSE_S, self._accept_again)
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._channels.add(ServerChannel(self, sock, f"{address[0]}:{address[1]}"))

    def _accept_again(self) -> None:
        if self._listener is not None:
            self.loop.add_reader(self._listener.fileno(), self._on_connection)

    def forget(self, channel: ServerChannel) -> None:
        self._channels.discard(channel)

    @property
    def connections(self) -> int:
        return len(self._channels)

    def stop_accepting(self) -> None:
        """No new connections; those there go on."""
        if self._listener is not None:
            self.loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        """Stop accepting and hang up on everyone."""
        self.stop_accepting()
        for channel in list(self._channels):
            channel.close()
