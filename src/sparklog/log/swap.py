"""Putting rewritten segments in the place of others, in steps of which each can be the last before a crash.

1. The new files are complete and synced under ``.cleaned``. A copy of the log that is away is disowned (``COPY_NAME``).
2. They are renamed to ``.swap``, from the last segment to the first. A ``.cleaned`` file that is left undoes the swap.
3. From here on it will be finished. The files replaced are renamed to ``.deleted``.
4. The ``.swap`` files get their final names, and the directory is synced.

``finish_interrupted`` does at the next start what is missing. One rewrite a log at a time: it could not tell two apart.
Source: Kafka 3.9, ``LocalLog.replaceSegments``, ``LogLoader.removeTempFilesAndCollectSwapFiles``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path

from sparklog.log.file_records import end_offset
from sparklog.log.files import (
    CLEANED_SUFFIX,
    COPY_NAME,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    base_offset_of,
    files_with_suffix,
    find_base_offset,
    remove_files,
    remove_temporaries,
    segment_path,
    segment_paths,
    sync_directory,
    sync_file,
)

_logger = logging.getLogger(__name__)


def prepare(directory: Path, bases: Sequence[int]) -> None:
    """Steps 1 and 2 for the ``.cleaned`` segments of ``bases``: when this returns the swap is certain.

    Raises FileNotFoundError, with nothing changed, unless each has its ``.log`` file.
    """
    for base in bases:
        sync_file(segment_path(directory, base, LOG_SUFFIX + CLEANED_SUFFIX))
        for path in segment_paths(directory, base, CLEANED_SUFFIX):
            sync_file(path)
    copy_name = directory / COPY_NAME
    if copy_name.exists():
        copy_name.unlink()
    sync_directory(directory)
    for base in sorted(bases, reverse=True):
        for path in segment_paths(directory, base, CLEANED_SUFFIX):
            path.rename(_renamed(path, CLEANED_SUFFIX, SWAP_SUFFIX))
    sync_directory(directory)


def finish(directory: Path, bases: Sequence[int]) -> None:
    """Step 4."""
    for base in bases:
        for path in segment_paths(directory, base, SWAP_SUFFIX):
            path.rename(_renamed(path, SWAP_SUFFIX, ""))
    sync_directory(directory)


def _renamed(path: Path, old: str, new: str) -> Path:
    return path.with_name(path.name.removesuffix(old) + new)


def call_off(directory: Path, bases: Sequence[int]) -> None:
    """Have the swap undone, from here on, whose ``prepare`` the disk refused; ``undo`` is to follow.

    It may have come as far as to be certain. This takes neither room nor a descriptor.
    """
    first = segment_path(directory, min(bases), LOG_SUFFIX + SWAP_SUFFIX)
    if first.exists():
        first.rename(_renamed(first, SWAP_SUFFIX, CLEANED_SUFFIX))


def undo(directory: Path) -> None:
    """Remove what a rewrite has made, unless a swap of it has become certain; what is there stays as it is."""
    cleaned = files_with_suffix(directory, CLEANED_SUFFIX)
    if cleaned:
        first = min(base_offset_of(path) for path in cleaned)
        remove_files(path for path in files_with_suffix(directory, SWAP_SUFFIX) if base_offset_of(path) >= first)
        remove_files(cleaned)  # last: while one of these is there, the swap counts as undone


def is_interrupted(names: Collection[str]) -> bool:
    """Whether ``finish_interrupted`` has anything to do in a directory that holds these."""
    return any(
        name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX))
        or (name.endswith(INDEX_SUFFIXES) and f"{name.rpartition('.')[0]}{LOG_SUFFIX}" not in names)
        for name in names
    )


def finish_interrupted(directory: Path) -> None:
    """Undo or finish what a crash left half done; doing it twice is doing it once."""
    remove_files(files_with_suffix(directory, DELETED_SUFFIX))
    remove_temporaries(directory)
    cleaned = files_with_suffix(directory, CLEANED_SUFFIX)
    if cleaned:
        first = min(base_offset_of(path) for path in cleaned)
        _logger.warning("%s: a rewrite from offset %d on was interrupted; it is undone", directory, first)
        undo(directory)
    swaps = sorted(files_with_suffix(directory, SWAP_SUFFIX))
    if swaps:
        _logger.warning("%s: a swap of segments was interrupted; it is finished", directory)
        remove_files(_replaced(directory, swaps))
        for path in swaps:
            path.rename(_renamed(path, SWAP_SUFFIX, ""))
        sync_directory(directory)
    _remove_orphans(directory)


def _replaced(directory: Path, swaps: Sequence[Path]) -> list[Path]:
    """The files of the segments that lie within the offsets of the ``.swap`` segments."""
    logs = [path for path in swaps if path.name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    if not logs:
        return []  # the .log files have their names already: only indexes are left to rename
    first, end = min(base_offset_of(path) for path in logs), max(end_offset(path) for path in logs)
    found = [(find_base_offset(path), path) for path in sorted(directory.iterdir(), reverse=True)]
    return [
        path
        for base, path in found
        if base is not None and first <= base < end and path.suffix in (LOG_SUFFIX, *INDEX_SUFFIXES)
    ]


def _remove_orphans(directory: Path) -> None:
    """An index without its ``.log`` is what a deletion left that was interrupted."""
    for suffix in INDEX_SUFFIXES:
        for path in files_with_suffix(directory, suffix):
            if not path.with_suffix(LOG_SUFFIX).exists():
                _logger.warning("removing %s: there is no %s file beside it", path, LOG_SUFFIX)
                path.unlink()
