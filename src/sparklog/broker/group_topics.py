"""The cluster's topics as the groups of the consumer protocol see them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from uuid import UUID

from sparklog.broker.expressions import Expressions
from sparklog.broker.metadata_cache import MetadataCache
from sparklog.errors import ApiError
from sparklog.group.consumer.topics import TopicDescription, matching
from sparklog.structs import INTERNAL_TOPICS

Found = frozenset[str] | ApiError
_MOST = 16 << 20
_OF_A_NAME = 64


class GroupTopics:
    """What an expression matches is remembered until topics are made or deleted, for many members bring the same; not
    more than about ``_MOST`` bytes of it, and of what is being looked up. Groups have their expressions looked up by
    turns, one at a time: no group waits until all those of another are understood.
    """

    def __init__(self, metadata: MetadataCache, expressions: Expressions) -> None:
        self._metadata = metadata
        self._expressions = expressions
        self._matched: dict[str, Found] = {}
        self._matched_bytes = 0
        self._names: frozenset[str] = frozenset()
        """Of the topics of ``_version``, which the matches are of."""
        self._version = -1
        self._wanted: list[Collection[str]] = []
        """Of each that is looking up."""
        self._looking = asyncio.Lock()

    @property
    def version(self) -> int:
        return self._metadata.topics_version

    def topic(self, name: str) -> TopicDescription | None:
        found = self._metadata.topic(name)
        return None if found is None else TopicDescription(found.topic_id, name, len(found.partitions))

    def name_of(self, topic_id: UUID) -> str | None:
        return self._metadata.name_of(topic_id)

    def matching(self, regex: str) -> frozenset[str]:
        """Raises ApiError. The coordinators' own topics match nothing, as in the clients' own expressions."""
        self._forget_outdated()
        found = self._matched.get(regex)
        if found is None:
            found = _found(regex, self._names)
            self._remember(regex, found)
        if isinstance(found, ApiError):
            raise ApiError(found.code, found.reason)
        return found

    async def look_up(self, regexes: Collection[str]) -> None:
        """When this returns ``matching`` has all of them at hand, until the end of this turn of the loop.

        Where topics are made or deleted meanwhile it looks again: to understand an expression takes long, so never on
        the loop.
        """
        self._wanted.append(regexes)
        try:
            while unknown := self._unknown(regexes):
                for regex in unknown:
                    async with self._looking:
                        await self._look_up_one(regex)
        finally:
            self._wanted.remove(regexes)

    async def _look_up_one(self, regex: str) -> None:
        self._forget_outdated()
        if regex in self._matched:  # another group has the same
            return
        names = self._names
        found = await self._expressions.run(_found, regex, names)
        self._forget_outdated()
        if self._names is names:
            self._remember(regex, found)

    def _unknown(self, regexes: Iterable[str]) -> list[str]:
        self._forget_outdated()
        return [each for each in regexes if each not in self._matched]

    def _forget_outdated(self) -> None:
        """Most changes of topics, such as that of a leader, leave their names as they were."""
        if self._version != self.version:
            self._version = self.version
            names = frozenset(each.name for each in self._metadata.topics() if each.name not in INTERNAL_TOPICS)
            if names != self._names:
                self._names, self._matched, self._matched_bytes = names, {}, 0

    def _remember(self, regex: str, found: Found) -> None:
        """Where it is too much, what nobody is looking up is forgotten."""
        size = _weight(regex, found)
        if self._matched_bytes + size > _MOST:
            wanted = set().union(*self._wanted)
            self._matched = {each: matched for each, matched in self._matched.items() if each in wanted}
            self._matched_bytes = sum(_weight(*each) for each in self._matched.items())
        self._matched[regex] = found
        self._matched_bytes += size


def _weight(regex: str, found: Found) -> int:
    return len(regex) + _OF_A_NAME * (1 if isinstance(found, ApiError) else 1 + len(found))


def _found(regex: str, names: Iterable[str]) -> Found:
    try:
        return matching(regex, names)
    except ApiError as error:
        return ApiError(error.code, error.reason)
