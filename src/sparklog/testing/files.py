"""A disk that fails when a test says so: it stops dead, refuses, or loses its power.

``FaultyFiles`` stands between Python and the system calls that change a disk. While it is in force, every change under
its root is a step; steps are counted from 0 and one of them can be made to fail::

    with FaultyFiles(root, crash_at=7) as files, suppress(Crash):
        work(root)
    files.cut(elsewhere, seed=1)  # what the disk may hold if the power went there

It sees what goes through ``os``, ``open``, ``pathlib`` and ``shutil``: creating, opening for writing, writing, cutting,
renaming, linking, removing, making a directory, syncing. Files under other roots are left alone. One at a time may be
in force in a process. A file that another process has made is one of them from when it is first synced or renamed here;
before that a power cut takes it away.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

from sparklog.testing.disk import PAGE, Directory, Disk, File, Resize, Write, content_of

STEPS = (
    "open", "write", "pwrite", "ftruncate", "truncate", "rename", "link", "unlink", "mkdir", "rmdir", "fsync",
    "fdatasync",
)  # fmt: skip
"""The steps that change a disk. ``open`` is one that creates a file or may write to it; to replace is to rename."""

READS = ("pread", "scandir", "openread")
"""Steps that may be made to fail, but only where ``steps`` names them. ``scandir`` is a directory that is listed,
``openread`` an open of what is there to read alone."""

NO_ERROR = 0
"""In place of an error: the disk had room for half of a write, and has room again for the next."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

Call = Callable[..., Any]


class Crash(BaseException):
    """The process ends here. No handler of ours catches it."""


