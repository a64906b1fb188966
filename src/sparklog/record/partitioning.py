"""Kafka's default partitioner: ``toPositive(murmur2(key)) % partitions``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.record import _impl, layout

if TYPE_CHECKING:
    from typing_extensions import Buffer


def murmur2(data: Buffer) -> int:
    """Kafka's murmur2 of ``data``, as an unsigned 32-bit integer (Java shows the same bits as a signed one)."""
    return _impl.codec.murmur2(data)


def partition_for(key: Buffer, partition_count: int) -> int:
    """The partition that Java's producer picks for ``key``."""
    return (_impl.codec.murmur2(key) & layout.MAX_INT32) % partition_count
