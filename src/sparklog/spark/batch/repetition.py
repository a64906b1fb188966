"""Doing a job again and again."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterator

from sparklog.clock import Clock, SystemClock

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def duration(text: str) -> float:
    """Seconds of ``30s``, ``10m``, ``2h``, ``1d``. Raises ArgumentTypeError."""
    number, unit = text[:-1], text[-1:]
    if unit not in _SECONDS or not number.isascii() or not number.isdecimal() or not int(number):
        raise ArgumentTypeError(f"{text!r} is no time: write 30s, 10m, 2h or 1d")
    return float(int(number) * _SECONDS[unit])


def rounds(pause_s: float | None, clock: Clock | None = None) -> Iterator[int]:
    """0, and then on without end, each after a pause; only 0 if there is none."""
    number = 0
    yield number
    while pause_s is not None:
        (clock or SystemClock()).sleep(pause_s)
        number += 1
        yield number
