"""Until when each member of a group must have done something. In memory only: after a load all begin anew."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.member import MemberState

_GO_AT_ONCE = 100


@dataclass(slots=True)
class Timers:
    """Milliseconds on a clock that never goes back, by member id. A member that misses one is put out of the group.

    ``sessions``: be heard from. ``revocations``: give up what it must not have any more. ``joins`` and ``syncs`` are
    for members of the classic protocol: join again after having been told to, and fetch the assignment after that.
    """

    sessions: dict[str, int] = field(default_factory=dict)
    revocations: dict[str, int] = field(default_factory=dict)
    joins: dict[str, int] = field(default_factory=dict)
    syncs: dict[str, int] = field(default_factory=dict)
    at_once: int = _GO_AT_ONCE
    """So many members are put out together: one batch has all that this changes, and must not be too large."""

    def follow(self, before: ConsumerGroup | None, after: ConsumerGroup, now_ms: int) -> None:
        """The group changed: a member that must revoke has its rebalance timeout from now on; one that left none."""
        known = before.members if before else {}
        for member_id in known.keys() - after.members.keys():
            for deadlines in (self.sessions, self.revocations, self.joins, self.syncs):
                deadlines.pop(member_id, None)
        for member_id, member in after.members.items():
            old = known.get(member_id)
            if old is not None and old.progress == member.progress and old.classic == member.classic:
                continue
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None and member.epoch >= 0:
                self.revocations[member_id] = now_ms + member.rebalance_timeout_ms
            else:
                self.revocations.pop(member_id, None)

    def missed(self, now_ms: int) -> list[str]:
        """The members whose time is up."""
        every = (self.sessions, self.revocations, self.joins, self.syncs)
        return sorted({member_id for each in every for member_id, at_ms in each.items() if at_ms <= now_ms})

    def put_out(self, count: int, *, is_done: bool) -> None:
        """``count`` members were put out together, or could not be."""
        self.at_once = _GO_AT_ONCE if is_done else max(count // 2, 1)

    def next_ms(self) -> int | None:
        every = (self.sessions, self.revocations, self.joins, self.syncs)
        return min((at_ms for each in every for at_ms in each.values()), default=None)
