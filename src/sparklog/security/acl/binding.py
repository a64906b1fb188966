"""An entry with what it is about, and questions for those that there are (``AclBindingFilter.java``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from sparklog.security.access import ResourceType
from sparklog.security.acl.entry import AclEntry, AclOperation, Permission
from sparklog.security.acl.pattern import SPECIFIC, PatternType, ResourcePattern

AclLists: TypeAlias = Mapping[ResourcePattern, frozenset[AclEntry]]
"""All lists of a cluster; none of them is empty."""


class AclBinding(NamedTuple):
    """One entry of one list."""

    pattern: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        return f"{self.pattern}: {self.entry}"


class AclFilter(NamedTuple):
    """Which bindings are meant; None stands for any. The default is all of them.

    ``principal`` and ``host`` are compared as texts: ``User:*`` finds the entries for everybody, not those of
    everybody.
    """

    kind: ResourceType | None = None
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation | None = None
    permission: Permission | None = None

    @classmethod
    def of(cls, binding: AclBinding) -> AclFilter:
        """The filter that finds just this binding."""
        pattern, entry = binding
        who, where, operation, permission = entry
        return cls(pattern.kind, pattern.name, pattern.type, who, where, operation, permission)

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.kind not in (None, pattern.kind):
            return False
        if self.pattern_type in SPECIFIC and self.pattern_type is not pattern.type:
            return False
        if self.name is None:
            return True
        return pattern.concerns(self.name) if self.pattern_type is PatternType.MATCH else self.name == pattern.name

    def matches_entry(self, entry: AclEntry) -> bool:
        return all(wanted in (None, found) for wanted, found in zip(self[3:], entry, strict=True))

    @property
    def patterns(self) -> tuple[ResourcePattern, ...]:
        """Where it says them all: the patterns that it matches, whether or not there are lists of them."""
        if self.kind is None or self.name is None or self.pattern_type is PatternType.MATCH:
            return ()
        types = SPECIFIC if self.pattern_type is PatternType.ANY else (self.pattern_type,)
        return tuple(ResourcePattern(self.kind, self.name, each) for each in types)

    def found_in(self, lists: AclLists) -> Iterator[AclBinding]:
        """The bindings that it matches, in the order of the lists."""
        for pattern, entries in lists.items():
            if self.matches_pattern(pattern):
                yield from (AclBinding(pattern, entry) for entry in entries if self.matches_entry(entry))
