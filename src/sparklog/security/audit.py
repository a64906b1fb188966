"""What was refused to whom, and who changed what may be done: lines on the logger ``sparklog.audit``.

Names come from clients. They are quoted, so that none of them begins a line of its own, and cut where they are long. A
flood of refusals cannot fill the disk: of each group of principals a few lines are written in ten seconds, and the next
line says how many were left out. All of them are counted.
"""

from __future__ import annotations

import logging
import zlib
from collections import Counter
from collections.abc import Callable, Iterable

from sparklog.rate_limit import RateLimitedLogger
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.security.caller import Caller

_logger = logging.getLogger("sparklog.audit")
_GROUPS = 64
"""Of principals, by their names: one that is refused all the time hides the refusals of its group alone."""
_REFUSALS = 20
"""Lines in ten seconds, of each group."""
_LONGEST = 256
"""Characters of a name that are written."""


class AuditLog:
    """``now`` is monotonic, in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._lines = RateLimitedLogger(_logger, now)
        self.refusals: Counter[tuple[ResourceType, Operation]] = Counter()
        """How many there were, since the start, whether written or not."""

    def refused(self, caller: Caller, operation: Operation, resource: Resource) -> None:
        """Somebody tried what they may not."""
        self.refusals[resource.kind, operation] += 1
        group = zlib.crc32(str(caller.principal).encode()) % _GROUPS
        what = f"{operation.name} of {resource.kind.name} {_quoted(resource.name)}"
        self._lines.warn(f"refusal {group}", f"refused: {what} to {_who(caller)}", _REFUSALS)

    def administered(self, caller: Caller, what: str, things: Iterable[object]) -> None:
        """Somebody changed who may do what: one line a thing, none left out."""
        for each in things:
            _logger.info("%s: %s by %s", what, _quoted(str(each)), _who(caller))


def _who(caller: Caller) -> str:
    api = "-" if caller.api is None else caller.api.name
    return f"{_quoted(str(caller.principal))} from {caller.host} by listener {caller.listener}, api {api}"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
