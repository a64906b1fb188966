"""Names of the files of a partition, and the two ways of changing a file that last through a crash."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sparklog.errors import DiskFull, LogDirFailed, LogError
from sparklog.structs import TopicPartition

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

CLEANED_SUFFIX = ".cleaned"
"""A file that a rewrite has not finished."""
SWAP_SUFFIX = ".swap"
"""A finished file on its way to replace others."""
DELETED_SUFFIX = ".deleted"
"""A file to be removed."""
CORRUPT_SUFFIX = ".corrupt"
"""What was cut out of a log for standing behind damage; nobody but a person removes it. Kafka has no such files."""

DELETED_DIR_SUFFIX = "-delete"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"

_OFFSET_DIGITS = 20
_MAX_TOPIC_NAME = 249
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
"""There is no room now, on the disk or in the table of open files; the disk itself is well."""
MISPLACED = (errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EEXIST, errno.ELOOP)
"""What the system says of a file that is none, or not ours: the disk is well, and only a person can set it right."""


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """``00000000000000000042.log`` and its kin."""
    return directory / f"{base_offset:0{_OFFSET_DIGITS}d}{suffix}"


def segment_paths(directory: Path, base_offset: int, suffix: str = "") -> list[Path]:
    """The files of a segment that are there, the ``.log`` first; ``suffix`` is what stands behind their names."""
    paths = [segment_path(directory, base_offset, kind + suffix) for kind in (LOG_SUFFIX, *INDEX_SUFFIXES)]
    return [path for path in paths if path.exists()]


def base_offset_of(path: Path) -> int:
    """The offset that a segment file is named by. Raises LogError for another name."""
    offset = find_base_offset(path)
    if offset is None:
        raise LogError(f"{path} is not named by an offset of {_OFFSET_DIGITS} digits; no broker wrote it: move it away")
    return offset


def find_base_offset(path: Path) -> int | None:
    """The offset that a file is named by, None if by none."""
    digits = path.name.partition(".")[0]
    return int(digits) if len(digits) == _OFFSET_DIGITS and digits.isascii() and digits.isdecimal() else None


def parse_partition_dir(name: str) -> TopicPartition | None:
    """The partition whose directory is called ``name``; None for any other directory."""
    topic, dash, number = name.rpartition("-")
    if not dash or not number.isdecimal() or not is_topic_name(topic):
        return None
    return TopicPartition(topic, int(number))


def is_topic_name(name: str) -> bool:
    """Letters, digits, ``.``, ``_`` and ``-``, at most 249 of them, not ``.`` or ``..`` (Kafka's ``Topic.java``)."""
    return (
        0 < len(name) <= _MAX_TOPIC_NAME
        and name not in (".", "..")
        and all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
    )


def disk_refused(what: str, error: OSError) -> LogDirFailed:
    """The error to raise where the disk refused ``what``: only a full one may be written to again."""
    kind = DiskFull if error.errno in _FULL else LogDirFailed
    where = f" ({error.filename})" if error.filename else ""
    if error.errno == errno.EMFILE:
        where += "; raise the limit of the process (ulimit -n)"
    return kind(f"{what}: {error.strerror or error}{where}")


def sync_descriptor(fd: int) -> None:
    """fsync a file that its owner may close meanwhile; one that it has closed (-1) it has deleted, or synced itself."""
    if fd < 0:
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise


def sync_file(path: Path) -> None:
    """Make what was written to ``path`` last through a crash."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_directory(directory: Path) -> None:
    """Make creations, renames and deletions in ``directory`` last through a crash."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace ``path`` by ``data``: after a crash it holds the old content or the new, whole, and durable on return.

    With ``durable=False`` only the replacement is atomic; a power cut may leave anything.
    """
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if durable:
        sync_directory(path.parent)
