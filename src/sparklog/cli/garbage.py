"""Keeps collections of cyclic garbage short in a process that lives long and holds much.

A full collection of CPython walks over every object that may be part of a cycle. A broker serves no request meanwhile:
40 ms with 3,000 partitions. So what a full collection leaves is set aside (``gc.freeze``), and the next looks only at
what has come since. Objects that are set aside are still freed as soon as nothing refers to them; only their cycles
wait.

Invariant: as soon as twice as much is set aside as the last look at everything left, and ``_AT_LEAST`` more, the next
full collection looks at everything again; so it does if the process has twice the memory that it had at that look, and
``_BYTES_AT_LEAST`` more. So the garbage that waits is no more than what lived, neither in objects nor in bytes (one
object may hold a large buffer), and a look at everything comes once in as many new objects as it looks at, or once in
as many new bytes.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable
from pathlib import Path

_AT_LEAST = 200_000
"""Objects; to walk over so many takes some 20 ms."""
_BYTES_AT_LEAST = 64 << 20
_PAGES = Path("/proc/self/statm")


def private_bytes() -> int:
    """The memory of this process, without what it shares with files and other processes."""
    _, resident, shared, *_ = map(int, _PAGES.read_bytes().split())
    return (resident - shared) * resource.getpagesize()


class ShortCollections:
    """A context in which the full collections of this process are kept short. ``memory`` says how many bytes it has."""

    def __init__(self, memory: Callable[[], int] = private_bytes) -> None:
        self._memory = memory
        self._aside = 0
        self._look_again_at = self._look_again_at_bytes = 0
        self._sees_all = True

    def __enter__(self) -> None:
        gc.callbacks.append(self._on_collection)
        gc.collect()

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._on_collection)
        gc.unfreeze()

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] != 2:
            return
        left, size = len(gc.get_objects()), self._memory()
        if self._sees_all:
            self._look_again_at_bytes = 2 * size + _BYTES_AT_LEAST
            self._aside, self._look_again_at = left, 2 * left + _AT_LEAST
        elif self._aside + left < self._look_again_at:
            self._aside += left
        else:  # much of it has been freed since: to count what is there takes a tenth of a look at it
            self._aside = gc.get_freeze_count() + left
        self._sees_all = self._aside >= self._look_again_at or size >= self._look_again_at_bytes
        if self._sees_all:
            gc.unfreeze()
        else:
            gc.freeze()