class FaultyFiles:
    """Faults for the files under ``root``.

    ``crash_at`` is the step at which the process ends: it does not happen, Crash is raised, and so it is from every
    later step, for a dead process cleans nothing up. With ``strike``, that is called first: it may kill the process in
    earnest. ``fail_at`` is the step that raises OSError with ``error``, and with ``lasting`` so does every later one.
    With ``half``, half of a write happens: before a crash, or as a short write before the failure of the next step,
    which ``NO_ERROR`` leaves out.
    ``steps`` says which kinds are counted; the others always succeed.
    """

    def __init__(
        self,
        root: Path,
        *,
        crash_at: int | None = None,
        fail_at: int | None = None,
        error: int = errno.EIO,
        lasting: bool = False,
        half: bool = False,
        steps: Collection[str] = STEPS,
        strike: Callable[[], None] | None = None,
    ) -> None:
        self.count = 0
        """Steps so far."""
        self.crashed = False
        self._root = Path(os.path.realpath(root))
        self._crash_at = crash_at
        self._fail_at = fail_at
        self._error = error
        self._lasting = lasting
        self._half = half
        self._short = False
        self._steps = frozenset(steps)
        self._strike = strike
        self._lock = threading.RLock()
        self._inside = False
        self._restore: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> FaultyFiles:
        with self._lock:  # a thread that is at work already waits at its next step until the tree is known
            self._inside = True
            self._replace_calls()
            try:
                self._disk = Disk(self._root)
            except BaseException:
                self._restore_calls()
                raise
            finally:
                self._inside = False
        return self

    def _replace_calls(self) -> None:
        for name in (*STEPS, *READS):
            if hasattr(os, name):
                self._put(os, name, self._guarded(getattr(self, f"_{name}"), getattr(os, name)))
        self._put(os, "listdir", self._guarded(self._scandir, os.listdir))
        for other, name in (("remove", "unlink"), ("replace", "rename")):
            self._put(os, other, getattr(os, name))
        for module in (builtins, io):
            self._put(module, "open", partial(_open_file, self, io.open))

    def _restore_calls(self) -> None:
        while self._restore:
            setattr(*self._restore.pop())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._restore_calls()
        self._disk.look()

    def is_in_step(self) -> bool:
        """Whether this thread is in the middle of a step, as a signal's handler may find it."""
        with self._lock:
            return self._inside

    @contextmanager
    def at_a_standstill(self) -> Iterator[None]:
        """No other thread takes a step meanwhile, so that the disk may be ``cut`` while this is in force."""
        with self._lock:
            self._inside = True
            try:
                self._disk.look()
                yield
            finally:
                self._inside = False

    def cut(self, into: Path, seed: int, *, page: int = PAGE) -> None:
        """Make ``into`` what a disk may hold that lost its power when this ended; ``seed`` chooses.

        ``page`` is how many bytes reach the disk together; 512 is a disk's own sector.
        """
        self._disk.write_after_power_cut(into, Random(seed), page)

    def fail_from_now(self, error: int, steps: Collection[str] = STEPS) -> None:
        """Let every step of these kinds fail with ``error``, until ``recover``."""
        with self._lock:
            self._steps, self._error = frozenset(steps), error
            self._fail_at, self._lasting = self.count, True

    def recover(self) -> None:
        """Let steps succeed again."""
        with self._lock:
            self._fail_at, self._lasting = None, False

    def _put(self, module: Any, name: str, value: Any) -> None:
        self._restore.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    def _guarded(self, step: Call, real: Call) -> Call:
        """``step`` in place of ``real``, one at a time; what it calls itself goes straight through."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                if self._inside:
                    return real(*args, **kwargs)
                self._inside = True
                try:
                    return step(real, *args, **kwargs)
                finally:
                    self._inside = False

        return call

    def _fault(self, name: str) -> BaseException | None:
        """Count a step; what is to become of it, None for nothing. Raises Crash if all is over."""
        if self.crashed:
            raise Crash(name)
        if name not in self._steps:
            return None
        number = self.count
        self.count += 1
        if number == self._crash_at:
            self.crashed = True
            return Crash(f"step {number}, {name}")
        if self._fail_at is not None and (number == self._fail_at or (self._lasting and number > self._fail_at)):
            return OSError(self._error, f"{os.strerror(self._error)} (step {number}, {name})")
        return None

    def _step(self, name: str) -> None:
        fault = self._fault(name)
        if fault is not None:
            self._raise(fault)

    def _look(self, name: str, path: Any, directory: int | None = None) -> None:
        """A step of ``READS`` that names what it reads."""
        if name in self._steps and self._path(path, directory) is not None:
            self._step(name)

    def _raise(self, fault: BaseException) -> None:
        if isinstance(fault, Crash) and self._strike is not None:
            self._strike()
        raise fault

    def _path(self, path: Any, directory: int | None = None) -> str | None:
        """The absolute path if it is under the root."""
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        base = "" if directory is None else os.readlink(f"/proc/self/fd/{directory}")
        parent, name = os.path.split(os.path.abspath(os.path.join(base, os.fsdecode(path))))
        found = os.path.join(os.path.realpath(parent), name)
        return found if self._disk.holds(found) else None

    def _file(self, descriptor: int) -> File | None:
        node = self._disk.opened_as(descriptor)
        return node if isinstance(node, File) else None

    def _open(self, real: Call, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        where = self._path(path, dir_fd) if flags & _WRITING else None
        if where is not None:
            self._step("open")
        elif not flags & _WRITING:
            self._look("openread", path, dir_fd)
        descriptor: int = real(path, flags, mode, dir_fd=dir_fd)
        if where is not None:
            node = self._disk.at(where)
            if node is None:
                self._disk.created(where, File())
            elif flags & os.O_TRUNC and isinstance(node, File):
                node.change(Resize(0))
        return descriptor

    def _write(self, real: Call, descriptor: int, data: Any) -> int:
        file = self._file(descriptor)
        if file is None:
            return int(real(descriptor, data))
        appends = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
        position = os.fstat(descriptor).st_size if appends else os.lseek(descriptor, 0, os.SEEK_CUR)
        return self._written(file, "write", partial(real, descriptor), data, position)

    def _pwrite(self, real: Call, descriptor: int, data: Any, position: int) -> int:
        file = self._file(descriptor)
        if file is None:
            return int(real(descriptor, data, position))
        return self._written(file, "pwrite", lambda piece: real(descriptor, piece, position), data, position)

    def _written(self, file: File, name: str, real: Call, data: Any, position: int) -> int:
        fault = self._fault(name)
        piece = bytes(data)
        if fault is not None:
            piece = piece[: len(piece) // 2]
            if not self._half or not piece or self._short:
                self._raise(fault)
        done = int(real(piece))
        file.change(Write(position, piece[:done]))
        if isinstance(fault, Crash):
            self._raise(fault)
        if fault is not None and self._error != NO_ERROR:
            self._short, self._fail_at = True, self.count
        return done

    def _ftruncate(self, real: Call, descriptor: int, size: int) -> None:
        file = self._file(descriptor)
        if file is not None:
            self._step("ftruncate")
            file.found(content_of(f"/proc/self/fd/{descriptor}"))
        real(descriptor, size)
        if file is not None:
            file.change(Resize(size))

    def _truncate(self, real: Call, path: Any, size: int) -> None:
        where = self._path(path)
        if where is not None:
            self._step("truncate")
        real(path, size)
        file = self._disk.at(where) if where is not None else None
        if isinstance(file, File):
            file.change(Resize(size))

    def _rename(
        self, real: Call, source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        here, there = self._path(source, src_dir_fd), self._path(target, dst_dir_fd)
        if here is not None and there is not None:
            self._step("rename")
            self._disk.meet(here)
            self._look_at(there)
        real(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        if here is not None and there is not None:
            self._disk.moved(here, there)

    def _link(self, real: Call, source: Any, target: Any) -> None:
        here, there = self._path(source), self._path(target)
        if here is not None and there is not None:
            self._step("link")
            self._disk.meet(here)
        real(source, target)
        if here is not None and there is not None:
            self._disk.linked(here, there)

    def _unlink(self, real: Call, path: Any, *, dir_fd: int | None = None) -> None:
        where = self._path(path, dir_fd)
        if where is not None:
            self._step("unlink")
            self._look_at(where)
        real(path, dir_fd=dir_fd)
        if where is not None:
            self._disk.removed(where)

    def _look_at(self, path: str) -> None:
        """See what is in a file that is about to lose its name; a power cut may give it back."""
        file = self._disk.at(path)
        if isinstance(file, File):
            file.found(content_of(path))

    def _mkdir(self, real: Call, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        where = self._path(path, dir_fd)
        if where is not None and self._disk.at(where) is None:
            self._step("mkdir")
        real(path, mode, dir_fd=dir_fd)
        if where is not None:
            self._disk.created(where, Directory())

    def _rmdir(self, real: Call, path: Any, *, dir_fd: int | None = None) -> None:
        where = self._path(path, dir_fd)
        if where is not None:
            self._step("rmdir")
        real(path, dir_fd=dir_fd)
        if where is not None:
            self._disk.removed(where)

    def _fsync(self, real: Call, descriptor: int) -> None:
        self._synced("fsync", real, descriptor)

    def _fdatasync(self, real: Call, descriptor: int) -> None:
        self._synced("fdatasync", real, descriptor)

    def _synced(self, name: str, real: Call, descriptor: int) -> None:
        where = self._path(descriptor)
        met = None if where is None else self._disk.meet(where)
        node = met or self._disk.opened_as(descriptor)
        if isinstance(node, File):
            self._file_synced(name, node, content_of(f"/proc/self/fd/{descriptor}"))
        elif node is not None:
            self._step(name)
            node.synced()
        else:
            real(descriptor)

    def _file_synced(self, name: str, file: File, content: bytes) -> None:
        """No real sync: a test's disk keeps its power, and a thousand of them take their time."""
        file.found(content)
        try:
            self._step(name)
        except OSError:
            file.sync_failed()
            raise
        file.synced()

    def _pread(self, real: Call, descriptor: int, size: int, position: int) -> bytes:
        if "pread" in self._steps and self._file(descriptor) is not None:
            self._step("pread")
        return bytes(real(descriptor, size, position))

    def _scandir(self, real: Call, path: Any = ".") -> Any:
        self._look("scandir", path)
        return real(path)


class _File(io.FileIO):
    """A file whose changes go through ``os``."""

    def write(self, data: Any) -> int:
        return os.write(self.fileno(), data)

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        os.ftruncate(self.fileno(), size)
        return size


def _open_file(files: FaultyFiles, real: Call, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    """``open`` itself; where the file is under the root and may be written to, by way of ``os``."""
    if isinstance(file, int):
        return real(file, mode, *args, **kwargs)
    with files._lock:
        writes = bool(set(mode) & set("wax+")) and files._path(file) is not None
        if not writes:
            files._look("openread", file)
    if not writes:
        return real(file, mode, *args, **kwargs)
    raw = _File(file, mode.replace("b", "").replace("t", ""), opener=lambda path, flags: os.open(path, flags, 0o666))
    buffering, *text = args or (kwargs.pop("buffering", -1),)
    if buffering == 0:
        return raw
    buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
    return buffered if "b" in mode else io.TextIOWrapper(buffered, *text, **kwargs)
