"""The kinds of values that many options share: words, numbers, sizes, durations, texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from sparklog.record.layout import MAX_INT64
from sparklog.spark.options.definition import Kind, invalid

T = TypeVar("T")
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_UNITS_MS = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_WRITTEN_UNITS = ("h", "m", "s")


def parsed(name: str, text: str, parse: Callable[[str], T], what: str) -> T:
    """``text`` without outer blanks through ``parse``. Where that raises ValueError, the value must be ``what``."""
    try:
        return parse(text.strip())
    except ValueError:
        raise invalid(name, text, f"it must be {what}") from None


def choice(values: Mapping[str, T]) -> Kind[T]:
    """One of these words, in any case; messages name them in this order."""

    def parse(name: str, text: str) -> T:
        word = text.strip().lower()
        if word not in values:
            raise invalid(name, text, f"it must be {' or '.join(values)}")
        return values[word]

    def written(value: T) -> str:
        return next(word for word, each in values.items() if each == value)

    *others, last = (f"`{word}`" for word in values)
    return Kind(parse, f"{', '.join(others)} or {last}", written)


def integer(least: int, most: int = MAX_INT64) -> Kind[int]:
    """A whole number from ``least`` to ``most``."""

    def parse(name: str, text: str) -> int:
        value = parsed(name, text, int, "a whole number")
        if value < least:
            raise invalid(name, text, f"it must be at least {least}")
        if value > most:
            raise invalid(name, text, f"it must be at most {most}")
        return value

    return Kind(parse, f"whole number from {least}")


def _size(name: str, text: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", text.lower(), re.ASCII)
    if match is None or int(match[1]) == 0:
        raise invalid(name, text, "write it like 1048576, 512k, 64m or 1g")
    return int(match[1]) << _SHIFTS[match[2]]


def _duration_ms(name: str, text: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _UNITS_MS:
        raise invalid(name, text, "write it like 500ms, 30s, 15m or 1h")
    return int(match[1]) * _UNITS_MS[match[2]]


def _written_duration(ms: int) -> str:
    unit = next((unit for unit in _WRITTEN_UNITS if ms and ms % _UNITS_MS[unit] == 0), "ms")
    return f"{ms // _UNITS_MS[unit]}{unit}"


def _group(name: str, text: str) -> str:
    if not text.strip():
        raise invalid(name, text, "it is the name of a consumer group")
    return text.strip()


BOOLEAN = choice({"true": True, "false": False})
BOOLEAN_FALSE_FIRST = choice({"false": False, "true": True})
SIZE = Kind(_size, "bytes: `1048576`, `512k`, `64m`, `1g`")
"""Bytes as Spark writes them; a bare number is bytes."""
DURATION: Kind[int] = Kind(
    _duration_ms, "time: `500ms`, `30s`, `15m`, `1h`; a bare number is milliseconds", _written_duration
)
"""Milliseconds, from Spark's time strings."""
TEXT: Kind[str | None] = Kind(lambda _, text: text.strip() or None, "text")
"""A text without outer blanks; None for a blank one."""
VERBATIM_TEXT: Kind[str | None] = Kind(lambda _, text: text, "text")
GROUP = Kind(_group, "name of a consumer group")
