"""kcat's formats: ``%t %p %o %k %s\\n``, applied to columns of records at once.

========  =============================================================================
``%s``    the value; empty for null
``%S``    its length in bytes; -1 for null
``%R``    that length as four bytes, big endian
``%k``    the key; empty for null
``%K``    its length in bytes; -1 for null
``%t``    the topic
``%p``    the partition
``%o``    the offset
``%T``    the timestamp, milliseconds since 1970
``%h``    the headers, as ``name=value,name=value``; ``NULL`` for a value that is null
``%%``    a percent sign
========  =============================================================================

Besides ``\\n``, ``\\r``, ``\\t``, ``\\\\`` and ``\\xNN`` (two hexadecimal digits) are what they are in C. What is
between is printed as it is; nothing is added, no end of a line either.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sparklog.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.structs import TopicPartition

_COLUMN_OF = {
    "s": "value", "S": "value", "R": "value", "k": "key", "K": "key", "o": "offset", "T": "timestamp", "h": "headers",
}  # fmt: skip
_OF_THE_PARTITION = "tp"
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}
_PART = re.compile(r"%(?P<token>.?)|\\(?P<escape>x[0-9A-Fa-f]{2}|.?)|[^%\\]+", re.DOTALL)


class Format:
    """A format, taken apart."""

    def __init__(self, text: str) -> None:
        """Raises ConfigError for a token or an escape that there is not."""
        self._parts: list[bytes | str] = [_part(each) for each in _PART.finditer(text)]
        tokens = [each for each in self._parts if isinstance(each, str)]
        self.columns = tuple(dict.fromkeys(("value", *(_COLUMN_OF[each] for each in tokens if each in _COLUMN_OF))))
        """What it needs of each record; the value in any case, so that records without any can be counted."""

    def lines(self, tp: TopicPartition, columns: Mapping[str, pa.Array]) -> memoryview:
        """All records of the columns, one behind the other."""
        from sparklog.cli.records.lines import joined_rows

        count = len(columns["value"])
        parts = [self._filled(each, tp, columns) for each in self._parts]
        return joined_rows(parts, count)

    @staticmethod
    def _filled(part: bytes | str, tp: TopicPartition, columns: Mapping[str, pa.Array]) -> bytes | pa.Array:
        if isinstance(part, bytes):
            return part
        if part in _OF_THE_PARTITION:
            return (tp.topic if part == "t" else str(tp.partition)).encode()
        return _rendered(part, columns[_COLUMN_OF[part]])


def _part(match: re.Match[str]) -> bytes | str:
    """Bytes that stay, or the letter of a token."""
    token, escape = match["token"], match["escape"]
    if token is None and escape is None:
        return os.fsencode(match[0])
    if token == "%":
        return b"%"
    if token is not None and token in (*_COLUMN_OF, *_OF_THE_PARTITION):
        return token
    if escape is not None and escape in _ESCAPES:
        return _ESCAPES[escape]
    if escape is not None and escape.startswith("x") and len(escape) > 1:
        return bytes.fromhex(escape[1:])
    known = ", ".join(f"%{each}" for each in (*_COLUMN_OF, *_OF_THE_PARTITION, "%"))
    raise ConfigError(f"the format has {match[0]!r}, which is none of {known}, \\n, \\r, \\t, \\\\ and \\xNN")


def _rendered(token: str, column: pa.Array) -> pa.Array:
    """A column as texts (binary)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if token in "sk":
        return column.fill_null(b"")
    if token == "h":
        return pa.array([_headers(each) for each in column.to_pylist()], pa.binary())
    if token in "SRK":
        column = pc.binary_length(column).fill_null(-1)
    if token == "R":
        return _big_endian(column)
    return column.cast(pa.string()).cast(pa.binary())


def _headers(headers: Sequence[Mapping[str, bytes | str | None]] | None) -> bytes:
    pairs = ((str(each["key"]).encode(), each["value"]) for each in headers or ())
    return b",".join(name + b"=" + (value if isinstance(value, bytes) else b"NULL") for name, value in pairs)


def _big_endian(lengths: pa.Array) -> pa.Array:
    import pyarrow as pa

    data = pa.py_buffer(lengths.to_numpy().astype(">i4").tobytes())
    return pa.Array.from_buffers(pa.binary(4), len(lengths), [None, data]).cast(pa.binary())
