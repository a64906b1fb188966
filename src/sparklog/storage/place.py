"""A place for files that are written once, and the one way to open it: by its URI.

The contract, which every kind of place keeps. Paths are relative to the place, with ``/``. What a path is made of may
be a stranger's (a file of a manifest, a cluster's id): one that leads out of the place raises StorageError.

- A file has its name only when it is whole and as durable as the place can make it (``NewFile.finish``). Directories
  are made as they are needed. Files whose names end in ``PART_SUFFIX`` are unfinished, and are not listed.
- ``publish`` puts a file only if there is none of that name. Of several that publish under one name exactly one has put
  its own; that holds too where an answer is lost, as long as what they publish differs.

What fails raises OSError, FileNotFoundError for what is not there.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import IO, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from sparklog.errors import ConfigError, StorageError

PART_SUFFIX = ".part"
_WEB = ("webhdfs", "swebhdfs", "hdfs")


class Listed(NamedTuple):
    """What is in one directory: the sizes of its files in bytes, and the names of its directories."""

    files: dict[str, int]
    directories: tuple[str, ...]


class NewFile(Protocol):
    """A file that is being written."""

    def write(self, data: bytes | bytearray | memoryview, /) -> int: ...

    def finish(self) -> None:
        """Give it its name, whole and durable."""

    def discard(self) -> None:
        """Give it up, as far as that can be done. Raises nothing."""


class Place(ABC):
    """One place. It may be used by one thread at a time."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @abstractmethod
    def list(self, directory: str) -> Listed:
        """What is in a directory, and not unfinished; nothing where there is no such directory."""

    @abstractmethod
    def open(self, path: str) -> IO[bytes]:
        """A stream over a whole file. Close it."""

    @abstractmethod
    def create(self, path: str) -> NewFile:
        """Begin a file whose name nobody else uses."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file. It is no error if it is not there."""

    @abstractmethod
    def _put(self, part: str, path: str) -> bool:
        """Give the finished file ``part`` the name ``path``, if that is free; whether it was."""

    def make_durable(self, path: str) -> None:  # noqa: B027 (a place may have nothing to do)
        """Make sure that the name of a file that was put stays, and those before it in its directory."""

    def read(self, path: str) -> bytes:
        """The bytes of a small file."""
        with self.open(path) as stream:
            return stream.read()

    def publish(self, path: str, data: bytes) -> bool:
        """Put a small file, if there is none of that name; whether it is this one. After OSError either may be so."""
        part = part_of(path)
        self.write(part, data)
        try:
            is_put = self._put(part, path)
        except OSError:
            if not self._is(path, data):
                raise
            is_put = True
        finally:
            with suppress(OSError):
                self.remove(part)
        if not is_put and not self._is(path, data):
            return False
        self.make_durable(path)
        return True

    def write(self, path: str, data: bytes) -> None:
        """Write a small file whose name nobody else uses."""
        file = self.create(path)
        try:
            file.write(data)
            file.finish()
        except BaseException:
            file.discard()
            raise

    def _is(self, path: str, data: bytes) -> bool:
        try:
            return self.read(path) == data
        except FileNotFoundError:
            return False


def checked(path: str) -> str:
    """The path. Raises StorageError for one that leads out of its place."""
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise StorageError(f"{path!r} leads out of the place in which all files must be: nothing was read or written")
    return path


def part_of(path: str) -> str:
    """A name beside ``path`` that nobody has used. Raises StorageError as ``checked`` does."""
    directory, slash, name = checked(path).rpartition("/")
    return f"{directory}{slash}.{name}.{uuid4().hex}{PART_SUFFIX}"


def open_place(uri: str) -> Place:
    """The place that a URI or a local path names. Nothing is made there, and nobody is asked.

    ``webhdfs://HOST:PORT/PATH`` is HDFS by HTTP, ``swebhdfs://`` by HTTPS; ``hdfs://HOST/PATH`` is ``webhdfs://`` at
    the port that Hadoop's settings name, or at the usual one. Raises ConfigError for another scheme.
    """
    scheme, colon, rest = uri.partition(":")
    if not uri.strip():
        raise ConfigError("a place is a path or a URI, not nothing")
    if colon and scheme == "file":
        if not rest.startswith("/") or (rest.startswith("//") and not rest.startswith("///")):
            raise ConfigError(f"{uri}: write file:///PATH, or the path alone")
        return _local(unquote(urlsplit(uri).path))
    if "://" not in uri:
        return _local(uri)
    if scheme in _WEB:
        from sparklog.storage.webhdfs import WebHdfs

        return WebHdfs(uri)
    raise ConfigError(
        f"{uri}: files are kept in a local directory or in HDFS (webhdfs://NAMENODE:9870/PATH), not at {scheme}://,"
        " which cannot put a file only if there is none of its name"
    )


def _local(path: str) -> Place:
    from sparklog.storage.local import LocalDirectory

    return LocalDirectory(os.path.abspath(path))
