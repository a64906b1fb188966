"""Which partition a key belongs to.

A producer's record: ``toPositive(murmur2(key)) % partitions``. What a coordinator keeps: Java's ``String.hashCode``.
"""

from __future__ import annotations

from functools import lru_cache
from struct import iter_unpack
from typing import TYPE_CHECKING

from sparklog.record import _impl, layout

if TYPE_CHECKING:
    from typing_extensions import Buffer

_SHORT = 256
"""Characters."""


def murmur2(data: Buffer) -> int:
    """Kafka's murmur2 of ``data``, as an unsigned 32-bit integer (Java shows the same bits as a signed one)."""
    return _impl.codec.murmur2(data)


def partition_for(key: Buffer, partition_count: int) -> int:
    """The partition that Java's producer picks for ``key``."""
    return (_impl.codec.murmur2(key) & layout.MAX_INT32) % partition_count


def coordinator_partition(name: str, count: int) -> int:
    """The partition of a coordinator's topic that holds ``name``: Java's ``String.hashCode``, without its sign.

    It is remembered for short names, so that what is remembered stays small: a client may send names of 32 KB.
    """
    return _short_names_partition(name, count) if len(name) <= _SHORT else _hashed(name, count)


def _hashed(name: str, count: int) -> int:
    code = 0
    for (unit,) in iter_unpack(">H", name.encode("utf-16-be", "surrogatepass")):
        code = (31 * code + unit) & 0xFFFFFFFF
    if code >= 1 << 31:
        code = (1 << 32) - code
    return 0 if code == 1 << 31 else code % count


_short_names_partition = lru_cache(maxsize=8192)(_hashed)
