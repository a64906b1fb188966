"""Reading one range from the segment files themselves, all batches as they are, where a leader's files are on this
machine; and what is checked of any leased file before its bytes are believed.

The leader leases the files (``client/cluster/leases.py``); they are opened at once, and what is open stays readable,
whatever becomes of its name. A file is opened only where a broker of the cluster may keep it (``segment_files``), and
read only if it is the one that the leader means, by device and inode; its batches only if their CRCs are right. Every
doubt raises NotDirect, and the range is fetched from where it was. Why it is safe: ``docs/adr/0012``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, suppress
from uuid import UUID

from sparklog.client.cluster.leases import LeasedFile, RangeAsked, RangeLease, end_lease, lease_ranges
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.consumer.fetch.range_reader import fetch_everything
from sparklog.client.consumer.fetch.segment_files import NOT_VISIBLE, SegmentFiles
from sparklog.errors import ApiError, ConnectionFailed, CorruptRecord, NotDirect
from sparklog.log.extents import ExtentReader
from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.structs import TopicPartition

_log = logging.getLogger(__name__)
_FILES_AT_ONCE = 32

NO_LEASE = "no lease"
DAMAGED = "a segment file is not as the broker said"


def read_everything(
    cluster: ClusterMetadata, tp: TopicPartition, start: int, end: int, topic_id: UUID
) -> Generator[RecordBatch, None, None]:
    """What ``fetch_everything`` gives, from files where they are here. A batch is good until the next one is asked for.

    Raises as ``fetch_everything`` does. Close it.
    """
    position = start
    try:
        with closing(_leased(cluster, tp, start, end, topic_id)) as batches:
            for batch in batches:
                yield batch
                position = batch.next_offset
        return
    except (NotDirect, ApiError, ConnectionFailed) as error:
        _log.debug("partition %s is fetched from offset %d on: %s", tp, position, error)
    with closing(fetch_everything(cluster, tp, position, end, topic_id)) as batches:
        yield from batches


def _leased(
    cluster: ClusterMetadata, tp: TopicPartition, start: int, end: int, topic_id: UUID
) -> Generator[RecordBatch, None, None]:
    reader, position = ExtentReader(), start
    segment_files: SegmentFiles | None = None
    while position < end:
        lease = lease_ranges(cluster, [RangeAsked(tp, position, end, topic_id)], max_files=_FILES_AT_ONCE)[0]
        if isinstance(lease, ApiError):
            raise lease
        if lease.end_offset <= position:
            raise NotDirect(NO_LEASE, f"the segment of offset {position} is being replaced")
        segment_files = segment_files or SegmentFiles(cluster.cluster_id)  # which is known once a broker has been asked
        with ExitStack() as opened:
            files = _open_all(cluster, segment_files, tp, lease, opened)
            for file, fd in files:
                for batch in leased_batches(reader, file, fd):
                    if position < batch.next_offset and batch.base_offset < end:
                        yield batch
                        position = batch.next_offset  # a lease that a quota cut short may end within the batch
        position = max(position, lease.end_offset)


def _open_all(
    cluster: ClusterMetadata, segment_files: SegmentFiles, tp: TopicPartition, lease: RangeLease, opened: ExitStack
) -> list[tuple[LeasedFile, int]]:
    try:
        files = []
        for each in lease.files:
            fd, _ = segment_files.open(each.path, tp)
            opened.callback(os.close, fd)
            check_identity(each, fd)
            files.append((each, fd))
        return files
    finally:
        with suppress(ConnectionFailed):
            end_lease(cluster, lease)


# What any reader of leased files checks


def check_identity(file: LeasedFile, fd: int) -> None:
    """Raises NotDirect unless the open file is the one that the broker means."""
    status = os.fstat(fd)
    if (status.st_dev & layout.MAX_INT64, status.st_ino & layout.MAX_INT64) != (file.device, file.inode):
        raise NotDirect(NOT_VISIBLE, f"{file.path} here is another file than the broker's, by device and inode")


def leased_batches(
    reader: ExtentReader, file: LeasedFile, fd: int, *, check_crcs: bool = True
) -> Iterator[RecordBatch]:
    """The batches of a leased file. One is valid until the next one is requested.

    Raises NotDirect(DAMAGED) where they are not as the broker said.
    """
    next_offset = file.first_offset
    try:
        _check_first(file, fd)
        for batch in reader.batches(fd, file.start, file.end):
            if batch.base_offset < next_offset:
                raise CorruptRecord(f"offset {batch.base_offset} stands where {next_offset} or more should")
            if check_crcs:
                batch.validate()
            next_offset = batch.next_offset
            yield batch
    except (CorruptRecord, OSError) as error:
        raise NotDirect(DAMAGED, f"{file.path}: {error}") from error


def _check_first(file: LeasedFile, fd: int) -> None:
    """Raises CorruptRecord unless the first batch is the one that the lease names."""
    head = os.pread(fd, layout.HEADER_SIZE, file.start)
    if len(head) < layout.HEADER_SIZE:
        raise CorruptRecord(f"it ends before position {file.start + layout.HEADER_SIZE}")
    offset, crc = layout.OFFSET_AND_LENGTH.unpack_from(head)[0], layout.UINT32.unpack_from(head, layout.CRC)[0]
    if (offset, crc) != (file.first_offset, file.first_crc):
        raise CorruptRecord(
            f"at position {file.start} is the batch at offset {offset} with CRC {crc:#x}, not the one at"
            f" {file.first_offset} with CRC {file.first_crc:#x}"
        )
