"""Answers that are kept, and asked for by one thread of those that want the same at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar, cast

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Questions:
    """Those under way. Nothing is locked while one is asked: that may take as long as the retries of a registry."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Of ``_asking``, and of the caches."""
        self._asking: dict[Hashable, Future[Any]] = {}

    def once(self, cache: dict[K, V], key: K, question: Hashable, ask: Callable[[], V]) -> V:
        """What ``cache`` has under ``key``, or what ``ask`` returns, which is kept.

        A thread with the same ``question`` as another waits for that one's answer, or its failure. Raises what ``ask``
        does.
        """
        while True:
            with self._lock:
                if key in cache:
                    return cache[key]
                others = self._asking.get(question)
                if others is None:
                    mine = self._asking[question] = Future[V]()
                    break
            with suppress(CancelledError):  # the thread that asked was interrupted
                return cast(V, others.result())
        try:
            found = ask()
        except BaseException as error:
            self._end(question)
            if isinstance(error, Exception):
                mine.set_exception(error)
            else:
                mine.cancel()
            raise
        with self._lock:
            cache[key] = found
        self._end(question)
        mine.set_result(found)
        return found

    def _end(self, question: Hashable) -> None:
        with self._lock:
            del self._asking[question]
