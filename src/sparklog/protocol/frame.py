"""Frames: every message on a Kafka connection is four bytes of length (big-endian), then that many bytes.

``FrameReader`` is fed by the owner of the socket, in the manner of a buffered protocol: ask ``buffer()`` where the
next bytes shall go, say with ``received(n)`` how many came, take the frames that are whole. A frame that does not fit
the scratch buffer gets a buffer of its own and is received into it directly, so that a large produce request is
copied once (kernel to that buffer) and never again before it is written to the log. Only above ``at_once`` it grows as
the frame comes, by as much as has come and ``GROWTH`` at most: a client that claims a size takes no more memory than
twice what it has sent, or than that, and no turn of the loop copies much. Of a stranger, of whom there may be many,
``at_once`` is ``SCRATCH_SIZE``, the least that it can be.

A length above the limit may be the first bytes of another protocol: those of TLS and of HTTP are recognised, and
AnotherProtocol carries an answer that such a peer shows its user.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparklog.errors import AnotherProtocol, RemoteProtocolError

_LENGTH = 4
SCRATCH_SIZE = 64 * 1024
AT_ONCE = 1 << 20
GROWTH = 4 << 20
"""Bytes that a buffer gains at a time; to make so many takes some milliseconds."""
_TLS_HANDSHAKE = b"\x16\x03"
"""A record of type 22 (handshake) and major version 3: every ClientHello since SSL 3 begins so."""
_HTTP_VERBS = frozenset({b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"PRI "})
"""The first four bytes of every HTTP request, HTTP/2's preface among them."""
_ALERT = bytes.fromhex("15 0301 0002 0228")
"""A TLS record: alert, fatal, handshake_failure."""
_HTTP_TEXT = b"This is a listener of Kafka's protocol, not of HTTP. Use a Kafka client.\n"
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
    % (
        len(_HTTP_TEXT),
        _HTTP_TEXT,
    )
)


class FrameReader:
    """Cuts a byte stream into frames of at most ``max_size`` bytes.

    A frame handed out is the caller's own: later bytes never overwrite it.
    """

    def __init__(self, max_size: int, at_once: int = AT_ONCE) -> None:
        self._max_size = max_size
        self._at_once = at_once
        self._scratch = bytearray(SCRATCH_SIZE)
        self._kept = 0
        self._body: bytearray | None = None
        self._size = self._filled = 0

    def allow(self, max_size: int, at_once: int = AT_ONCE) -> None:
        """Take frames of up to so many bytes from the next one on."""
        self._max_size = max_size
        self._at_once = at_once

    def discard(self) -> None:
        """Let go of what has come; nothing more will."""
        self._body, self._scratch, self._kept = None, bytearray(), 0

    @property
    def in_frame(self) -> bool:
        """Whether the stream would end in the middle of a frame if it ended now."""
        return self._body is not None or self._kept > 0

    @property
    def body_bytes(self) -> int | None:
        """How much has come of a frame that has a buffer of its own; None where none is being received."""
        return None if self._body is None else self._filled

    def buffer(self) -> memoryview:
        """Where the next bytes of the stream are to be put; never empty. What was given before is to be let go of."""
        if self._body is not None:
            if self._filled == len(self._body):
                self._body.extend(bytes(min(self._size - self._filled, self._filled, GROWTH)))
            return memoryview(self._body)[self._filled :]
        return memoryview(self._scratch)[self._kept :]

    def received(self, count: int) -> Iterator[memoryview]:
        """``count`` bytes were put into ``buffer()``: the frames that they complete, in order.

        Raises RemoteProtocolError if a length is negative or above the limit, AnotherProtocol if it is none at all; the
        stream cannot be read further then.
        """
        if self._body is not None:
            self._filled += count
            if self._filled == self._size:
                frame, self._body = self._body, None
                yield memoryview(frame)
            return
        yield from self._cut(self._kept + count)

    def _cut(self, end: int) -> Iterator[memoryview]:
        position = 0
        while end - position >= _LENGTH:
            size = int.from_bytes(self._scratch[position : position + _LENGTH], "big", signed=True)
            if not 0 <= size <= self._max_size:
                raise _refusal(bytes(self._scratch[position : position + _LENGTH]), size, self._max_size)
            start = position + _LENGTH
            if end - start < size:
                if size + _LENGTH > SCRATCH_SIZE:
                    self._begin_body(size, start, end)
                    return
                break
            position = start + size
            yield memoryview(self._scratch[start:position])
        self._kept = end - position
        if position:
            self._scratch[: self._kept] = self._scratch[position:end]

    def _begin_body(self, size: int, start: int, end: int) -> None:
        self._body = bytearray(min(size, self._at_once))
        self._size = size
        self._filled = end - start
        self._body[: self._filled] = self._scratch[start:end]
        self._kept = 0


def _refusal(opening: bytes, size: int, max_size: int) -> RemoteProtocolError:
    """Why these four bytes are no length that is allowed."""
    if opening.startswith(_TLS_HANDSHAKE):
        return AnotherProtocol(
            "TLS", "it speaks TLS, and this listener does not: set security.protocol=PLAINTEXT", _ALERT
        )
    if opening in _HTTP_VERBS:
        return AnotherProtocol("HTTP", "it speaks HTTP; this listener speaks Kafka's protocol", _BAD_REQUEST)
    return RemoteProtocolError(f"a frame claims {size} bytes; 0 to {max_size} are allowed (socket.request.max.bytes)")
