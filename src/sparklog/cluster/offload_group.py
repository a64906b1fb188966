"""The consumer group by whose committed offsets an offload says how far it has come.

A commit's metadata tells which topic the offset is of, by its id, and where the records are. An offset without that is
not an offload's: a topic that was deleted and made again under its name has other records at the same offsets.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

GROUP_PREFIX = "sparklog-offload."
"""Of the groups' names, where a topic does not say another."""
_MARK = "sparklog-offload"
_LONGEST_PLACE = 512
"""Characters: brokers keep 4 KB of metadata."""


def group_of(topic: str, setting: str) -> str:
    """The group; ``setting`` is the topic's ``sparklog.offload.group``."""
    return setting or f"{GROUP_PREFIX}{topic}"


class OffloadNote(NamedTuple):
    """What the metadata of a commit says."""

    topic_id: UUID
    place: str
    """Where the records are, in words."""

    def to_metadata(self) -> str:
        """The text that is committed."""
        return f"{_MARK} {self.topic_id} {_short(self.place)}"

    @classmethod
    def from_metadata(cls, text: str) -> OffloadNote | None:
        """None for a commit of something else."""
        mark, _, rest = text.partition(" ")
        topic_id, _, place = rest.partition(" ")
        try:
            return cls(UUID(topic_id), place) if mark == _MARK else None
        except ValueError:
            return None

    def is_of(self, place: str) -> bool:
        """Whether it tells of ``place``."""
        return self.place == _short(place)


def _short(place: str) -> str:
    """A longer one ends with its hash: places that differ do so in the metadata too."""
    if len(place) <= _LONGEST_PLACE:
        return place
    digest = sha256(place.encode()).hexdigest()
    return f"{place[: _LONGEST_PLACE - len(digest) - 1]} {digest}"
