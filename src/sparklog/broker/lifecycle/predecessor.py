"""Whether the process that was this broker before is dead: what it left in the log directories, and a lock that tells.

A process that registers a broker writes its ZooKeeper session into a file in each log directory, and holds a lock on
that file for as long as it lives, also when the directory has failed. A process that gets the lock, and reads a session
that was written to this very file since this machine was booted, knows that its writer has ended: the kernel gives the
lock up for no other reason. A copy of the directory proves nothing (it is another file), nor does a disk that was moved
to another machine (it was booted another time), nor an address that is free (the living broker may be on another host).

The proof holds within one boot, so the file need not last through a power cut. It holds a session's password and is for
its owner alone.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from sparklog.log.files import SESSION_FILE
from sparklog.zk.znode_client import Session

_logger = logging.getLogger(__name__)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LARGEST = 4096


class SessionFiles:
    """The session files of this broker's log directories, locked for as long as this object is open."""

    def __init__(self, directories: Iterable[Path]) -> None:
        """A file that cannot be had proves nothing, and is passed over."""
        self._files: list[int] = []
        for directory in directories:
            path = directory / SESSION_FILE
            try:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                _logger.warning("cannot keep the ZooKeeper session in %s: %s", path, error.strerror)
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._files.append(fd)
            except OSError:  # a living broker that has given up the directory
                os.close(fd)
        self._dead = {session for session in map(_read, self._files) if session is not None}

    def session_of_dead(self, session_id: int) -> Session | None:
        """The session of that id, if a process that is dead had it."""
        return next((session for session in self._dead if session.id == session_id), None)

    def write(self, session: Session) -> None:
        """Note the session, before anything is registered under it."""
        for fd in self._files:
            try:
                value = {"session": session.id, "password": session.password.hex(), "file": _identity(fd)}
                written = os.pwrite(fd, json.dumps(value).encode(), 0)
                os.ftruncate(fd, written)
            except OSError as error:  # a broker that is killed is then waited for until its session ends
                _logger.warning("cannot note the ZooKeeper session in a log directory: %s", error.strerror)

    def close(self) -> None:
        """Give up the locks: this process does nothing more as this broker."""
        while self._files:
            os.close(self._files.pop())


def _read(fd: int) -> Session | None:
    """The session that was written to this file on this machine since it was booted."""
    try:
        value = json.loads(os.pread(fd, _LARGEST, 0))
        if value["file"] == _identity(fd):
            return Session(int(value["session"]), bytes.fromhex(value["password"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass  # empty, torn or another's
    return None


def _identity(fd: int) -> list[object]:
    """What a copy of the file, or the same disk on another machine, has not."""
    stat = os.fstat(fd)
    return [_BOOT_ID.read_text().strip(), stat.st_dev, stat.st_ino]
