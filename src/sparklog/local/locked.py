"""A directory that one process at a time may work in."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

from sparklog.errors import ConfigError
from sparklog.local.disk import shortage


class LockedDirectory:
    """``root``, made if need be, and the lock in it; ``what`` is kept there, in words, for the errors."""

    def __init__(self, root: Path, what: str = "cluster") -> None:
        self.root = Path(root).absolute()
        self._what = what
        self._lock: TextIOWrapper | None = None

    def lock(self) -> None:
        """Hold the directory, or raise ConfigError: why it cannot hold it, or which process holds it."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / "lock").open("a+")
        except OSError as error:
            raise self.unusable(error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise ConfigError(
                f"{self.root} is in use by a running {self._what} (process {holder});"
                " stop it or choose another directory"
            ) from None
        self._lock = lock
        try:
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
        except OSError as error:
            with suppress(OSError):  # what was not written is tried once more
                self.unlock()
            raise self.unusable(error) from error

    @property
    def is_locked(self) -> bool:
        """Whether we hold it."""
        return self._lock is not None

    def unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def unusable(self, error: OSError) -> ConfigError:
        """What to raise where a file in it cannot be had."""
        full = shortage(self.root, str(error)) if error.errno == errno.ENOSPC else None
        if full:
            return ConfigError(f"no {self._what} can be kept in {self.root}: {full}")
        return ConfigError(
            f"no {self._what} can be kept in {self.root}: {error.filename or self.root}: {error.strerror};"
            " choose a directory (--data) that exists and may be written to, or that can be made"
        )
