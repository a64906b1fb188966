"""Work in steps, taken to its end, or counted."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def finish(steps: Generator[object, None, T]) -> T:
    """The result of ``steps``."""
    return counted(steps)[1]


def counted(steps: Generator[object, None, T]) -> tuple[int, T]:
    """How many times ``steps`` stopped for others, and their result."""
    number = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return number, end.value
        number += 1
