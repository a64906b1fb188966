"""Cuts an operation short at its n-th step on the disk, as a crash of the process would."""

import os
from collections.abc import Callable

import pytest

STEPS = ("open", "pwrite", "ftruncate", "replace", "rename", "unlink", "mkdir", "fsync", "fdatasync", "rmdir")


class Crash(BaseException):
    """The process ends here. No handler of ours catches it."""


class CrashingDisk:
    """While it is in force, the ``n``-th call of ``STEPS`` does not happen, or half of a write does."""

    def __init__(self, n: int, half: bool) -> None:
        self._left = n
        self._half = half
        self.crashed = False

    def call(self, name: str, real: Callable) -> Callable:
        """``os.name`` as it is while this disk is in force."""

        def step(*args, **kwargs):
            if self.crashed:  # nothing reaches the disk after the crash, not even by way of a clean-up
                raise Crash(name)
            self._left -= 1
            if self._left >= 0:
                return real(*args, **kwargs)
            if name == "pwrite" and self._half:
                fd, data, position = args
                real(fd, bytes(data)[: len(data) // 2], position)
            self.crashed = True
            raise Crash(name)

        return step


def crash_at(n: int, operation: Callable[[], object], *, half: bool = False) -> bool:
    """Run ``operation`` and crash at its ``n``-th step; False if it has fewer."""
    disk = CrashingDisk(n, half)
    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, disk.call(name, getattr(os, name)))
        try:
            operation()
        except Crash:
            return True
    assert not disk.crashed, "somebody caught the crash"
    return False
