"""Moving a group between ZooKeeper and the brokers' coordinator: its offsets are copied.

Invariants:

- Nothing is deleted: the offsets that a group leaves behind stay where they are.
- Nothing is copied while the group has a member on either side. A coordinator refuses offsets of a group with members
  itself; ZooKeeper is looked at before and after.
- No offset goes back unless that is asked for: records would be read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from sparklog.client.admin.admin import Admin
from sparklog.client.zookeeper import group
from sparklog.client.zookeeper.registry import Claim, GroupRegistry
from sparklog.errors import ApiError, CoordinationError, ErrorCode
from sparklog.structs import TopicPartition

_SHOWN = 3


class Side(Enum):
    """Where the offsets of a group are."""

    BROKERS = "brokers"
    ZOOKEEPER = "zookeeper"


class Move(NamedTuple):
    """An offset to be copied: what stands on the other side now (None: nothing), and what is to."""

    tp: TopicPartition
    before: int | None
    after: int

    @property
    def goes_back(self) -> bool:
        return self.before is not None and self.before > self.after


class Plan(NamedTuple):
    """What would be copied, and the partitions that exist no more, whose offsets stay behind."""

    moves: tuple[Move, ...]
    gone: tuple[TopicPartition, ...]

    @property
    def going_back(self) -> tuple[Move, ...]:
        return tuple(each for each in self.moves if each.goes_back)


def plan_of(
    source: Mapping[TopicPartition, int], target: Mapping[TopicPartition, int], existing: set[TopicPartition]
) -> Plan:
    """What is to be copied for the target to have what the source has."""
    moves = [
        Move(tp, target.get(tp), offset)
        for tp, offset in sorted(source.items())
        if tp in existing and target.get(tp) != offset
    ]
    return Plan(tuple(moves), tuple(sorted(source.keys() - existing)))


class Migration:
    """Of one group, by an administrator of the brokers and a session with ZooKeeper."""

    def __init__(self, group_id: str, admin: Admin, registry: GroupRegistry) -> None:
        self._group, self._admin, self._registry = group_id, admin, registry

    def plan(self, to: Side) -> Plan:
        """What would be copied. Raises ApiError(NON_EMPTY_GROUP) for a group with members, and ApiError(
        GROUP_ID_NOT_FOUND) for one that has no offsets to copy.
        """
        self._require_no_members()
        sides = {Side.BROKERS: self._in_brokers(), Side.ZOOKEEPER: self._in_zookeeper()}
        target = sides.pop(to)
        ((side, source),) = sides.items()
        if not source:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {self._group!r} has no offsets in {side.value}")
        homes = self._homes(source)
        existing = {TopicPartition(topic, partition) for topic, found in homes.items() for partition in found}
        return plan_of(source, target, existing)

    def carry_out(self, plan: Plan, to: Side, *, may_go_back: bool = False) -> None:
        """Copy. Raises ApiError(NON_EMPTY_GROUP) where a member came meanwhile, ApiError(INVALID_REQUEST) for offsets
        that would go back, CoordinationError where the plan is not of now any more, or somebody else writes meanwhile.
        """
        if plan.going_back and not may_go_back:
            raise ApiError(ErrorCode.INVALID_REQUEST, self._why_not_back(plan, to))
        if self.plan(to) != plan:
            raise CoordinationError(
                f"group {self._group!r} has read on since its offsets were looked at: migrate again"
            )
        if to is Side.BROKERS and plan.moves:
            self._admin.alter_group_offsets(self._group, {each.tp: each.after for each in plan.moves})
        elif plan.moves:
            self._write_to_zookeeper(plan)
        self._require_no_members("a member joined while the offsets were copied: stop it, and migrate again: ")
        found = self._in_brokers() if to is Side.BROKERS else self._in_zookeeper()
        if wrong := [each.tp for each in plan.moves if found.get(each.tp) != each.after]:
            raise CoordinationError(f"the offset of {wrong[0]} is not what was copied: somebody else writes it")

    def _why_not_back(self, plan: Plan, to: Side) -> str:
        examples = ", ".join(f"{each.tp} from {each.before} to {each.after}" for each in plan.going_back[:_SHOWN])
        return (
            f"{len(plan.going_back)} offsets would go back in {to.value} ({examples}), and their records would be read"
            " again; nothing was copied. Say --back if that is meant"
        )

    def _require_no_members(self, why: str = "") -> None:
        ids = self._registry.member_ids()
        hosted = self._admin.describe_groups([self._group])[self._group].members
        if ids or hosted:
            where = f"in ZooKeeper: {', '.join(ids[:_SHOWN])}" if ids else f"at the brokers: {hosted[0].member_id}"
            raise ApiError(
                ErrorCode.NON_EMPTY_GROUP, f"{why}group {self._group!r} has {len(ids) or len(hosted)} members {where}"
            )

    def _in_brokers(self) -> dict[TopicPartition, int]:
        return {tp: each.offset for tp, each in self._admin.group_offsets(self._group).items()}

    def _in_zookeeper(self) -> dict[TopicPartition, int]:
        claims = [
            Claim(TopicPartition(topic, partition), "", str(partition))
            for topic in self._registry.topics_with_offsets()
            for partition in self._registry.stored_partitions(topic)
        ]
        found = self._registry.offsets(claims)
        return {claim.tp: stored.offset for claim, stored in found.items() if stored.offset is not None}

    def _homes(self, partitions: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
        return {topic: self._registry.homes(topic, lambda: None) for topic in {tp.topic for tp in partitions}}

    def _write_to_zookeeper(self, plan: Plan) -> None:
        offsets = {each.tp: each.after for each in plan.moves}
        homes = self._homes(offsets)
        claims = [
            Claim(
                tp, "", group.partition_name(self._registry.layout, homes[tp.topic].get(tp.partition, 0), tp.partition)
            )
            for tp in offsets
        ]
        known = self._registry.offsets(claims)
        stored = self._registry.store({claim: (offsets[claim.tp], known[claim]) for claim in claims})
        if missing := [claim.tp for claim in claims if claim not in stored]:
            raise CoordinationError(f"the offset of {missing[0]} was written by somebody else meanwhile; migrate again")
