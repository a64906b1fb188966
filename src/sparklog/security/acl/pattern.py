"""What a list is about: one resource, or all whose names begin so (``ResourcePattern.java``)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from sparklog.security.access import ResourceType

WILDCARD: Final = "*"
"""As the name of a LITERAL pattern: every resource of its type. A prefix ``*`` is a prefix like any other."""


class PatternType(IntEnum):
    """How a name is meant. A list has one of the last two; the others are for questions."""

    ANY = 1
    """Whatever the type, with just this name."""
    MATCH = 2
    """Every pattern that concerns the resource of this name."""
    LITERAL = 3
    PREFIXED = 4


SPECIFIC: Final = (PatternType.LITERAL, PatternType.PREFIXED)


class ResourcePattern(NamedTuple):
    """``type`` is LITERAL or PREFIXED."""

    kind: ResourceType
    name: str
    type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.kind.name}:{self.type.name}:{self.name}"

    def concerns(self, name: str) -> bool:
        """Whether it says something of the resource of this name and of its type."""
        if self.type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)
