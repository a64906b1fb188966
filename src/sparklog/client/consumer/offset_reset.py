"""Where to read where nothing is committed, or what is committed is gone: ``auto.offset.reset``.

``earliest``, ``latest``, ``none`` (an error), or ``by_duration:PnDTnHnMnS``: the first record that is at most so old.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sparklog.errors import ConfigError

_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_LATEST_TIMESTAMP = -1
_EARLIEST_TIMESTAMP = -2


class OffsetReset(NamedTuple):
    """A policy; ``duration_ms`` is for by_duration only."""

    name: str
    duration_ms: int = 0

    def timestamp(self, now_ms: int) -> int | None:
        """What to ask ListOffsets for; None where nothing may be looked up."""
        if self.name == "by_duration":
            return max(now_ms - self.duration_ms, 0)
        return {"earliest": _EARLIEST_TIMESTAMP, "latest": _LATEST_TIMESTAMP}.get(self.name)

    def __str__(self) -> str:
        return self.name


EARLIEST_RESET = OffsetReset("earliest")
LATEST_RESET = OffsetReset("latest")


def parse_reset(text: str) -> OffsetReset:
    """Raises ConfigError naming the setting and what it allows."""
    name, _, duration = text.strip().partition(":")
    if name.lower() == "by_duration":
        return OffsetReset("by_duration", _milliseconds(duration))
    if name.lower() in ("earliest", "latest", "none") and not duration:
        return OffsetReset(name.lower())
    raise ConfigError(f"auto.offset.reset={text!r}: must be one of earliest, latest, none, or by_duration:PnDTnHnMnS")


def _milliseconds(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"auto.offset.reset: {text!r} is not a duration; write it as P7D, PT36H or PT90.5S")
    days, hours, minutes = (int(match[unit] or 0) for unit in ("days", "hours", "minutes"))
    return round((((days * 24 + hours) * 60 + minutes) * 60 + float(match["seconds"] or 0)) * 1000)
