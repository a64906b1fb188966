"""A table's log on a local disk, made durable: Delta writes its commits, and leaves them to the system's cache.

An empty file is what a power cut leaves of a commit that was not synced, and Delta takes it for a commit of nothing. So
a commit is durable if those before it are, back to a checkpoint that is. Of other writers, such as ``OPTIMIZE``, the
files that a commit adds are not synced either; tasks of an offload have synced theirs.

A sync of a file that failed is never tried again: the system forgets what it failed to write, so that another would
succeed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from pyarrow.fs import LocalFileSystem

from sparklog.errors import DataSourceError
from sparklog.log.files import sync_directory
from sparklog.spark.lake.delta_log import DELTA_LOG, commit_name, commits_after, newest_checkpoint
from sparklog.spark.lake.files import opened

_ADD = b'{"add"'
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CHECKPOINT = ".checkpoint"
"""In the names of all kinds of them."""
_SIDECARS = "_sidecars"
"""The directory with the rest of checkpoints whose names were drawn."""
_not_taken: dict[Path, OSError] = {}
"""The files that the disk did not take from this process, whichever job asked."""


class DurableLog:
    """Up to which version one job knows the log of its table to be on the disk. It belongs to one thread."""

    def __init__(self, name: str) -> None:
        """``name``: how messages name the table."""
        self._name = name
        self._table_id = ""
        self._version = -1

    def reach(self, table_id: str, location: str, version: int, *, is_own: bool = False) -> None:
        """Have the table up to ``version`` on the disk, where that is a local one.

        ``is_own``: the files of this version are there already. Raises DataSourceError.
        """
        if table_id != self._table_id:
            self._table_id, self._version = table_id, -1
        if version <= self._version:
            return
        filesystem, root = opened(location)
        if isinstance(filesystem, LocalFileSystem):
            self._sync(Path(root), version, is_own)
        self._version = version

    def _sync(self, root: Path, version: int, is_own: bool) -> None:
        try:
            base, commits = self._since(root / DELTA_LOG, version, is_own)
            foreign = [path for number, path in commits if not (is_own and number == version)]
            added = [each for path in foreign for each in _added(root, path)]
            for path in (*base, *(path for _, path in commits)):
                self._sync_file(path)
            for path in added:
                with suppress(FileNotFoundError):  # a later commit has removed it, and VACUUM
                    self._sync_file(path)
            _sync_names(root, added)
        except OSError as error:
            said = f"table {self._name} has version {version}, but whether a power cut would leave it is not known"
            raise DataSourceError("SPARKLOG_TABLE_NOT_WRITTEN", f"{said}: {error}") from error

    def _since(self, log: Path, version: int, is_own: bool) -> tuple[list[Path], list[tuple[int, Path]]]:
        """What the table has beyond what is known to be on the disk: files of a checkpoint, and commits."""
        if is_own and version == self._version + 1:
            return [], [(version, log / commit_name(version))]
        paths, base = _listed(log), list[str]()
        commits = commits_after(paths, self._version)
        if self._version < 0 or [number for number, _ in commits[:1]] != [self._version + 1]:
            checkpoint, base = newest_checkpoint(each for each in paths if _CHECKPOINT in each and not _is_empty(each))
            commits = commits_after(paths, checkpoint - 1)
        sidecars = _listed(log / _SIDECARS) if base else []
        return [*map(Path, (*base, *sidecars))], [(number, Path(path)) for number, path in commits if number <= version]

    def _sync_file(self, path: Path) -> None:
        """Raises DataSourceError where the disk does not take it; OSError where it cannot be opened."""
        if path not in _not_taken:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            except OSError as error:
                _not_taken[path] = error
            finally:
                os.close(fd)
        if path in _not_taken:
            raise DataSourceError(
                "SPARKLOG_TABLE_NOT_DURABLE",
                f"table {self._name}: the disk did not take {path} ({_not_taken[path]}), and would not say so again:"
                " the system forgets what it could not write. No broker was told that the records are in the table. See"
                " to the disk, and mount its file system anew: then all that is read is what the disk has. If the file"
                " is damaged then, go on as docs/offload.md says; else start the job again",
            )


def _listed(directory: Path) -> list[str]:
    """The paths of what is in it, if it is there."""
    try:
        return [str(directory / name) for name in os.listdir(directory)]
    except FileNotFoundError:
        return []


def _is_empty(path: str) -> bool:
    """As a power cut may leave a checkpoint: Delta takes it for none."""
    try:
        return not os.path.getsize(path)
    except FileNotFoundError:
        return True


def _added(root: Path, commit: Path) -> Iterator[Path]:
    """The files below the table's root that a commit adds."""
    for line in commit.read_bytes().splitlines():
        if line.startswith(_ADD):
            path = unquote(json.loads(line)["add"]["path"])
            if not path.startswith("/") and not _SCHEME.match(path) and ".." not in Path(path).parts:
                yield root / path


def _sync_names(root: Path, files: Iterable[Path]) -> None:
    """Make those of the log's files durable, and of these."""
    above = {each for path in files for each in path.parents if root in each.parents}
    for directory in (*sorted(above), root / DELTA_LOG, root):
        with suppress(FileNotFoundError):  # a partition that VACUUM has emptied
            sync_directory(directory)
