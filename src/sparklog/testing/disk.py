"""What a disk holds for certain, and what it may hold if the power goes now.

The model is the worst that POSIX allows, not what one file system does. A file is certain as it was at its last sync;
of what was changed since, each page may be on the disk in any version that it has had, or as zeros where the file grew,
and the file may have any size that it has had. A directory is certain as it was at its last sync; of what was created,
renamed and removed in it since, the first few changes have happened and the rest have not. To sync a file does not sync
its name: that is its directory's business.

After a sync that failed, Linux calls the pages clean that it could not write, so a later sync that succeeds says
nothing about them: such a file is never certain again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

PAGE = 4096


class Write(NamedTuple):
    """``data`` at ``position``; what lies between the end and there is zeros."""

    position: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        if len(content) < self.position:
            content.extend(bytes(self.position - len(content)))
        content[self.position : self.position + len(self.data)] = self.data


class Resize(NamedTuple):
    """The file cut, or grown with zeros, to ``size`` bytes."""

    size: int

    def apply(self, content: bytearray) -> None:
        del content[self.size :]
        content.extend(bytes(self.size - len(content)))


class File:
    """One file: what is certain, and what was done to it since."""

    def __init__(self, content: bytes = b"") -> None:
        self._certain = content
        self._now = bytearray(content)
        self._changes: list[Write | Resize] = []
        self._doubtful = False

    def change(self, change: Write | Resize) -> None:
        change.apply(self._now)
        self._changes.append(change)

    def found(self, content: bytes) -> None:
        """The file turns out to hold ``content``: what was done by ways that were not watched is one change."""
        if content != self._now:
            self.change(Resize(len(content)))
            self.change(Write(0, content))

    def synced(self) -> None:
        if not self._doubtful:
            self._certain = bytes(self._now)
            self._changes = []

    def sync_failed(self) -> None:
        self._doubtful = True

    def after_power_cut(self, chance: Random, page: int) -> bytes:
        """What the disk may hold of it."""
        versions = list(self._versions())
        if len(versions) == 1:
            return versions[0]
        mood = chance.random()
        if mood < 0.4:
            return versions[0] if mood < 0.2 else versions[-1]
        if mood < 0.6:
            return chance.choice(versions)
        return self._mixed(versions, chance, page)

    def _versions(self) -> Iterator[bytes]:
        content = bytearray(self._certain)
        yield bytes(content)
        for change in self._changes:
            change.apply(content)
            yield bytes(content)

    @staticmethod
    def _mixed(versions: list[bytes], chance: Random, page: int) -> bytes:
        sizes = [len(version) for version in versions]
        size = chance.choice(sizes)
        if chance.random() < 0.3:  # a long write was under way
            size = max(min(sizes), size // page * page)
        out = bytearray()
        for start in range(0, size, page):
            zeros = start >= min(sizes) and chance.random() < 0.2
            piece = b"" if zeros else chance.choice(versions)[start : start + page]
            out += piece.ljust(page, b"\0")
        return bytes(out[:size])


class Directory:
    """One directory: which names are certain, and what was done to them since."""

    def __init__(self) -> None:
        self.now: dict[str, Node] = {}
        self._certain: dict[str, Node] = {}
        self._changes: list[dict[str, Node | None]] = []

    def change(self, names: dict[str, Node | None]) -> None:
        """One step: each name now means this node, or nothing."""
        _apply(names, self.now)
        self._changes.append(names)

    def synced(self) -> None:
        self._certain = dict(self.now)
        self._changes = []

    def after_power_cut(self, chance: Random) -> dict[str, Node]:
        names = dict(self._certain)
        mood = chance.random()
        happened = 0 if mood < 0.2 else len(self._changes) if mood < 0.4 else chance.randint(0, len(self._changes))
        for change in self._changes[:happened]:
            _apply(change, names)
        return names


Node = File | Directory


def _apply(change: dict[str, Node | None], names: dict[str, Node]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Disk:
    """The tree under ``root``, an absolute path without links; all that is there at the beginning is certain."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self._by_identity: dict[tuple[int, int], Node] = {}
        self._tree = self._scanned(self.root)

    def _scanned(self, path: str) -> Directory:
        directory = Directory()
        self._remember(path, directory)
        with os.scandir(path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another thread was in the middle of renaming it
                    found = self._scanned(entry.path) if entry.is_dir() else self._scanned_file(entry)
                    directory.now[entry.name] = found
        directory.synced()
        return directory

    def _scanned_file(self, entry: os.DirEntry[str]) -> File:
        file = File(content_of(entry.path))
        self._remember(entry.path, file)
        return file

    def _remember(self, path: str, node: Node) -> None:
        status = os.stat(path)
        self._by_identity[status.st_dev, status.st_ino] = node

    def holds(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root + "/")

    def at(self, path: str) -> Node | None:
        """What ``path`` names now."""
        node: Node | None = self._tree
        for name in path[len(self.root) :].split("/"):
            if name:
                node = node.now.get(name) if isinstance(node, Directory) else None
        return node

    def meet(self, path: str) -> Node | None:
        """What ``path`` names now, None for nothing; a file that another process has made there is taken note of."""
        node = self.at(path)
        if isinstance(node, Directory) or not os.path.isfile(path):
            return node
        status = os.stat(path)
        if node is None or self._by_identity.get((status.st_dev, status.st_ino)) is not node:
            node = File()
            node.found(content_of(path))
            self.created(path, node)
        return node

    def opened_as(self, descriptor: int) -> Node | None:
        """What ``descriptor`` was opened on; None if that is not in this tree.

        Something elsewhere may have the number that a file had here which is gone.
        """
        if not self.holds(os.readlink(f"/proc/self/fd/{descriptor}")):
            return None
        status = os.fstat(descriptor)
        return self._by_identity.get((status.st_dev, status.st_ino))

    def created(self, path: str, node: Node) -> None:
        """``node`` was made at ``path``, where it is."""
        self._remember(path, node)
        self._name(path, node)

    def removed(self, path: str) -> None:
        self._name(path, None)

    def moved(self, source: str, target: str) -> None:
        """Within one directory that is one step; from one to another it is two, of which either may be lost."""
        node = self.at(source)
        if os.path.dirname(source) == os.path.dirname(target):
            directory = self.at(os.path.dirname(source))
            assert isinstance(directory, Directory)
            directory.change({os.path.basename(source): None, os.path.basename(target): node})
        else:
            self._name(target, node)
            self._name(source, None)

    def linked(self, source: str, target: str) -> None:
        """The file at ``source`` has another name besides."""
        self._name(target, self.at(source))

    def _name(self, path: str, node: Node | None) -> None:
        directory = self.at(os.path.dirname(path))
        if isinstance(directory, Directory):
            directory.change({os.path.basename(path): node})

    def look(self) -> None:
        """See what the files hold by now, however it came there."""
        self._look(self.root, self._tree)

    def _look(self, path: str, directory: Directory) -> None:
        for name, node in list(directory.now.items()):  # another thread goes on after the faults have ended
            if isinstance(node, Directory):
                self._look(f"{path}/{name}", node)
            else:
                with suppress(FileNotFoundError):
                    node.found(content_of(f"{path}/{name}"))

    def write_after_power_cut(self, into: Path, chance: Random, page: int) -> None:
        """Make ``into`` the tree as it may be found."""
        _write(self._tree, into, chance, page)


def content_of(path: str) -> bytes:
    """All of a file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 1 << 20), b""))
    finally:
        os.close(descriptor)


def _write(directory: Directory, into: Path, chance: Random, page: int) -> None:
    into.mkdir()
    for name, node in directory.after_power_cut(chance).items():
        if isinstance(node, Directory):
            _write(node, into / name, chance, page)
        else:
            (into / name).write_bytes(node.after_power_cut(chance, page))
