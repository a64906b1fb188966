"""The file of an OffsetMap: what one process has put into it, for others on this machine to look up.

A head of one page, then the slots: 24 bytes each, two words of hash and one more than the offset; all zeros where no
key is. The first word, scaled to the slots, says where a key is looked for first; from there slot after slot, round
the end, up to an empty one. Little-endian. The file is read where it lies, and lives no longer than a cleaning does:
there are no checksums, and no versions.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from sparklog.errors import CorruptRecord

MAP_FILE_HEAD = 4096
"""Bytes; a page."""
SLOT = Struct("<QQQ")
_MAGIC = b"SLOFFMAP"
_HEAD = Struct("<8s16s6q")


class MapHead(NamedTuple):
    """What is said of the map as a whole."""

    seed: bytes
    part: int
    parts: int
    room: int
    """Slots, at least one."""
    size: int
    latest_offset: int
    messages: int

    def to_bytes(self) -> bytes:
        return _HEAD.pack(_MAGIC, *self).ljust(MAP_FILE_HEAD, b"\0")


def open_map_files(paths: Sequence[str | os.PathLike[str]]) -> tuple[list[MapHead], list[mmap.mmap]]:
    """The heads and the mappings of the files of all parts of one map, in the order of the parts.

    Raises CorruptRecord for a file that is none, and ValueError where they are not all parts of one map.
    """
    found = sorted((_open(path) for path in paths), key=lambda each: each[0].part)
    heads = [head for head, _ in found]
    if [(each.seed, each.part, each.parts) for each in heads] != [
        (heads[0].seed, number, len(heads)) for number in range(len(heads))
    ]:
        raise ValueError(f"{', '.join(map(str, paths))} are not the parts of one map")
    return heads, [mapping for _, mapping in found]


def _open(path: str | os.PathLike[str]) -> tuple[MapHead, mmap.mmap]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size <= MAP_FILE_HEAD:
            raise CorruptRecord(f"{os.fspath(path)} is no map of offsets: it has {size} bytes")
        mapping = mmap.mmap(fd, size, prot=mmap.PROT_READ)
    finally:
        os.close(fd)
    magic, *fields = _HEAD.unpack_from(mapping)
    head = MapHead(*fields)
    if magic != _MAGIC or head.room < 1 or size != MAP_FILE_HEAD + head.room * SLOT.size:
        raise CorruptRecord(f"{os.fspath(path)} is no map of offsets, or a part of one is missing")
    return head, mapping
