"""What is started and stopped, as a context: it runs for as long as the ``with`` block does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Running(ABC):
    """Started on entry, stopped on exit, whatever happened in between."""

    @abstractmethod
    def start(self) -> None:
        """Returns when it serves."""

    @abstractmethod
    def stop(self) -> None:
        """Returns when it has ended."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
