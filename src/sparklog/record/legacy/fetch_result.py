"""The first design's two answers to a fetch (Kafka 0.7): ``MessageSetSend`` for one partition, and of many a
``MultiMessageSetSend``.

One::

    total length (4): bytes that follow | error code (2) | messages of the first format

Many::

    total length (4): bytes that follow | error code (2), always 0 | one of the above for each that was asked for

The messages are bytes of the log as they lie there, so that the last one may be cut short. Nothing says from which
offset on they are: the client that asked knows. The lengths are signed; all is big-endian.
Source: Kafka 0.7.2, ``MessageSetSend``, ``MultiMessageSetSend``.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from sparklog.errors import CorruptRecord
from sparklog.record.legacy import first_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer

    from sparklog.record.legacy.message import LegacyMessage

_HEADER = Struct(">ih")
_LENGTH_SIZE = 4
_CODE_SIZE = 2
_NO_ERROR = 0
_MOST = (1 << 31) - 1


class FetchResult(NamedTuple):
    """What was answered for one partition; ``messages`` is a view of what was read."""

    error_code: int
    """0 for none."""
    messages: memoryview

    def iter_messages(self, base_offset: int = 0) -> Iterator[LegacyMessage]:
        """The messages that are whole; ``base_offset`` is the one that was asked for. Raises CorruptRecord."""
        return first_format.iter_messages(self.messages, base_offset=base_offset)


def read_result(buffer: Buffer, position: int = 0) -> tuple[FetchResult, int]:
    """The answer for one partition at ``position``, and its size in bytes.

    Raises CorruptRecord unless all of it lies in the buffer.
    """
    code, content = _read(memoryview(buffer), position)
    return FetchResult(code, content), _HEADER.size + len(content)


def read_results(buffer: Buffer, position: int = 0) -> tuple[list[FetchResult], int]:
    """The answers for many partitions in one, in the order in which they were asked for, and its size in bytes.

    Raises CorruptRecord unless all of it lies in the buffer and is made of whole answers.
    """
    _, content = _read(memoryview(buffer), position)
    results, at = [], 0
    while at < len(content):
        result, size = read_result(content, at)
        results.append(result)
        at += size
    return results, _HEADER.size + len(content)


def _read(view: memoryview, position: int) -> tuple[int, memoryview]:
    """Error code and content."""
    available = len(view) - position
    if position < 0 or available < _HEADER.size:
        raise CorruptRecord(f"no room for a fetch result at position {position} of {len(view)} bytes")
    length, code = _HEADER.unpack_from(view, position)
    if not _CODE_SIZE <= length <= available - _LENGTH_SIZE:
        raise CorruptRecord(
            f"fetch result at position {position} claims {length} of the {available - _LENGTH_SIZE} bytes left"
        )
    return code, view[position + _HEADER.size : position + _LENGTH_SIZE + length]


def write_result(messages: Buffer, error_code: int = _NO_ERROR) -> bytes:
    """The answer for one partition; ``messages`` as they lie in its log. Raises CorruptRecord beyond 2 GiB."""
    return _written(bytes(messages), error_code)


def write_results(results: Iterable[FetchResult]) -> bytes:
    """The answer for many partitions. Raises CorruptRecord beyond 2 GiB."""
    return _written(b"".join(write_result(each.messages, each.error_code) for each in results), _NO_ERROR)


def _written(content: bytes, error_code: int) -> bytes:
    if len(content) + _CODE_SIZE > _MOST:
        raise CorruptRecord(f"{len(content)} bytes do not fit one fetch result")
    return _HEADER.pack(_CODE_SIZE + len(content), error_code) + content
