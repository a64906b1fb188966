"""Something that is done again and again in a thread of its own while a cluster is under fire."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class Repeating(ABC):
    """``once`` is done, and ``pause_s`` (seconds) later again, from ``start`` to ``stop``."""

    def __init__(self, name: str, pause_s: float) -> None:
        self._pause_s = pause_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    @abstractmethod
    def once(self) -> None: ...

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is under way is waited for."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._pause_s):
            self.once()
