"""Who in a group commits: told by a consumer, sent by a transactional producer along with that consumer's offsets."""

from __future__ import annotations

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """What a consumer's ``consumer_group_metadata()`` gives, or just the group."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
