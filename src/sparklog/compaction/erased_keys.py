"""The keys of an erasure as bytes: sorted, each once, each behind its length (four bytes, big-endian).

So the same set of keys is always the same bytes, and has the same SHA-256, by which a report names it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator

from sparklog.errors import CorruptRecord, LocalProtocolError

_LENGTH = struct.Struct(">I")

MOST_BYTES = 8 << 20
"""Packed: they travel in one request, and are held by each broker and its worker."""


def pack_keys(keys: Iterable[bytes]) -> bytes:
    """Raises LocalProtocolError where there is no key, or where they take more than ``MOST_BYTES``."""
    unique = sorted(set(keys))
    packed = b"".join(_LENGTH.pack(len(key)) + key for key in unique)
    if not unique:
        raise LocalProtocolError("there is no key whose records are to be erased")
    if len(packed) > MOST_BYTES:
        raise LocalProtocolError(
            f"{len(unique):,} keys take {len(packed):,} bytes, and one erasure takes {MOST_BYTES:,}: erase in parts"
        )
    return packed


def unpack_keys(packed: bytes) -> Iterator[bytes]:
    """Each key. Raises CorruptRecord where the bytes are none of ``pack_keys``."""
    at, end, before = 0, len(packed), None
    while at < end:
        start = at + _LENGTH.size
        at = start + (_LENGTH.unpack_from(packed, at)[0] if start <= end else end)
        key = packed[start:at]
        if at > end or (before is not None and key <= before):
            raise CorruptRecord("the keys of the erasure are malformed")
        before = key
        yield key


def digest_of(packed: bytes) -> bytes:
    """Their SHA-256."""
    return hashlib.sha256(packed).digest()
