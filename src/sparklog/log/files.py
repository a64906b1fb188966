"""Names of the files of a partition, and the two ways of changing a file that last through a crash.

A path is made of a topic's name here and nowhere else (``partition_path``, ``path_aside``), and only of a name that can
be a topic's: whatever a request says, nothing is touched outside the log directory.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from uuid import uuid4

from sparklog.errors import ApiError, DiskFull, ErrorCode, LogDirFailed, LogError
from sparklog.record.layout import MAX_INT32
from sparklog.structs import LONGEST_TOPIC, TopicPartition

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
"""What was cut out of a log for standing behind damage; only a person removes it. Kafka has no such files."""

TEMPORARY_SUFFIX = ".tmp"
"""What is to replace a small file, while it is being written; the next start removes what a crash left."""

DRAFT_SUFFIX = ".draft" + TEMPORARY_SUFFIX
"""What somebody else than the broker writes for it to take over, ``NAME.TAG.draft.tmp``; nothing is ever made of one
that the broker was not told of.
"""

OFFERED_SUFFIX = ".offer" + TEMPORARY_SUFFIX
"""What somebody else writes for the log to adopt, ``NAME.TAG.offer.tmp``. It is no draft: a cleaning removes drafts."""

DELETED_DIR_SUFFIX = "-delete"
"""A partition to be removed: ``TOPIC-PARTITION.UNIQUE-delete``."""
STRAY_DIR_SUFFIX = "-stray"
"""A partition that the cluster does not know, named likewise; only a person removes it."""
FUTURE_DIR_SUFFIX = "-future"
"""A copy of a partition that is being moved here from another log directory, named likewise."""
COPY_NAME = ".sparklog-copy"
"""In a partition's directory and in that of its future copy: the name that this had first. It goes from the former
when segments are replaced, so the copy may have what was taken away.
"""
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
SESSION_FILE = ".sparklog-session"
"""By which a broker proves its predecessor dead (``broker/lifecycle/predecessor.py``); Kafka has no such file."""

_OFFSET_DIGITS = 20
_PARTITION_DIGITS = len(str(MAX_INT32))
_MAX_FILE_NAME = 255
_MAX_TAG = 64
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
"""There is no room now, on the disk or in the table of open files; the disk itself is well."""
MISPLACED = (errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EEXIST, errno.ELOOP)
"""What the system says of a file that is none, or not ours: the disk is well, and only a person can set it right."""

UNREMOVABLE = (*MISPLACED, errno.ENOTEMPTY, errno.EBUSY)
"""What it says where a directory cannot be removed, and the disk is well: a person, or another program, uses it."""


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """``00000000000000000042.log`` and its kin."""
    return directory / f"{base_offset:0{_OFFSET_DIGITS}d}{suffix}"


def segment_paths(directory: Path, base_offset: int, suffix: str = "") -> list[Path]:
    """The files of a segment that are there, the ``.log`` first; ``suffix`` is what stands behind their names."""
    paths = [segment_path(directory, base_offset, kind + suffix) for kind in (LOG_SUFFIX, *INDEX_SUFFIXES)]
    return [path for path in paths if path.exists()]


def remove_files(paths: Iterable[Path]) -> None:
    """Remove those of the files that are there. Raises OSError."""
    for path in paths:
        path.unlink(missing_ok=True)


def remove_tree(directory: Path) -> None:
    """Remove a partition's directory (``path_aside``) with all that is in it; a person may do so at the same time.
    Raises OSError.

    Of one that is a link, also what that leads to if it has the partition's name: else it may be another's.
    """
    if not directory.is_symlink():
        _remove_all(directory)
        return
    target = directory.resolve()
    if directory.name.startswith(f"{target.name}."):
        _remove_all(target)
    directory.unlink(missing_ok=True)


def _remove_all(directory: Path) -> None:
    gone = None
    while directory.exists():
        try:
            shutil.rmtree(directory)
        except FileNotFoundError as error:
            if error.filename == gone:  # the disk lists what it does not have
                raise
            gone = error.filename


def rename_aside(directory: Path, aside: Path) -> None:
    """Give a partition's directory its last name, ``path_aside``; durable on return. One that is gone is gone.

    Raises OSError.
    """
    with suppress(FileNotFoundError):  # a person has removed it; if all of the log directory is gone, the sync says
        os.rename(directory, aside)
    sync_directory(directory.parent)


def draft_suffix(tag: str) -> str:
    """What stands behind the names of the files that one attempt writes; no other has its ``tag``.

    Raises LogError for a tag that is not made of letters and digits.
    """
    return f".{_checked_tag(tag)}{DRAFT_SUFFIX}"


def offered_suffix(tag: str) -> str:
    """The same of files that are to be adopted. Raises LogError, as above."""
    return f".{_checked_tag(tag)}{OFFERED_SUFFIX}"


def _checked_tag(tag: str) -> str:
    if not (tag.isascii() and tag.isalnum() and len(tag) <= _MAX_TAG):
        raise LogError(f"{tag!r} cannot be in a file's name: up to {_MAX_TAG} letters and digits")
    return tag


def remove_drafts(directory: Path) -> None:
    """Remove the drafts in ``directory``; a writer that still writes one writes it in vain."""
    for path in files_with_suffix(directory, DRAFT_SUFFIX):
        path.unlink(missing_ok=True)


def files_with_suffix(directory: Path, suffix: str) -> list[Path]:
    """The files of ``directory`` whose names end in ``suffix``. Raises OSError if it cannot be listed.

    ``Path.glob`` takes one for empty that it may not list, and in later versions of Python one for which no descriptor
    is left.
    """
    return [path for path in directory.iterdir() if path.name.endswith(suffix)]


def base_offset_of(path: Path) -> int:
    """The offset that a segment file is named by. Raises LogError for another name."""
    offset = find_base_offset(path)
    if offset is None:
        raise LogError(
            f"{shown(path)} is not named by an offset of {_OFFSET_DIGITS} digits; no broker wrote it: move it away"
        )
    return offset


def shown(path: Path) -> str:
    """A name that no broker gave, as text that can be sent and fits a line: what is not printable is escaped."""
    text = str(path)
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def find_base_offset(path: Path) -> int | None:
    """The offset that a file is named by, None if by none."""
    digits = path.name.partition(".")[0]
    return int(digits) if len(digits) == _OFFSET_DIGITS and digits.isascii() and digits.isdecimal() else None


def parse_partition_dir(name: str) -> TopicPartition | None:
    """The partition whose directory is called ``name``; None for any other directory."""
    topic, _, number = name.rpartition("-")
    if not (number.isascii() and number.isdecimal() and len(number) <= _PARTITION_DIGITS and is_topic_name(topic)):
        return None
    tp = TopicPartition(topic, int(number))
    return tp if tp.partition <= MAX_INT32 and str(tp) == name else None


def parse_future_dir(name: str) -> TopicPartition | None:
    """The partition of which a directory called ``name`` is a future copy; None for any other directory."""
    return _parse_dir_aside(name, FUTURE_DIR_SUFFIX)


def is_dir_aside(name: str) -> bool:
    """Whether a directory called ``name`` is what a broker has beside its partitions: one that was, or is to be."""
    return any(_parse_dir_aside(name, suffix) for suffix in (FUTURE_DIR_SUFFIX, DELETED_DIR_SUFFIX, STRAY_DIR_SUFFIX))


def _parse_dir_aside(name: str, suffix: str) -> TopicPartition | None:
    stem, separator, unique = name.removesuffix(suffix).rpartition(".")
    is_aside = name.endswith(suffix) and separator and len(unique) == 32 and unique.isalnum()
    return parse_partition_dir(stem) if is_aside else None


def future_path(home: Path, tp: TopicPartition) -> Path:
    """A directory for a future copy in the log directory ``home``, never used before.

    Raises ApiError(INVALID_TOPIC_EXCEPTION) if the topic's name is too long for that, as in Kafka.
    """
    name = f"{tp}.{uuid4().hex}{FUTURE_DIR_SUFFIX}"
    if len(name) > _MAX_FILE_NAME:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{tp} cannot be moved: its topic's name is too long")
    check_partition(tp)
    return home / name


def partition_path(home: Path, tp: TopicPartition) -> Path:
    """The directory of a partition in the log directory ``home``. Raises ApiError if there can be no such partition."""
    check_partition(tp)
    return home / str(tp)


def path_aside(directory: Path, tp: TopicPartition, suffix: str) -> Path:
    """Another name for the partition's ``directory``, never used before: ``TOPIC-PARTITION.UNIQUE`` and ``suffix``.

    A long topic name is cut short, as in Kafka (``LocalLog.logDirNameWithSuffixCappedLength``).
    """
    end = f"-{tp.partition}.{uuid4().hex}{suffix}"
    return directory.with_name(tp.topic[: _MAX_FILE_NAME - len(end)] + end)


def check_topic_name(name: str) -> None:
    """Raises ApiError(INVALID_TOPIC_EXCEPTION) unless it can be a topic's name."""
    if not is_topic_name(name):
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name!r} cannot be a topic's name: 1 to {LONGEST_TOPIC} ASCII letters, digits, '.', '_' or '-', "
            "not '.' or '..'",
        )


