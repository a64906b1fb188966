"""Keeps collections of cyclic garbage short in a process that lives long and holds much.

A full collection of CPython walks over every object that may be part of a cycle. A broker serves no request meanwhile:
40 ms with 3,000 partitions. So what a full collection leaves is set aside (``gc.freeze``), and the next looks only at
what has come since. Objects that are set aside are still freed as soon as nothing refers to them; only their cycles
wait.

Invariant: as soon as the process has twice the memory that it had when everything was looked at last, and
``_AT_LEAST`` more, the next full collection looks at everything again. So the garbage that waits takes no more than
what lived and ``_AT_LEAST``. How many objects there are says nothing: most that are set aside in the midst of a large
request go as soon as it is answered, and a look at everything holds up all clients, 0.1 µs an object.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable
from pathlib import Path

_AT_LEAST = 256 << 20
"""Bytes."""
_YOUNGER = 3
"""Collections of the second generation before a full one, in place of ten: as each looks at what is new only, several
short ones take no longer than one long.
"""
_PAGES = Path("/proc/self/statm")


def private_bytes() -> int:
    """The memory of this process, without what it shares with files and other processes."""
    _, resident, shared, *_ = map(int, _PAGES.read_bytes().split())
    return (resident - shared) * resource.getpagesize()


class ShortCollections:
    """A context in which the full collections of this process are kept short. ``memory`` says how many bytes it has."""

    def __init__(self, memory: Callable[[], int] = private_bytes) -> None:
        self._memory = memory
        self._look_again_at = 0
        self._sees_all = True
        self._thresholds = gc.get_threshold()

    def __enter__(self) -> None:
        gc.callbacks.append(self._on_collection)
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*self._thresholds[:2], _YOUNGER)
        gc.collect()

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] != 2:
            return
        size = self._memory()
        if self._sees_all:
            self._look_again_at = 2 * size + _AT_LEAST
        self._sees_all = size >= self._look_again_at
        if self._sees_all:
            gc.unfreeze()
        else:
            gc.freeze()
