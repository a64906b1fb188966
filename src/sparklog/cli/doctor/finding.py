"""One thing that is wrong: how bad, what, where, and what to type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

_NAMED = 5


class Severity(StrEnum):
    """How bad it is, the worst first."""

    ERROR = "error"
    """Records or the service are lost, or will be by one more failure."""
    WARNING = "warning"
    """It works, and will not for ever, or less well than it could."""
    NOTE = "note"
    """Nothing is wrong; or it could not be looked at."""


class Finding(NamedTuple):
    """``where``: partitions, brokers, groups, or files; ``advice``: a command, or what to do."""

    severity: Severity
    what: str
    where: tuple[str, ...]
    advice: str


def named(where: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    more = len(where) - _NAMED
    return ", ".join(where[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first; those that are as bad in the order in which they were found."""
    order = list(Severity)
    return sorted(findings, key=lambda each: order.index(each.severity))
