"""The two ends of a connection, without a socket.

A server end turns frames into ``Request`` values and answers into framed chunks; a client end the reverse, matching
answers to questions in order (Kafka answers each connection's requests in the order in which they came).
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import NamedTuple

from sparklog.errors import RemoteProtocolError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import has_flexible_response_header, is_flexible
from sparklog.protocol.wire import WireReader, WireWriter, frame
from sparklog.structs import Chunk

_HEADER = Struct(">hhi")
_COPIED = 16 << 10
"""A body up to so many bytes is cheaper to copy behind its header than to hand on beside it."""


class Request(NamedTuple):
    """One request: its header, and its body still encoded."""

    api: int
    version: int
    correlation_id: int
    client_id: str | None
    body: "memoryview"  # noqa: UP037  mypyc looks for the bare name among this module's own


def parse_request(data: memoryview) -> Request:
    """Split a request frame into header and body.

    The API number may be unknown, or the version unsupported; then the header is read in its oldest form, which is
    enough to answer (request header versions 1 and 2, ``RequestHeader.json``).
    """
    reader = WireReader(data)
    api, version, correlation_id = reader.numbers(_HEADER)
    client_id = reader.string_or_none()
    if _is_known(api) and is_flexible(ApiKey(api), version):
        reader.flexible = True
        reader.skip_tags()
    return Request(api, version, correlation_id, client_id, data[reader.position :])


def describe_request(data: memoryview) -> str:
    """What a request frame asks for and whose it is, for the log."""
    try:
        request = parse_request(data)
    except RemoteProtocolError:
        return "a malformed request"
    name = ApiKey(request.api).name if _is_known(request.api) else f"API {request.api}"
    return f"{name} version {request.version} of client {request.client_id!r}"


def _is_known(api: int) -> bool:
    return api in _KNOWN


_KNOWN = frozenset(key.value for key in ApiKey)


def frame_response(api: ApiKey, version: int, correlation_id: int, body: list[Chunk]) -> list[Chunk]:
    """A whole response frame: length, response header, body."""
    header = correlation_id.to_bytes(4, "big", signed=True)
    if has_flexible_response_header(api, version):
        header += b"\0"
    first = body[0] if body else b""
    if isinstance(first, bytes | bytearray) and len(first) <= _COPIED:
        return frame([header + first, *body[1:]])
    return frame([header, *body])


class ClientConnection:
    """The asking end: frames requests, and knows which answer comes next."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self._next_id = 0
        self._in_flight: deque[tuple[int, ApiKey, int]] = deque()

    @property
    def in_flight(self) -> int:
        """Requests sent whose answers have not been read."""
        return len(self._in_flight)

    def request(self, api: ApiKey, version: int, body: list[Chunk], *, expect_response: bool = True) -> list[Chunk]:
        """The frame that asks; ``expect_response=False`` for a produce with ``acks=0``, which is never answered."""
        correlation_id = self._next_id
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        header = WireWriter()
        header.int16(api)
        header.int16(version)
        header.int32(correlation_id)
        header.string(self.client_id)
        header.flexible = is_flexible(api, version)
        header.tags()
        if expect_response:
            self._in_flight.append((correlation_id, api, version))
        return frame([*header.chunks(), *body])

    def response(self, data: memoryview) -> tuple[ApiKey, int, memoryview]:
        """The next answer: its API, version and body. Raises RemoteProtocolError if it answers another request."""
        if not self._in_flight:
            raise RemoteProtocolError("a response came that no request waits for")
        expected, api, version = self._in_flight.popleft()
        reader = WireReader(data)
        correlation_id = reader.int32()
        if correlation_id != expected:
            raise RemoteProtocolError(f"response {correlation_id} came where {expected} was due")
        reader.flexible = has_flexible_response_header(api, version)
        reader.skip_tags()
        return api, version, data[reader.position :]
