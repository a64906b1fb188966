"""Opens the segment files that a leader names, without trusting the leader's paths.

A path comes over the network from the process that answers as the leader. It is opened only if a broker of the
cluster keeps that partition there: ``DIR/TOPIC-PARTITION/OFFSET.log``, below a directory that the user has named
(``directReadMapping``), or in a log directory of the cluster, whose ``meta.properties`` has the cluster id that the
bootstrap servers told. Only regular files are opened, never through a symbolic link, and no open blocks, as the open of
a FIFO would until it has a writer.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from sparklog.errors import CorruptRecord, NotDirect
from sparklog.log.checkpoints import META_PROPERTIES, PARTITION_METADATA, read_meta_properties, read_topic_id
from sparklog.log.files import LOG_SUFFIX, find_base_offset
from sparklog.structs import TopicPartition

NOT_VISIBLE = "segment files are not visible here"

_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY


class MappedFile(NamedTuple):
    """The path of a broker's file on this machine, and the mounted directory, in which it must be."""

    path: str
    root: str


class SegmentFiles:
    """Opens segment files of brokers of the cluster ``cluster_id``. Refuses any other with NotDirect(NOT_VISIBLE)."""

    def __init__(self, cluster_id: str | None, mapped: Callable[[str], MappedFile | None] = lambda _: None) -> None:
        """``mapped``: where a broker's path is mounted here; None where it is the same."""
        self._cluster_id = cluster_id
        self._mapped = mapped
        self._proven: set[Path] = set()

    def open(self, leader_path: str, tp: TopicPartition) -> tuple[int, Path | None]:
        """A segment file of ``tp`` as a file descriptor, and its directory if that is mounted under another path.

        ``leader_path`` is the path that the leader named. The caller must still check that the file is the one that the
        leader means. Raises NotDirect.
        """
        mapped = self._mapped(leader_path)
        path = Path(leader_path if mapped is None else mapped.path)
        if path.parent.name != str(tp) or path.suffix != LOG_SUFFIX or find_base_offset(path) is None:
            raise NotDirect(NOT_VISIBLE, f"{path} is no place for a segment of partition {tp}")
        try:
            home = Path(os.path.realpath(path.parent, strict=True))
            if mapped is None:
                self._prove(home.parent)
            elif not home.is_relative_to(os.path.realpath(mapped.root)):
                raise NotDirect(NOT_VISIBLE, f"{path} leads out of {mapped.root}, to {home}")
            return _open_regular(home, path), None if mapped is None else home
        except OSError as error:
            raise NotDirect(NOT_VISIBLE, f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise NotDirect(NOT_VISIBLE, f"{leader_path!r} can be no path: {error}") from error

    def _prove(self, log_dir: Path) -> None:
        """Raises NotDirect unless a broker of the cluster owns the directory."""
        if log_dir in self._proven:
            return
        try:
            owner = read_meta_properties(log_dir).get("cluster.id") if _is_file(log_dir / META_PROPERTIES) else None
        except CorruptRecord as error:
            raise NotDirect(NOT_VISIBLE, str(error)) from error
        if owner is None or owner != self._cluster_id:
            raise NotDirect(
                NOT_VISIBLE,
                f"{log_dir} here is no log directory of cluster {self._cluster_id}, by its {META_PROPERTIES}; if it is"
                " mounted from elsewhere, name it with directReadMapping",
            )
        self._proven.add(log_dir)


def _open_regular(home: Path, path: Path) -> int:
    directory = os.open(home, _DIRECTORY)
    try:
        fd = os.open(path.name, _FILE, dir_fd=directory)
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotDirect(NOT_VISIBLE, f"{path} is no regular file")
    return fd


def _is_file(path: Path) -> bool:
    return os.path.lexists(path) and stat.S_ISREG(path.lstat().st_mode)


def topic_id_of(home: Path) -> UUID | None:
    """The id of the topic whose partition this directory holds; None if it is not recorded there. Raises NotDirect."""
    if not _is_file(home / PARTITION_METADATA):
        return None
    try:
        return read_topic_id(home)
    except (CorruptRecord, OSError) as error:
        raise NotDirect(NOT_VISIBLE, f"whose partition {home} is cannot be read: {error}") from error
