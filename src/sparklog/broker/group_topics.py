"""The cluster's topics as the groups of the consumer protocol see them."""

from __future__ import annotations

from uuid import UUID

from sparklog.broker.metadata_cache import MetadataCache
from sparklog.broker.topics import INTERNAL_TOPICS
from sparklog.group.consumer.topics import TopicDescription, matching


class GroupTopics:
    """What an expression matches is remembered until the topics change: many members bring the same."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._matched: dict[str, frozenset[str]] = {}
        self._matched_version = -1

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
        if self._matched_version != self.version:
            self._matched, self._matched_version = {}, self.version
        if regex not in self._matched:
            names = (each.name for each in self._metadata.topics() if each.name not in INTERNAL_TOPICS)
            self._matched[regex] = matching(regex, names)
        return self._matched[regex]
