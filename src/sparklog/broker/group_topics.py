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
    """What an expression matches is remembered until the topics change, for many members bring the same; not more than
    about ``_MOST`` bytes of it. One group at a time has expressions looked up.
    """

    def __init__(self, metadata: MetadataCache, expressions: Expressions) -> None:
        self._metadata = metadata
        self._expressions = expressions
        self._matched: dict[str, Found] = {}
        self._matched_version = -1
        self._matched_bytes = 0
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
            found = _found(regex, self._names())
            self._remember({regex: found})
        if isinstance(found, ApiError):
            raise ApiError(found.code, found.reason)
        return found

    async def look_up(self, regexes: Collection[str]) -> None:
        """When this returns ``matching`` has all of them at hand, until the end of this turn of the loop.

        Where topics change meanwhile it looks again: to understand an expression takes long, so never on the loop.
        """
        while self._unknown(regexes):
            async with self._looking:
                wanted, version, names = self._unknown(regexes), self.version, self._names()
                found = await self._expressions.run(_all_found, wanted, names)
                if version == self.version:
                    self._remember(found, beside=regexes)

    def _names(self) -> list[str]:
        return [each.name for each in self._metadata.topics() if each.name not in INTERNAL_TOPICS]

    def _unknown(self, regexes: Iterable[str]) -> list[str]:
        self._forget_outdated()
        return [each for each in regexes if each not in self._matched]

    def _forget_outdated(self) -> None:
        if self._matched_version != self.version:
            self._matched, self._matched_version, self._matched_bytes = {}, self.version, 0

    def _remember(self, found: dict[str, Found], beside: Collection[str] = ()) -> None:
        """Where it is too much, what is known of others than ``beside`` is forgotten."""
        if self._matched_bytes + _weight(found) > _MOST:
            self._matched = {regex: self._matched[regex] for regex in beside if regex in self._matched}
            self._matched_bytes = _weight(self._matched)
        self._matched |= found
        self._matched_bytes += _weight(found)


def _all_found(regexes: Collection[str], names: list[str]) -> dict[str, Found]:
    return {regex: _found(regex, names) for regex in regexes}


def _weight(matched: dict[str, Found]) -> int:
    return sum(len(regex) + _OF_A_NAME * _count(each) for regex, each in matched.items())


def _count(found: Found) -> int:
    return 1 if isinstance(found, ApiError) else 1 + len(found)


def _found(regex: str, names: Iterable[str]) -> Found:
    try:
        return matching(regex, names)
    except ApiError as error:
        return ApiError(error.code, error.reason)
