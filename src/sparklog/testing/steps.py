"""Work in steps, taken to its end, or counted."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")


def finish(steps: Generator[object, None, T]) -> T:
    """The result of ``steps``."""
    return counted(steps)[1]


def counted(steps: Generator[object, None, T]) -> tuple[int, T]:
    """How many times ``steps`` stopped for others, and their result."""
    stops: list[None] = []
    result = watched(steps, lambda: stops.append(None))
    return len(stops), result


def watched(steps: Generator[object, None, T], look: Callable[[], None]) -> T:
    """The result of ``steps``; ``look`` is called each time they stop for others."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        look()
