"""The file of an OffsetMap: what one process has put into it, for others on this machine to look up.

A head of one page, then the slots: 24 bytes each, two words of hash and one more than the offset; all zeros where no
key is. In a map that goes by versions the highest bit of the third word says that the key's winner is followed by
another record of the key; the versions themselves are not kept. The first word, scaled to the slots, says where a key
is looked for first; from there slot after slot, round the end, up to an empty one. Little-endian. The file is read
where it lies, and lives no longer than a cleaning does: there are no checksums, and the format has no versions.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby
from math import lcm
from struct import Struct
from typing import NamedTuple

from sparklog.errors import CorruptRecord

MAP_FILE_HEAD = 4096
"""Bytes; a page."""
SLOT = Struct("<QQQ")
_MAGIC = b"SLOFFMAP"
_HEAD = Struct("<8s16s7q?")
FOLLOWED = 1 << 63
"""The bit of a slot that says so."""


class MapHead(NamedTuple):
    """What is said of the map as a whole."""

    seed: bytes
    part: int
    parts: int
    first_offset: int
    """Records before it are not in the map."""
    room: int
    """Slots, at least one."""
    size: int
    latest_offset: int
    messages: int
    is_versioned: bool

    def to_bytes(self) -> bytes:
        return _HEAD.pack(_MAGIC, *self).ljust(MAP_FILE_HEAD, b"\0")


def map_file_size(slots: int) -> int:
    """The bytes of the file of a map all of whose ``slots`` are in use."""
    return MAP_FILE_HEAD + slots * SLOT.size


class MapFiles(NamedTuple):
    """The files of one map. Those of later records are looked up before those of earlier ones."""

    heads: list[MapHead]
    mappings: list[mmap.mmap]
    layers: list[list[int]]
    """For each stretch of the log, the last one first, which of the files holds a key, by the number of its part: of as
    many equal parts as tell all files apart.
    """

    @property
    def latest_offset(self) -> int:
        """Up to where all records are in the map: a part may have become full, and what follows is missing there."""
        reached = -1
        for layer in reversed(self.layers):
            heads = [self.heads[number] for number in layer]
            if reached >= 0 and heads[0].first_offset > reached + 1:
                break
            reached = max(reached, min(head.latest_offset for head in heads))
        return reached

    @property
    def messages(self) -> int:
        return sum(self.heads[layer[0]].messages for layer in self.layers)


def open_map_files(paths: Sequence[str | os.PathLike[str]]) -> MapFiles:
    """The files of one map: of all parts of the keys, for each stretch of the log that has some.

    Raises CorruptRecord for a file that is none, and ValueError where they are not all parts of one map.
    """
    found = sorted(map(_open, paths), key=lambda each: (-each[0].first_offset, Fraction(each[0].part, each[0].parts)))
    heads, mappings = [head for head, _ in found], [mapping for _, mapping in found]
    numbers = range(len(heads))
    stretches = [list(each) for _, each in groupby(numbers, key=lambda number: heads[number].first_offset)]
    is_whole = all(_is_whole([heads[number] for number in stretch]) for stretch in stretches)
    kinds = {(head.seed, head.is_versioned) for head in heads}
    if len(kinds) != 1 or not is_whole or (heads[0].is_versioned and len(stretches) > 1):
        raise ValueError(f"{', '.join(map(str, paths))} are not the parts of one map")
    count = lcm(*(head.parts for head in heads))
    layers = [[each for each in stretch for _ in range(count // heads[each].parts)] for stretch in stretches]
    return MapFiles(heads, mappings, layers)


def _is_whole(heads: Sequence[MapHead]) -> bool:
    """Whether the parts follow one another, and are all."""
    begins = [Fraction(head.part, head.parts) for head in heads]
    ends = [Fraction(head.part + 1, head.parts) for head in heads]
    return [*begins, Fraction(1)] == [Fraction(0), *ends]


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
