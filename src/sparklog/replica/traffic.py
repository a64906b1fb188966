"""What went in and out of the topics of which this broker holds partitions.

All partitions of a topic add to one ``TopicTraffic``. It ends with the last of them here, and what it has counted
stays in ``Traffic.total``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

FIELDS: Final = (
    "records_in",
    "bytes_in",
    "bytes_out",
    "produces",
    "fetches",
    "failed_produces",
    "failed_fetches",
    "bytes_rejected",
    "replicated_in",
    "replicated_out",
    "converted_in",
    "converted_out",
)


class TopicTraffic:
    """Counted since the first partition of the topic came here."""

    __slots__ = (*FIELDS, "partitions")

    def __init__(self) -> None:
        self.partitions = 0
        """How many of the topic are here."""
        self.records_in = 0
        """Appended as leader."""
        self.bytes_in = 0
        """Of batches that were appended as leader, as they were sent."""
        self.bytes_out = 0
        """Of records that consumers were given."""
        self.produces = 0
        """Appends that were asked for, of single partitions."""
        self.fetches = 0
        """Reads of single partitions."""
        self.failed_produces = 0
        """Appends that the disk refused."""
        self.failed_fetches = 0
        """Reads that the disk refused, or that met with damage."""
        self.bytes_rejected = 0
        """Of batches that were larger than the topic's ``max.message.bytes``, or than a segment."""
        self.replicated_in = 0
        """Bytes that were copied from leaders."""
        self.replicated_out = 0
        """Bytes of records that followers were given."""
        self.converted_in = 0
        """Records that came in message sets, and were appended as leader."""
        self.converted_out = 0
        """Records of batches that were made message sets."""

    def add(self, other: TopicTraffic) -> None:
        """Count what the other has counted too."""
        for name in FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """All topics of one broker."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTraffic] = {}
        self._gone = TopicTraffic()

    def enter(self, topic: str) -> TopicTraffic:
        """One more partition of the topic is here."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicTraffic()
        found.partitions += 1
        return found

    def leave(self, topic: str) -> None:
        """One of the topic's partitions is here no longer."""
        found = self._topics[topic]
        found.partitions -= 1
        if not found.partitions:
            self._gone.add(self._topics.pop(topic))

    def send(self, topic: str, size: int, *, to_follower: bool) -> None:
        """So many bytes of records of the topic are part of an answer."""
        found = self._topics.get(topic, self._gone)
        if to_follower:
            found.replicated_out += size
        else:
            found.bytes_out += size

    def reject(self, topic: str, size: int) -> None:
        """A batch of so many bytes is too large for the topic."""
        self._topics.get(topic, self._gone).bytes_rejected += size

    def convert(self, topic: str, records: int, *, is_fetch: bool) -> None:
        """So many records of the topic came from a client from before Kafka 0.11, or go to one."""
        found = self._topics.get(topic, self._gone)
        if is_fetch:
            found.converted_out += records
        else:
            found.converted_in += records

    def topics(self) -> Iterator[tuple[str, TopicTraffic]]:
        """Those that are here, by name."""
        return iter(sorted(self._topics.items()))

    def total(self) -> TopicTraffic:
        """Of all topics that are, or have been, here."""
        total = TopicTraffic()
        for each in (self._gone, *self._topics.values()):
            total.add(each)
        return total
