"""What lies in a partition directory, by name: segments, what belongs to them, and what was left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sparklog.log.adoption import ADOPTION
from sparklog.log.checkpoints import LEADER_EPOCHS, PARTITION_METADATA
from sparklog.log.directories.moved import MARK
from sparklog.log.files import (
    CLEANED_SUFFIX,
    COPY_NAME,
    CORRUPT_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    find_base_offset,
)
from sparklog.log.inspection.findings import REMOVE, Finding, error, note

OF_A_SEGMENT = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_LEFTOVERS = {
    CLEANED_SUFFIX: ("of an unfinished rewrite", "nothing: the next start removes it"),
    SWAP_SUFFIX: ("rewritten, to replace others", "nothing: the next start finishes the swap"),
    DELETED_SUFFIX: ("to be removed", "nothing: the broker or its next start removes it"),
    CORRUPT_SUFFIX: ("cut out of the log for damage before it", "remove it when you need it no more"),
    TEMPORARY_SUFFIX: ("small, not finished", "nothing: the next start removes it"),
}


_OF_THE_BROKER = (ADOPTION, COPY_NAME, MARK)
"""Nobody else is to remove them: a start decides by them what is the partition's."""


@dataclass(slots=True)
class PartitionFiles:
    """The names in one partition directory."""

    path: Path
    bases: list[int] = field(default_factory=list)
    """Base offsets of the ``.log`` files, ascending."""
    snapshots: dict[int, Path] = field(default_factory=dict)
    transaction_indexes: dict[int, Path] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def is_partition(path: Path) -> bool:
    """Whether the directory holds a partition's files, whatever its name."""
    return any(
        name in (LEADER_EPOCHS, PARTITION_METADATA)
        or (name.endswith(LOG_SUFFIX) and _base_offset(Path(name)) is not None)
        for name in os.listdir(path)
    )


def _base_offset(path: Path) -> int | None:
    """The offset in a name of the form ``OFFSET.SUFFIX``."""
    return find_base_offset(path) if path.stem.isdecimal() else None


def list_partition(path: Path, *, in_use: bool) -> PartitionFiles:
    """Raises OSError if the directory cannot be listed. What a broker at work leaves for a moment is not said."""
    files = PartitionFiles(path)
    companions: list[tuple[int, Path]] = []
    names = sorted(os.listdir(path))
    for name in names:
        _sort(files, path / name, companions)
    files.findings += _leftovers(path, [name for name in names if not (in_use and name.endswith(TEMPORARY_SUFFIX))])
    files.bases.sort()
    if not files.bases:
        what = "there is no segment"
        files.findings.append(note(path, what, "nothing: the broker makes the first when the partition is opened"))
    known = set(files.bases)
    files.findings += [
        note(each, "there is no .log file of that name", REMOVE)
        for base, each in companions
        if base not in known and not in_use
    ]
    return files


def _leftovers(path: Path, names: list[str]) -> Iterator[Finding]:
    """A note for each kind, however many files there are of it."""
    for suffix, (what, advice) in _LEFTOVERS.items():
        found = [name for name in names if name.endswith(suffix)]
        if len(found) == 1:
            yield note(path / found[0], f"a file {what}", advice)
        elif found:
            yield note(path, f"{len(found)} {suffix} files {what}", advice)


def _sort(files: PartitionFiles, path: Path, companions: list[tuple[int, Path]]) -> None:
    name, suffix = path.name, path.suffix
    base = _base_offset(path)
    if name in (LEADER_EPOCHS, PARTITION_METADATA, *_OF_THE_BROKER) or suffix in _LEFTOVERS:
        return
    if base is None or suffix not in (LOG_SUFFIX, SNAPSHOT_SUFFIX, *OF_A_SEGMENT):
        if suffix == LOG_SUFFIX:
            what = "not named by an offset of 20 digits: a broker refuses to open the partition"
            files.findings.append(error(path, what, "move it out of the directory"))
        else:
            files.findings.append(note(path, "not a file of a log", REMOVE))
    elif suffix == LOG_SUFFIX:
        files.bases.append(base)
    elif suffix == SNAPSHOT_SUFFIX:
        files.snapshots[base] = path
    else:
        companions.append((base, path))
        if suffix == TRANSACTION_INDEX_SUFFIX:
            files.transaction_indexes[base] = path
