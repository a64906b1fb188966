"""All lists at one moment, and what they say of one caller and one resource.

An answer is found without going through the lists. Of each list it is kept what each pair of principal and host is
denied and allowed, as bit fields, bit ``n`` for operation ``n``; four pairs concern a caller. Lists of literal names
lie in a dictionary. The prefixes of a type are sorted, each with the next shorter one that it begins with. All prefixes
of a name lie on the way up from the last one that sorts before it or is equal: whatever sorts between a prefix of a
name and the name begins with that prefix too.

Questions are asked again and again, so the grants that were found are remembered, up to a number, for as long as the
snapshot lasts. Nothing in it changes: what was remembered cannot become wrong, and a new snapshot begins with nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final, NamedTuple

from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.security.acl.binding import AclLists
from sparklog.security.acl.entry import ALL, ANY_HOST, AclEntry, AclOperation, Permission
from sparklog.security.acl.pattern import WILDCARD, PatternType, ResourcePattern
from sparklog.security.address import plain_address
from sparklog.security.principal import EVERYBODY, Principal
from sparklog.structs import LONGEST_TOPIC

_REMEMBERED = 20_000
"""Answers of one snapshot; with more questions than these it begins anew."""
_LONGEST_REMEMBERED = LONGEST_TOPIC
"""Characters of a resource's name; a topic has no more, and a client may make up what it likes."""
_IMPLYING: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""What implies an operation where it is allowed; a denial implies nothing."""


def _bits(*operations: AclOperation) -> int:
    return sum(1 << each for each in operations)


_DENYING: Final = {each: _bits(each, ALL) for each in Operation}
_ALLOWING: Final = {each: _bits(each, ALL, *_IMPLYING.get(each, ())) for each in Operation}


class Grants(NamedTuple):
    """What a caller is denied and allowed of a resource, by name and by ``ALL``; bit ``n`` is operation ``n``."""

    denied: int = 0
    allowed: int = 0
    has_list: bool = False
    """Whether anything is said of the resource, be it of others."""

    def allow(self, operation: Operation) -> bool:
        return not self.denied & _DENYING[operation] and bool(self.allowed & _ALLOWING[operation])


def _plain(entry: AclEntry) -> AclEntry:
    """With the host as connections come from it: Java writes addresses in another way."""
    if entry.host == ANY_HOST:
        return entry
    return entry._replace(host=plain_address(entry.host) or entry.host)


class _List:
    """The entries of one pattern."""

    __slots__ = ("_by_peer", "entries")

    def __init__(self, entries: frozenset[AclEntry]) -> None:
        self.entries = entries
        self._by_peer: dict[tuple[str, str], list[int]] = {}
        for each in map(_plain, entries):
            bits = self._by_peer.setdefault((each.principal, each.host), [0, 0])
            bits[each.permission is Permission.ALLOW] |= 1 << each.operation

    def of(self, peers: tuple[tuple[str, str], ...]) -> Iterator[list[int]]:
        """Denied and allowed, for those of the pairs of principal and host of which it says something."""
        return (self._by_peer[each] for each in peers if each in self._by_peer)


_EMPTY: Final = _List(frozenset())


def _peers(principal: Principal, host: str) -> tuple[tuple[str, str], ...]:
    """The pairs of principal and host that entries for this caller have."""
    return tuple((who, where) for who in (str(principal), str(EVERYBODY)) for where in (host, ANY_HOST))


class _Named(NamedTuple):
    """The names of the patterns whose lists have an entry."""

    literal: set[str]
    prefixed: set[str]


class _Kind:
    """The lists of one type of resource."""

    def __init__(self, lists: Mapping[PatternType, Mapping[str, _List]]) -> None:
        self.lists = lists
        self._literal, self._prefixed = lists[PatternType.LITERAL], lists[PatternType.PREFIXED]

    def with_list(self, pattern: ResourcePattern, entries: frozenset[AclEntry]) -> _Kind:
        changed = dict(self.lists[pattern.type])
        changed.pop(pattern.name, None)
        if entries:
            changed[pattern.name] = _List(entries)
        return _Kind({**self.lists, pattern.type: changed})

    @cached_property
    def _prefixes(self) -> list[str]:
        return sorted(self._prefixed)

    @cached_property
    def _shorter(self) -> list[int]:
        """For each prefix where the longest of the others is that it begins with; -1: none is."""
        found: list[int] = []
        for at, prefix in enumerate(self._prefixes):
            above = at - 1
            while above >= 0 and not prefix.startswith(self._prefixes[above]):
                above = found[above]
            found.append(above)
        return found

    def prefixes_of(self, name: str) -> Iterator[str]:
        """Those of the prefixes with which the name begins, the longest first."""
        at = bisect_right(self._prefixes, name) - 1
        while at >= 0:
            if name.startswith(self._prefixes[at]):
                yield self._prefixes[at]
            at = self._shorter[at]

    def about(self, name: str) -> Iterator[_List]:
        """The lists that concern the resource of this name; no list comes twice."""
        yield from (self._prefixed[each] for each in self.prefixes_of(name))
        for each in {name, WILDCARD}:
            if each in self._literal:
                yield self._literal[each]

    @cached_property
    def _named(self) -> dict[AclEntry, _Named]:
        found: dict[AclEntry, _Named] = {}
        for type_, lists in self.lists.items():
            for name, each in lists.items():
                for entry in map(_plain, each.entries):
                    named = found.setdefault(entry, _Named(set(), set()))
                    (named.literal if type_ is PatternType.LITERAL else named.prefixed).add(name)
        return found

    def named(
        self, peers: tuple[tuple[str, str], ...], operation: Operation, permission: Permission
    ) -> tuple[_Named, ...]:
        """What is named by entries for one of these pairs of principal and host, with the operation or ``ALL``."""
        entries = (AclEntry(*peer, each, permission) for peer in peers for each in (operation, ALL))
        return tuple(self._named[each] for each in entries if each in self._named)


_NO_LISTS: Final = _Kind({PatternType.LITERAL: {}, PatternType.PREFIXED: {}})


class AclSnapshot:
    """Immutable. Lists without entries are none."""

    def __init__(self, lists: AclLists) -> None:
        kinds: dict[ResourceType, dict[PatternType, dict[str, _List]]] = {}
        for pattern, entries in lists.items():
            if entries:
                kind = kinds.setdefault(pattern.kind, {PatternType.LITERAL: {}, PatternType.PREFIXED: {}})
                kind[pattern.type][pattern.name] = _List(entries)
        self._kinds = {kind: _Kind(each) for kind, each in kinds.items()}
        self._remembered: dict[tuple[Principal, str, Resource], Grants] = {}
        self._somewhere: dict[tuple[Principal, str, Operation, ResourceType, bool], bool] = {}

    def with_list(self, pattern: ResourcePattern, entries: frozenset[AclEntry]) -> AclSnapshot:
        """The next snapshot, in which the pattern has these entries. What is not of its type is shared."""
        fresh = AclSnapshot({})
        fresh._kinds = self._kinds | {
            pattern.kind: self._kinds.get(pattern.kind, _NO_LISTS).with_list(pattern, entries)
        }
        return fresh

    def entries(self, pattern: ResourcePattern) -> frozenset[AclEntry]:
        """The pattern's own list; empty where it has none."""
        return self._kinds.get(pattern.kind, _NO_LISTS).lists[pattern.type].get(pattern.name, _EMPTY).entries

    @cached_property
    def lists(self) -> AclLists:
        """All of them, by type, kind of pattern and name."""
        return {
            ResourcePattern(kind, name, type_): found.lists[type_][name].entries
            for kind, found in sorted(self._kinds.items())
            for type_ in sorted(found.lists)
            for name in sorted(found.lists[type_])
        }

    def grants(self, principal: Principal, host: str, resource: Resource) -> Grants:
        """What the lists say of the caller and the resource."""
        if len(resource.name) > _LONGEST_REMEMBERED:
            return self._found(principal, host, resource)
        question = (principal, host, resource)
        known = self._remembered.get(question)
        if known is None:
            known = self._found(principal, host, resource)
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[question] = known
        return known

    def _found(self, principal: Principal, host: str, resource: Resource) -> Grants:
        kind = self._kinds.get(resource.kind)
        if kind is None:
            return Grants()
        peers = _peers(principal, host)
        denied = allowed = 0
        has_list = False
        for each in kind.about(resource.name):
            has_list = True
            for denies, allows in each.of(peers):
                denied |= denies
                allowed |= allows
        return Grants(denied, allowed, has_list)

    def allows_somewhere(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, *, unless_listed: bool
    ) -> bool:
        """Whether there may be a resource of the type with which the caller may; no operation implies another here.

        ``unless_listed``: of what has no list everybody may do everything. It is found as in KIP-679: a denial of every
        resource settles it; else an allowed name suffices, or an allowed prefix, that no denial covers.
        """
        question = (principal, host, operation, kind, unless_listed)
        known = self._somewhere.get(question)
        if known is None:
            known = self._allows_somewhere(_peers(principal, host), operation, kind, unless_listed=unless_listed)
            if len(self._somewhere) >= _REMEMBERED:
                self._somewhere.clear()
            self._somewhere[question] = known
        return known

    def _allows_somewhere(
        self, peers: tuple[tuple[str, str], ...], operation: Operation, kind: ResourceType, *, unless_listed: bool
    ) -> bool:
        index = self._kinds.get(kind, _NO_LISTS)
        denied = index.named(peers, operation, Permission.DENY)
        if any(WILDCARD in each.literal for each in denied):
            return False
        if unless_listed:
            return True
        allowed = index.named(peers, operation, Permission.ALLOW)
        prefixes = (prefix for each in allowed for prefix in each.prefixed)
        literals = (literal for each in allowed for literal in each.literal)
        return any(not _is_dominated(prefix, denied) for prefix in prefixes) or any(
            literal == WILDCARD
            or not (any(literal in each.literal for each in denied) or _is_dominated(literal, denied))
            for literal in literals
        )


def _is_dominated(name: str, denied: tuple[_Named, ...]) -> bool:
    """Whether a denied prefix covers all that begins with the name."""
    return any(name[:size] in each.prefixed for each in denied for size in range(1, len(name) + 1))
