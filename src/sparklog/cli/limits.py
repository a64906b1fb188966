"""What a topic takes of a line, so that one that it will never take is refused before it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparklog.cli.connection import administering
from sparklog.errors import ApiError, ErrorCode, SparklogError

if TYPE_CHECKING:
    from sparklog.client.cluster.metadata import ClusterMetadata

_ENVELOPE = 1024
"""Bytes of a request around its batch, and more than they ever are with one topic."""


class Limit(NamedTuple):
    """So many bytes of a batch; ``remedy`` is what lets a larger one in."""

    size: int
    remedy: str


NO_LIMIT = Limit(1 << 30, "no setting changes that")
"""What a record can hold, and a line that is read."""


class LineRefused(ApiError):
    """A line that the topic will never take; ``row`` is its place in the block that it came with, from 0."""

    def __init__(self, code: ErrorCode, row: int, text: str) -> None:
        super().__init__(code, text)
        self.row = row


class TopicLimits:
    """The settings of a topic that say which records it takes, as they are when they are asked for.

    What cannot be asked limits nothing: then the broker's answer counts.
    """

    def __init__(self, cluster: ClusterMetadata, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self.needs_keys = False
        self.batch = NO_LIMIT
        self.ask()

    def ask(self, batch_size: int = 0) -> None:
        """Ask again: a limit may have been raised since. For a large batch the largest request counts too."""
        try:
            with administering(self._cluster) as admin:
                topic = {each.name: each.value or "" for each in admin.topic_configs(self._topic)}
                broker: dict[str, str] = {}
                if batch_size > self._cluster.config.max_request_size:
                    one = min(admin.describe_cluster().brokers)
                    broker = {each.name: each.value or "" for each in admin.broker_configs(one)}
        except SparklogError:
            return
        self.needs_keys = "compact" in topic.get("cleanup.policy", "")
        own = _limit(topic, "max.message.bytes", "raise the topic's max.message.bytes")
        of_request = _limit(broker, "socket.request.max.bytes", "raise the brokers' socket.request.max.bytes")
        self.batch = min(own, of_request._replace(size=of_request.size - _ENVELOPE))


def _limit(settings: dict[str, str], name: str, remedy: str) -> Limit:
    text = settings.get(name, "")
    return min(Limit(int(text), remedy), NO_LIMIT) if text.isdecimal() else NO_LIMIT
