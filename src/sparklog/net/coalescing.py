"""The chunks of a request in pieces worth sending: each piece is a system call, and wakes the peer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparklog.structs import Chunk, FileSlice

_COPIED = 256 << 10
"""A piece of a request up to so many bytes is cheaper to copy than to hand to the system by itself."""


def coalesced(chunks: Iterable[Chunk]) -> Iterator[bytes | bytearray | memoryview]:
    """Neighbours that are small in one piece."""
    small: list[bytes | bytearray | memoryview] = []
    for chunk in chunks:
        if isinstance(chunk, FileSlice):
            continue
        if len(chunk) <= _COPIED:
            small.append(chunk)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield chunk
    if small:
        yield b"".join(small)
