"""A local directory as a place for files. What is finished is on the disk, its name too."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import IO

from sparklog.log.files import make_directory, sync_directory
from sparklog.storage.place import PART_SUFFIX, Listed, NewFile, Place, checked, part_of

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)


class LocalDirectory(Place):
    """The directory ``root``, an absolute path. It is made when the first file is."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._root = Path(root)

    def _at(self, path: str) -> Path:
        return self._root / checked(path)

    def list(self, directory: str) -> Listed:
        try:
            with os.scandir(self._at(directory)) as found:
                entries = [each for each in found if not each.name.endswith(PART_SUFFIX)]
                files = {}
                for each in entries:
                    with suppress(FileNotFoundError):  # it went since the directory was read
                        if each.is_file():
                            files[each.name] = each.stat().st_size
                return Listed(files, tuple(sorted(each.name for each in entries if each.is_dir())))
        except FileNotFoundError:
            return Listed({}, ())

    def open(self, path: str) -> IO[bytes]:
        return self._at(path).open("rb")

    def create(self, path: str) -> NewFile:
        target = self._at(path)
        make_directory(target.parent)
        return _NewLocalFile(self._at(part_of(path)), target)

    def remove(self, path: str) -> None:
        self._at(path).unlink(missing_ok=True)

    def _put(self, part: str, path: str) -> bool:
        target = self._at(path)
        try:
            os.link(self._at(part), target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            text = "this file system has no hard links, by which a file is put only if there is none of its name"
            raise OSError(error.errno, text, str(target)) from error
        return True

    def make_durable(self, path: str) -> None:
        sync_directory(self._at(path).parent)


class _NewLocalFile:
    """Written beside its name, and renamed."""

    def __init__(self, part: Path, target: Path) -> None:
        self._part = part
        self._target = target
        self._file = part.open("xb", buffering=0)

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        view = memoryview(data).cast("B")
        written = 0
        while written < len(view):
            written += self._file.write(view[written:])
        return written

    def finish(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()
        os.rename(self._part, self._target)
        sync_directory(self._target.parent)

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._part.unlink(missing_ok=True)
