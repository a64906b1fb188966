"""Keeps collections of cyclic garbage short in a process that lives long and holds much.

A full collection of CPython walks over every object that may be part of a cycle. A broker serves no request meanwhile:
40 ms with 3,000 partitions. So what a full collection leaves is set aside (``gc.freeze``), and the next looks only at
what has come since. Objects that are set aside are still freed as soon as nothing refers to them; only their cycles
wait.

Invariant: as soon as twice as much is set aside as the last look at everything left, and ``_AT_LEAST`` more, the next
full collection looks at everything again. So the garbage that waits takes no more memory than what lives, and a look at
everything comes once in as many new objects as it looks at.
"""

from __future__ import annotations

import gc

_AT_LEAST = 200_000
"""Objects; to walk over so many takes some 20 ms."""


class ShortCollections:
    """A context in which the full collections of this process are kept short."""

    def __init__(self) -> None:
        self._aside = 0
        self._look_again_at = 0
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
        left = len(gc.get_objects())
        if self._sees_all:
            self._aside, self._look_again_at = left, 2 * left + _AT_LEAST
        elif self._aside + left < self._look_again_at:
            self._aside += left
        else:  # much of it has been freed since: to count what is there takes a tenth of a look at it
            self._aside = gc.get_freeze_count() + left
        self._sees_all = self._aside >= self._look_again_at
        if self._sees_all:
            gc.unfreeze()
        else:
            gc.freeze()
