"""TLS beneath an accepted connection: the handshake on the loop, and a socket that is read and written as a plain one.

OpenSSL has what it has decrypted in hand: a socket that the system calls readable may have given all to it, so a reader
asks ``pending`` before it waits. And it wants a write that did not go through repeated with the same bytes: the socket
keeps them, and whoever calls again with the same bytes first, as ``net/channel.py`` does, notices nothing.

A handshake costs a signature, a millisecond and more of the one loop's time. So its steps are taken in turns
(``net/turns.py``), as requests are served: strangers that come all at once hold up no peer that is in.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from sparklog.net.turns import Turns, Usage

_SENT_A_CALL = 64 << 10
Piece = bytes | bytearray | memoryview
_WAITS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsSocket(ssl.SSLSocket):
    """A non-blocking one of the server's side, after its handshake. Waiting raises BlockingIOError, as without TLS."""

    _repeated: bytes = b""

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:  # noqa: ARG002
        """Fills ``buffer`` as far as there is something; 0 where the peer has ended the connection.

        Raises BlockingIOError where there is nothing yet, OSError.
        """
        view = memoryview(buffer)
        filled = 0
        try:
            while filled < len(view):
                count = super().recv_into(view[filled:])
                if count == 0:
                    break
                filled += count
        except _WAITS:
            if not filled:
                raise BlockingIOError from None
        except ssl.SSLError as error:
            if not filled:
                raise OSError(error.errno, f"TLS: {error.reason or error}") from error
        return filled

    def sendmsg(self, buffers: Iterable[Piece], *_: Any) -> int:  # type: ignore[override]  # it has none
        """Sends the beginning of ``buffers``; they begin with what was not sent before, if anything was.

        Raises BlockingIOError where nothing can be sent yet, OSError.
        """
        if not self._repeated:
            self._repeated = _first(buffers, _SENT_A_CALL)
        try:
            sent = self.send(self._repeated)
        except _WAITS:
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise OSError(error.errno, f"TLS: {error.reason or error}") from error
        self._repeated = b""
        return sent

    def close(self) -> None:
        """Says so to the peer, if its socket takes that at once."""
        if self.fileno() >= 0:
            with suppress(OSError, ValueError):
                self.unwrap()
        super().close()


def _first(buffers: Iterable[Piece], size: int) -> bytes:
    taken = bytearray()
    for each in buffers:
        taken += memoryview(each)[: size - len(taken)]
        if len(taken) == size:
            break
    return bytes(taken)


class Handshake:
    """The server's part of one, on a loop; ``on_end`` is told the socket, or why there is none. A ``Worker``."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turns: Turns,
        context: ssl.SSLContext,
        sock: socket.socket,
        on_end: Callable[[TlsSocket | None, str], None],
    ) -> None:
        """Raises OSError for a socket that its peer has reset already."""
        sock.getpeername()
        self._loop = loop
        self._turns = turns
        self._on_end = on_end
        context.sslsocket_class = TlsSocket
        wrapped = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        assert isinstance(wrapped, TlsSocket)
        self._socket = wrapped
        self._fd = wrapped.fileno()
        self._is_over = False
        self.usage = Usage()
        self.is_silent = True
        """Whether the peer has sent nothing yet."""
        loop.add_reader(self._fd, self._go_on)

    def _go_on(self) -> None:
        """The peer has done its part: take the next step, if it is this one's turn, else when it is."""
        self.is_silent = False
        self._let_go()
        if self._turns.left_s > 0:
            self.work(self._turns.left_s)
        else:
            self._turns.ask(self)

    def work(self, seconds: float) -> None:  # noqa: ARG002 (a step cannot be parted)
        """Take the next step."""
        if self._is_over:
            return
        began = self._turns.time()
        self._step()
        self._turns.count(self.usage, self._turns.spend(began))

    def _step(self) -> None:
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self._loop.add_reader(self._fd, self._go_on)
        except ssl.SSLWantWriteError:
            self._loop.add_writer(self._fd, self._go_on)
        except OSError as error:
            self.abort(_complaint(error))
        else:
            self._is_over = True
            self._on_end(self._socket, "")

    def _let_go(self) -> None:
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)

    def abort(self, why: str) -> None:
        """Hang up in the middle of it."""
        self._is_over = True
        self._let_go()
        socket.socket.close(self._socket)
        self._on_end(None, why)


def _complaint(error: OSError) -> str:
    """What went wrong, for the log of the broker."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS handshake failed: its certificate is not accepted: {error.verify_message}"
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNSUPPORTED_PROTOCOL", "PACKET_LENGTH_TOO_LONG"):
        return f"TLS handshake failed ({reason}): it speaks another protocol, or an older TLS, than this listener"
    return f"TLS handshake failed ({reason})"
