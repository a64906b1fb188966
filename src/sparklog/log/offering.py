"""Writing segment files for a log to adopt (``adoption``), from any process that sees the partition's directory."""

from __future__ import annotations

import os
from mmap import mmap
from pathlib import Path

from sparklog.log.adoption import Offer, offer_path
from sparklog.log.files import OpenFile, remove_files, write_all
from sparklog.record.batch import RecordBatch, increment_sequence, patch_header, patch_producer
from sparklog.structs import NO_EPOCH


class OfferWriter:
    """One offer: batches one behind the other, in files of ``segment_bytes`` at most.

    ``tag``: letters and digits, of this attempt alone. Any method may raise OSError; then ``discard``.
    """

    def __init__(self, directory: Path, tag: str, segment_bytes: int) -> None:
        self._directory = directory
        self._tag = tag
        self._segment_bytes = segment_bytes
        self._file: OpenFile | None = None
        self._size = 0
        self._bases: list[int] = []
        self._next_offset = 0
        self.nbytes = 0
        """Of all files."""

    def append(self, data: bytearray) -> None:
        """Write one batch, which gets the next offset, counted from 0, in its own header too."""
        if self._file is None or self._size + len(data) > self._segment_bytes:
            self._begin()
        assert self._file is not None
        patch_header(data, 0, self._next_offset, int(NO_EPOCH))
        write_all(self._file.fileno(), memoryview(data), self._size)
        self._size += len(data)
        self.nbytes += len(data)
        self._next_offset = RecordBatch(data).next_offset

    @property
    def next_offset(self) -> int:
        """How many records there are."""
        return self._next_offset

    def _begin(self) -> None:
        path = offer_path(self._directory, self._next_offset, self._tag)
        self._file, self._size = OpenFile(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), 0
        self._bases.append(self._next_offset)

    def finish(self) -> Offer | None:
        """What was written; None if that is nothing. The broker syncs it."""
        self._file = None
        return Offer(self._tag, tuple(self._bases), self._next_offset) if self._bases else None

    def discard(self) -> None:
        """Remove what was written."""
        self._file = None
        remove_files(offer_path(self._directory, base, self._tag) for base in self._bases)


def renumber(directory: Path, offer: Offer, first_sequence: int) -> None:
    """Let the batches of an offer, whose sequences are not known when they are written, have them from this one on.

    Raises CorruptRecord, OSError.
    """
    sequence = first_sequence
    for base in offer.bases:
        with open(offer_path(directory, base, offer.tag), "r+b") as file, mmap(file.fileno(), 0) as whole:
            position, size = 0, len(whole)
            with memoryview(whole) as view:
                while position < size:
                    with view[position:] as left:
                        batch = RecordBatch(left)
                        patch_producer(left, 0, batch.producer_id, batch.producer_epoch, sequence)
                        sequence = increment_sequence(sequence, batch.last_offset_delta + 1)
                        position += batch.size_in_bytes
                        del batch
