"""Files that only their owner reads: keys, passwords. Made with these permissions, never narrowed afterwards.

A file that is there is never written over unless that is asked for; then a crash leaves the old one or the new one.
"""

from __future__ import annotations

import os
from pathlib import Path

from sparklog.errors import ConfigError

SECRET = 0o600
PUBLIC = 0o644
_DIRECTORY = 0o700
_OTHERS = 0o077


def write_file(path: Path, data: bytes, *, mode: int = SECRET, force: bool = False) -> None:
    """Write a file that is not there, or with ``force`` in the place of one that is. Raises ConfigError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if not force and path.exists():  # said before anything is written; the link below is what guards
            raise FileExistsError
        _write_new(partial, data, mode)
        try:
            if force:
                partial.replace(path)
            else:
                os.link(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except FileExistsError:
        raise ConfigError(f"{path} is there already, and is not written over; choose another, or --force") from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def _write_new(path: Path, data: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)  # of a process that died
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # a umask takes nothing away, and leaves nothing to others that the mode does not
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def make_private_directory(path: Path) -> None:
    """Make a directory for its owner alone. Raises ConfigError for one that is there and lets others in."""
    try:
        path.mkdir(mode=_DIRECTORY, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise ConfigError(f"cannot make {path}: {error.strerror}") from error
    if found.st_mode & _OTHERS or found.st_uid != os.geteuid():
        raise ConfigError(f"{path} must be its owner's alone; type: chown {os.geteuid()} {path} && chmod 700 {path}")


def read_private(path: Path) -> bytes:
    """What the file holds. Raises ConfigError for one that others may read or write."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & _OTHERS:
                raise ConfigError(f"others than its owner may read {path}; type: chmod 600 {path}")
            return file.read()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
