"""Whether bytes of a file can be had at once, or the disk has to be waited for.

A loop that sends a segment asks first; what is not in the page cache is read into it on a thread. Only a system that
cannot be asked (``RWF_NOWAIT``) is taken at its word that everything is there.
"""

from __future__ import annotations

import errno
import os

from sparklog.structs import FileSlice

_PROBED_EVERY = 256 << 10
"""The system reads ahead about so much where it reads at all."""
_BLOCK = 1 << 20


def read_if_cached(piece: FileSlice) -> bytearray | None:
    """The bytes of ``piece``, fewer at the end of its file; None where the disk would have to be waited for."""
    buffer = bytearray(piece.size)
    try:
        count = os.preadv(piece.file.fileno(), (buffer,), piece.position, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return None
        if error.errno != errno.EOPNOTSUPP:
            raise
        count = os.preadv(piece.file.fileno(), (buffer,), piece.position)
    if count < piece.size:  # it ends there, or its rest is on the disk
        return None if os.fstat(piece.file.fileno()).st_size >= piece.position + piece.size else buffer[:count]
    return buffer


def is_cached(piece: FileSlice) -> bool:
    """Whether all of ``piece`` seems to be in memory; what lies beyond the end of the file counts as there."""
    end = piece.position + piece.size
    probe = bytearray(1)
    for position in (*range(piece.position, end, _PROBED_EVERY), end - 1):
        try:
            os.preadv(piece.file.fileno(), (probe,), position, os.RWF_NOWAIT)
        except OSError as error:
            return error.errno != errno.EAGAIN
    return True


def read_ahead(piece: FileSlice) -> None:
    """Have ``piece`` in memory on return; for a thread that may wait. Raises OSError if the disk cannot be read."""
    buffer = bytearray(min(_BLOCK, piece.size))
    position, end = piece.position, piece.position + piece.size
    while position < end:
        count = os.preadv(piece.file.fileno(), (memoryview(buffer)[: end - position],), position)
        if count == 0:
            return
        position += count
