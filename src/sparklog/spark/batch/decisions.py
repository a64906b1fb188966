"""Which replicas of a partition are cleaned by one decision, and up to where.

A decision is a map of each key's last offset. It holds for a replica if the section that was put into the map covers
all that the replica has not cleaned yet, and ends where the replica may be cleaned to, or before. So the map is made of
the replica that has cleaned least, up to where one of its segments begins. Tombstones show why: one that it has not
cleaned yet is not missing there, as it may be in a replica that has.

A replica that is far behind does not hold back the others: it gets a decision of its own.

By version every replica gets its own. A map is then of the whole log, and what a replica has cleaned counts too: one of
which a tombstone is gone already, or whose log begins later, would let an old record win in one that still has a newer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.client.cluster.compaction_grants import Grant
from sparklog.compaction.split import Target, limited


@dataclass(frozen=True, slots=True)
class Decision:
    """Some replicas of one partition."""

    source: Grant
    """Its dirty section is put into the map."""
    grants: tuple[Grant, ...]
    end: int
    """All are cleaned up to here, if the map takes in so many keys."""

    @property
    def indexed(self) -> Target:
        """What is put into the map."""
        return limited(self.source.target, self.source.target.task.first_dirty, self.end)

    @property
    def indexed_bytes(self) -> int:
        """About how much that is."""
        start = self.source.target.task.index_start
        return sum(each.size for each in self.source.target.task.segments if start <= each.base_offset < self.end)


def decide(grants: Sequence[Grant]) -> list[Decision]:
    """Decisions for all replicas of one partition that are to be cleaned."""
    left, decisions = list(grants), []
    while left:
        found = _decision(left)
        decisions.append(found)
        left = [each for each in left if each not in found.grants]
    return decisions


def _decision(grants: Sequence[Grant]) -> Decision:
    """Those that may be cleaned about as far as the foremost of them."""
    foremost = max(grants, key=lambda each: each.target.task.first_uncleanable)
    task = foremost.target.task
    if task.versions is not None:
        return Decision(foremost, (foremost,), task.first_uncleanable)
    near = (task.first_dirty + task.first_uncleanable) // 2
    chosen = [each for each in grants if each.target.task.first_uncleanable > near]
    source = min(chosen, key=lambda each: (each.target.task.first_dirty, each.broker))
    most = min(each.target.task.first_uncleanable for each in chosen)
    end = max((each.base_offset for each in source.target.task.segments if each.base_offset <= most), default=0)
    fit = tuple(each for each in chosen if each.target.task.first_dirty < end)
    if source not in fit or foremost not in fit:
        return Decision(foremost, (foremost,), task.first_uncleanable)
    return Decision(source, fit, end)
