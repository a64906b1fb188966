"""Lines of text as Arrow columns, without a Python object a line."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

BLOCK = 8 << 20
LINGER_MS = 5
"""How long more input is waited for before what is there is sent."""


def read_blocks(descriptor: int) -> Iterator[bytes]:
    """What can be read, in pieces up to BLOCK; from a pipe or a terminal what has arrived goes on at once."""
    poller = select.poll()  # select() knows no descriptor above 1023
    poller.register(descriptor, select.POLLIN)
    pieces: list[bytes] = []
    size = 0
    while piece := os.read(descriptor, BLOCK - size):
        pieces.append(piece)
        size += len(piece)
        if size >= BLOCK or not poller.poll(LINGER_MS):
            yield b"".join(pieces)
            pieces, size = [], 0
    if pieces:
        yield b"".join(pieces)


def split_lines(blocks: Iterator[bytes], check: Callable[[int], object] = lambda _: None) -> Iterator[pa.Array]:
    """The lines of the blocks as binary arrays, without their newlines; a last line may lack its own.

    ``check`` is told the size of a line that goes on beyond a block, as far as it is read: what it raises ends this.
    """
    rest: list[bytes] = []
    size = 0
    for block in blocks:
        head, newline, tail = block.rpartition(b"\n")
        if newline:
            yield pc.split_pattern(pa.array([b"".join([*rest, head])], pa.binary()), b"\n").values
            rest, size = [], 0
        rest.append(tail)
        size += len(tail)
        check(size)
    if size:
        yield pa.array([b"".join(rest)], pa.binary())


def split_keys(lines: pa.Array, separator: bytes) -> tuple[pa.Array, pa.Array]:
    """Key and value of each line: what is before and after the first ``separator``; without one the key is null."""
    parts = pc.split_pattern(lines, separator, max_splits=1)
    starts, ends = parts.offsets[:-1], parts.offsets[1:]
    first, last = pc.take(parts.values, starts), pc.take(parts.values, pc.subtract(ends, 1))
    has_key = pc.greater(pc.subtract(ends, starts), 1)
    return pc.if_else(has_key, first, pa.scalar(None, pa.binary())), last


def join_lines(columns: list[pa.Array], separator: bytes, null: bytes = b"") -> memoryview:
    """One line a row: its columns (binary; ``null`` stands for a null) joined, and a newline."""
    if not len(columns[0]):
        return memoryview(b"")
    texts = [column.fill_null(null) for column in columns]
    joined = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, separator)
    return joined_rows([joined, b"\n"], len(joined))


def joined_rows(parts: Sequence[pa.Array | bytes], count: int) -> memoryview:
    """``count`` rows one behind the other, each of these parts: a column (binary, without nulls), or what all share."""
    if not count:
        return memoryview(b"")
    scalars = [pa.scalar(each, pa.binary()) if isinstance(each, bytes) else each for each in parts]
    if not any(isinstance(each, pa.Array) for each in scalars):
        return memoryview(b"".join(each.as_py() for each in scalars) * count)
    rows = pc.binary_join_element_wise(*scalars, b"")
    offsets = memoryview(rows.buffers()[1]).cast("i")
    return memoryview(rows.buffers()[2])[offsets[rows.offset] : offsets[rows.offset + len(rows)]]