def check_partition(tp: TopicPartition) -> None:
    """Raises ApiError (INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS) unless there can be such a partition."""
    check_topic_name(tp.topic)
    if not 0 <= tp.partition <= MAX_INT32 or len(str(tp)) > _MAX_FILE_NAME:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"{tp.partition} cannot be a partition's number: 0 to {MAX_INT32}, and with the topic's name no longer "
            f"than {_MAX_FILE_NAME} characters",
        )


def is_topic_name(name: str) -> bool:
    """Letters, digits, ``.``, ``_`` and ``-``, at most 249 of them, not ``.`` or ``..`` (Kafka's ``Topic.java``)."""
    return (
        0 < len(name) <= LONGEST_TOPIC
        and name not in (".", "..")
        and all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
    )


def is_full(error: OSError) -> bool:
    """Whether there is no room, while the disk itself is well."""
    return error.errno in _FULL


def disk_refused(what: str, error: OSError) -> LogDirFailed:
    """The error to raise where the disk refused ``what``: only a full one may be written to again."""
    kind = DiskFull if is_full(error) else LogDirFailed
    where = f" ({error.filename})" if error.filename else ""
    if error.errno == errno.EMFILE:
        where += "; raise the limit of the process (ulimit -n)"
    return kind(f"{what}: {error.strerror or error}{where}", error.errno)


