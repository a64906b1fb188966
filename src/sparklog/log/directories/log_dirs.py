"""The log directories of a broker: those in service, and those whose disk has failed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar

from sparklog.errors import ApiError, ErrorCode, LogDirFailed, LogError
from sparklog.log.directories.directory import LogDir
from sparklog.log.directories.usage import DirectoryRoom, room_of
from sparklog.log.files import disk_refused
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")

OnFailure = Callable[[Path, str], None]
"""Told that the disk under a log directory failed, and how; from any thread."""


class LogDirs:
    """One that has failed stays out of service until the broker is started again."""

    def __init__(self, paths: list[Path]) -> None:
        """Lock them. Raises LogDirFailed if none can be used."""
        self.in_service: list[LogDir] = []
        self.failed: dict[Path, str] = {}
        """Why each of those is out of service."""
        try:
            for path in paths:
                try:
                    self.in_service.append(LogDir(path))
                except LogDirFailed as error:
                    if len(paths) == 1:
                        raise
                    self.note_failed(path, str(error))
            self.check_any()
        except BaseException:
            for opened in self.in_service:
                opened.close()
            raise

    def check_any(self) -> None:
        """Raises LogDirFailed if none is left in service."""
        if not self.in_service:
            raise LogDirFailed(f"no log directory can be used: {'; '.join(self.failed.values())}")

    def check_all(self) -> None:
        """Raises ApiError(KAFKA_STORAGE_ERROR) if one has failed: a copy of a partition, which is to be begun, might be
        in that.
        """
        if self.failed:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"nothing is moved while {self.names_failed()} is out of service"
            )

    def names_failed(self) -> str:
        """The paths of those that have failed."""
        return ", ".join(map(str, self.failed))

    def maybe_in_failed(self, tp: TopicPartition) -> LogError:
        """Why a partition is not served whose log may be in one that has failed."""
        return LogError(f"{tp} may lie in a directory that is out of service: {self.names_failed()}")

    def note_failed(self, path: Path, reason: str, served: int = 0) -> None:
        """``served``: how many partitions in it were served until now."""
        if path not in self.failed:
            said = f"{reason}; {served} partition(s) go with it" if served else reason
            _logger.error("log directory %s is out of service until the broker is started again: %s", path, said)
            self.failed[path] = reason

    def of(self, directory: Path) -> LogDir:
        """That of a partition's ``directory``. Raises LogDirFailed if it is out of service."""
        for each in self.in_service:
            if each.path == directory.parent:
                return each
        raise LogDirFailed(f"{directory.parent} is out of service")

    def find(self, path: str) -> LogDir:
        """That of this absolute path.

        Raises ApiError: LOG_DIR_NOT_FOUND if the broker has no such, KAFKA_STORAGE_ERROR if it is out of service.
        """
        for each in self.in_service:
            if str(each.path.absolute()) == path:
                return each
        if any(str(each.absolute()) == path for each in self.failed):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {path} is out of service")
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is none of this broker's log.dirs")

    def rooms(self) -> list[DirectoryRoom]:
        """The disk of each that is in service and can be looked at."""
        return [found for each in self.in_service if (found := room_of(each.path)) is not None]

    def in_each(self, pool: Executor, work: Callable[[LogDir], _T], on_failure: OnFailure) -> dict[LogDir, _T]:
        """What ``work`` returns for each that is in service, side by side; ``on_failure`` is told where it fails.

        Raises LogDirFailed if none is left.
        """
        dirs, done = list(self.in_service), dict[LogDir, _T]()
        for log_dir, outcome in zip(dirs, _outcomes(pool, work, dirs), strict=True):
            if isinstance(outcome, LogDirFailed):
                on_failure(log_dir.path, str(outcome))
            else:
                done[log_dir] = outcome
        self.check_any()
        return done


def _outcomes(pool: Executor, work: Callable[[LogDir], _T], dirs: Iterable[LogDir]) -> list[_T | LogDirFailed]:
    def attempt(log_dir: LogDir) -> _T | LogDirFailed:
        try:
            return work(log_dir)
        except OSError as error:
            return disk_refused(f"cannot use log directory {log_dir.path}", error)
        except LogDirFailed as error:
            return error

    return list(pool.map(attempt, dirs))
