"""Which member of a group commits: a consumer tells it, a transactional producer sends it with that one's offsets."""

from __future__ import annotations

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """What a consumer's ``consumer_group_metadata()`` gives, or just the group."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
