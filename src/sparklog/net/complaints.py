"""Warnings that clients cause: told, but never so often that a hostile one fills the disk with them."""

from __future__ import annotations

import logging
from collections.abc import Callable

_WINDOW_S = 10.0
_A_WINDOW = 1000


class Complaints:
    """Of each kind a thousand in ten seconds go to the log, or as few as is said; the first of the next ten says how
    many did not."""

    def __init__(self, logger: logging.Logger, now: Callable[[], float]) -> None:
        self._logger = logger
        self._now = now
        self._windows: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, text: str, most: int | None = None) -> None:
        """``kind`` is one of few words, never a client's, and has one ``most``."""
        most = _A_WINDOW if most is None else most
        now = self._now()
        began, told = self._windows.get(kind, (now, 0))
        untold = 0
        if now - began >= _WINDOW_S:
            began, told, untold = now, 0, max(told - most, 0)
        self._windows[kind] = (began, told + 1)
        if told < most:
            self._logger.warning("%s%s", text, f" (and {untold} more of this kind before)" if untold else "")
