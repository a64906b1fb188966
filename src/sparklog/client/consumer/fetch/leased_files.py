"""Reading one range from the segment files themselves, all batches as they are, where a leader's files are on this
machine.

The leader leases the files (``client/cluster/leases.py``); they are opened at once, and what is open stays readable,
whatever becomes of its name. A file is read only if it is the one that the leader means, by device and inode, in a log
directory of the cluster; its batches only if their CRCs are right. Every doubt raises NotDirect, and the range is
fetched from where it was. Why it is safe: ``docs/adr/0012``.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from uuid import UUID

from sparklog.client.cluster.leases import LeasedFile, RangeAsked, RangeLease, end_lease, lease_ranges
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.consumer.fetch.range_reader import fetch_everything
from sparklog.errors import ApiError, ConnectionFailed, CorruptRecord, NotDirect
from sparklog.log.checkpoints import read_meta_properties
from sparklog.log.extents import ExtentReader
from sparklog.log.files import LOG_SUFFIX
from sparklog.record.batch import RecordBatch
from sparklog.structs import TopicPartition

_log = logging.getLogger(__name__)
_FILES_AT_ONCE = 32
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


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
    reader = ExtentReader()
    position = start
    while position < end:
        lease = lease_ranges(cluster, [RangeAsked(tp, position, end, topic_id)], max_files=_FILES_AT_ONCE)[0]
        if isinstance(lease, ApiError):
            raise lease
        if lease.end_offset <= position:
            raise NotDirect("no lease", f"the segment of offset {position} is being replaced")
        with ExitStack() as opened:
            files = _open_all(cluster, tp, lease, opened)
            for file, fd in files:
                for batch in _batches_of(reader, file, fd):
                    if position < batch.next_offset and batch.base_offset < end:
                        yield batch
        position = lease.end_offset


def _open_all(
    cluster: ClusterMetadata, tp: TopicPartition, lease: RangeLease, opened: ExitStack
) -> list[tuple[LeasedFile, int]]:
    try:
        files = []
        for each in lease.files:
            fd = _open(each, tp, cluster.cluster_id)
            opened.callback(os.close, fd)
            files.append((each, fd))
        return files
    finally:
        with suppress(ConnectionFailed):
            end_lease(cluster, lease)


def _open(file: LeasedFile, tp: TopicPartition, cluster_id: str | None) -> int:
    """Raises NotDirect unless it is the leader's file."""
    path = Path(file.path)
    try:
        owner = read_meta_properties(path.parent.parent).get("cluster.id")
        if path.parent.name != str(tp) or path.suffix != LOG_SUFFIX or owner is None or owner != cluster_id:
            raise NotDirect(
                "segment files are not visible here", f"{path} is no segment of {tp} in cluster {cluster_id}"
            )
        fd = os.open(path, _FLAGS)
    except (OSError, CorruptRecord, ValueError) as error:
        raise NotDirect("segment files are not visible here", f"{path}: {error}") from error
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or (found.st_dev, found.st_ino) != (file.device, file.inode):
        os.close(fd)
        raise NotDirect("segment files are not visible here", f"{path} here is another file than the leader's")
    return fd


def _batches_of(reader: ExtentReader, file: LeasedFile, fd: int) -> Iterator[RecordBatch]:
    next_offset = file.first_offset
    try:
        for batch in reader.batches(fd, file.start, file.end):
            batch.validate()
            if next_offset == file.first_offset and (batch.base_offset, batch.crc) != (next_offset, file.first_crc):
                raise CorruptRecord(f"it begins with another batch than that of offset {next_offset}")
            if batch.base_offset < next_offset:
                raise CorruptRecord(f"offset {batch.base_offset} stands where {next_offset} or more should")
            next_offset = batch.next_offset
            yield batch
    except (CorruptRecord, OSError) as error:
        raise NotDirect("a segment file is not as the leader said", f"{file.path}: {error}") from error