class OpenFile:
    """An open file; it is closed with the last reference to it, so that no reader that holds one meets another file
    under its number.
    """

    def __init__(self, path: Path, flags: int) -> None:
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)

    def fileno(self) -> int:
        return self._fd


def write_all(fd: int, data: bytes | memoryview, position: int) -> None:
    """Write ``data`` at ``position``, all of it: a disk that is nearly full may take a part and say nothing.

    If the disk refuses, a part may have been written.
    """
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], position + done)


def sync_descriptor(fd: int) -> None:
    """fsync a file that its owner may close meanwhile; one that it has closed (-1) it has deleted, or synced itself."""
    if fd < 0:
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """The system names no file where it refuses a descriptor: its error names ``path`` then, or one within it."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def sync_file(path: Path) -> None:
    """Make what was written to ``path`` last through a crash. The OSError that it raises names the file."""
    _sync(path, os.O_RDONLY)


def sync_directory(directory: Path) -> None:
    """Make creations, renames and deletions in ``directory`` last through a crash, and likewise."""
    _sync(directory, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        with naming(path):
            os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(path: Path) -> None:
    """Make the directory and those above it, where they are missing; they last through a crash."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_directory(each.parent)


def rename_deleted(path: Path) -> Path:
    """Put ``.deleted`` behind the name of a file and return the new one, to be unlinked later if it is there.

    Where the disk has no room for a longer name the file goes at once: that needs none, and what has it open can read
    it to its end either way.
    """
    doomed = path.with_name(path.name + DELETED_SUFFIX)
    try:
        path.rename(doomed)
    except FileNotFoundError:  # a person has removed it
        pass
    except OSError as error:
        if not is_full(error):
            raise
        path.unlink()
    return doomed


def kept_path(path: Path) -> Path:
    """The name under which a file that is cut out of a log is kept: one that nothing has that was kept before."""
    number, kept = 1, path.with_name(path.name + CORRUPT_SUFFIX)
    while kept.exists():
        number += 1
        kept = path.with_name(f"{path.name}.{number}{CORRUPT_SUFFIX}")
    return kept


_numbers = count()


def write_atomically(path: Path, data: bytes | bytearray, *, durable: bool = True) -> None:
    """Replace ``path`` by ``data``: after a crash it holds the old content or the new, whole, and durable on return.

    With ``durable=False`` only the replacement is atomic; a power cut may leave anything. Two threads that write the
    same file disturb each other in nothing but which of them is the last.
    """
    temporary = path.with_name(f"{path.name}.{next(_numbers)}{TEMPORARY_SUFFIX}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def remove_temporaries(directory: Path) -> None:
    """Remove what ``write_atomically`` left in ``directory`` when a crash cut it short; there must be no writer."""
    for path in files_with_suffix(directory, TEMPORARY_SUFFIX):
        path.unlink(missing_ok=True)
