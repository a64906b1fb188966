"""ConsumerMachine: what a group of the consumer protocol does with each heartbeat, and when time is up. Pure.

A method takes a group and leaves it as it is; what is to become of it comes back in a Decision. What may not be is
refused with an ApiError. Groups have any number of members and topics, so a decision is made in steps. The call itself
refuses, and looks at what the cluster has; its steps may be taken later, and the group that they lead to is seen by
nobody before the last. Written after Kafka 3.9's ``GroupMetadataManager``; where it differs, and why:
``docs/adr/0009-the-consumer-protocol.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from sparklog.errors import ApiError, ErrorCode
from sparklog.group.consumer.assignment import NONE, Partitions
from sparklog.group.consumer.assignors import ASSIGNORS
from sparklog.group.consumer.group import ConsumerGroup, View
from sparklog.group.consumer.member import JOIN_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember
from sparklog.group.consumer.reconciliation import reconcile
from sparklog.group.consumer.requests import UNCHANGED_MS, ConsumerAnswer, ConsumerHeartbeat, Decision
from sparklog.group.consumer.topics import Topics
from sparklog.protocol.slices import Steps, done, then


class ConsumerSettings(NamedTuple):
    """The broker's ``group.consumer.*`` settings; ``assignors`` by name, the first is the default."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = (1 << 31) - 1
    assignors: tuple[str, ...] = ("uniform", "range")


class ConsumerMachine:
    """One for all groups. ``new_id`` gives a string never given before."""

    def __init__(self, settings: ConsumerSettings, new_id: Callable[[], str]) -> None:
        self.settings = settings
        self._new_id = new_id

    def check(self, request: ConsumerHeartbeat) -> None:
        """Raises ApiError for what no group would take."""
        complaint = _complaint(request)
        if complaint is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, complaint)
        offered = self.settings.assignors
        if request.assignor is not None and request.assignor not in offered:
            raise ApiError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"there is no assignor {request.assignor}; there are {', '.join(offered)}",
            )

    def heartbeat(self, group: ConsumerGroup, request: ConsumerHeartbeat, topics: Topics) -> Steps[Decision]:
        """The member joins or is alive: it learns its epoch, and what it may use if that changed. Raises ApiError."""
        if request.epoch == JOIN_EPOCH:
            self.check_room(group, request.member_id, request.instance_id)
        if request.regex:
            topics.matching(request.regex)
        draft = group.copy()
        member = self._claim(draft, request)
        settling = self.settle(draft, member, request.update(member), topics, request.owned)
        return then(
            settling,
            lambda moved: Decision(
                draft, self._answer(moved, tell=request.is_full or moved.assigned != member.assigned)
            ),
        )

    def _answer(self, member: ConsumerMember, *, tell: bool) -> ConsumerAnswer:
        return ConsumerAnswer(
            ErrorCode.NONE,
            member_id=member.member_id,
            epoch=member.epoch,
            heartbeat_interval_ms=self.settings.heartbeat_interval_ms,
            assigned=member.assigned if tell else None,
        )

    def settle(
        self,
        draft: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        topics: Topics,
        owned: Partitions | None,
    ) -> Steps[ConsumerMember]:
        """Take in a member's news, aim anew if they or the topics' call for it, and move the member a step."""
        draft.put(updated)
        return self._move(draft, updated, draft.view(topics), owned, bump=not updated.wants_as(member))

    def _move(
        self, draft: ConsumerGroup, updated: ConsumerMember, view: View, owned: Partitions | None, *, bump: bool
    ) -> Steps[ConsumerMember]:
        yield from self._refresh(draft, view, bump=bump)
        known, target = draft.members[updated.member_id], draft.target.get(updated.member_id, NONE)
        moved = reconcile(known, draft.assignment_epoch, target, draft.owners, owned)
        draft.put(moved)
        return moved

    def check_room(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        """A static member that comes back has its place; Kafka refuses it when the group is full.

        Raises ApiError(GROUP_MAX_SIZE_REACHED).
        """
        known = member_id in group.members or instance_id in group.instances
        if len(group.members) >= self.settings.max_size and not known:
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {self.settings.max_size} members already")

    def _claim(self, draft: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
        """The member that the request speaks for; one that joins is made, or takes its own old place."""
        if request.instance_id is not None:
            return self._claim_static(draft, request, request.instance_id)
        member = draft.members.get(request.member_id)
        if member is None:
            if request.epoch != JOIN_EPOCH:
                raise unknown_member(request.member_id)
            return ConsumerMember(request.member_id or self._new_id())
        _check_epoch(member, request)
        return member

    def _claim_static(self, draft: ConsumerGroup, request: ConsumerHeartbeat, instance_id: str) -> ConsumerMember:
        holder = draft.static_member(instance_id)
        if request.epoch != JOIN_EPOCH:
            member = expect_static(holder, request.member_id, instance_id)
            _check_epoch(member, request)
            return member
        if holder is None:
            return draft.members.get(request.member_id) or ConsumerMember(request.member_id or self._new_id())
        if holder.member_id == request.member_id:
            return holder
        if holder.epoch != LEAVE_STATIC_EPOCH:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID, f"{instance_id} is held by {holder.member_id}, which has not left"
            )
        return replace_static(draft, holder, request.member_id or self._new_id())

    def leave(self, group: ConsumerGroup, request: ConsumerHeartbeat, topics: Topics) -> Steps[Decision]:
        """The member goes; a static one that says that it will be back (-2) keeps its place for a session timeout."""
        member = self._leaving(group, request)
        answer = ConsumerAnswer(ErrorCode.NONE, member_id=request.member_id, epoch=request.epoch)
        if request.epoch != LEAVE_STATIC_EPOCH or request.instance_id is None:
            removing = self.remove(group, [member.member_id], topics)
            return then(removing, lambda after: Decision(after, answer))
        draft = group.copy()
        draft.put(replace(member, epoch=LEAVE_STATIC_EPOCH, revoking=NONE))
        return done(Decision(draft, answer))

    def _leaving(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
        if request.instance_id is not None:
            return expect_static(group.static_member(request.instance_id), request.member_id, request.instance_id)
        if request.member_id not in group.members:
            raise unknown_member(request.member_id)
        return group.members[request.member_id]

    def remove(self, group: ConsumerGroup, member_ids: Iterable[str], topics: Topics) -> Steps[ConsumerGroup]:
        """The group without these members. The next heartbeat decides which members get their partitions."""
        draft = group.copy()
        for member_id in member_ids:
            draft.remove(member_id)
        return self._without_them(draft, draft.view(topics))

    def _without_them(self, draft: ConsumerGroup, view: View) -> Steps[ConsumerGroup]:
        draft.topics = yield from draft.describe_topics(view)
        draft.epoch += 1
        return draft

    def _refresh(self, draft: ConsumerGroup, view: View, *, bump: bool) -> Steps[None]:
        """Make a new target if the group's epoch is ahead of the last, or must go up: for ``bump``, or for topics."""
        if bump or draft.topics_version != view.version:
            described = yield from draft.describe_topics(view)
            bump = bump or described != draft.topics
            draft.topics, draft.topics_version = described, view.version
        draft.epoch += bump
        if draft.epoch > draft.assignment_epoch:
            assign = ASSIGNORS[draft.assignor(self.settings.assignors)]
            draft.target = yield from assign((yield from draft.spec(view)))
            draft.assignment_epoch = draft.epoch

    def quiet_answer(self, group: ConsumerGroup, request: ConsumerHeartbeat, topics: Topics) -> ConsumerAnswer | None:
        """What ``heartbeat`` would answer, if the request brings and finds nothing new; None if something changes.

        It costs what the request says, and of a member that is on its way what it has and shall have: nothing that
        grows with the group.
        """
        member = group.members.get(request.member_id)
        if (
            member is None
            or request.epoch != member.epoch
            or group.epoch != group.assignment_epoch
            or group.topics_version != topics.version
            or request.instance_id not in (None, member.instance_id)
            or request.update(member) != member
        ):
            return None
        target = group.target.get(member.member_id, NONE)
        if reconcile(member, group.assignment_epoch, target, group.owners, request.owned) is not member:
            return None
        return self._answer(member, tell=request.is_full)

    def commit_error(
        self, group: ConsumerGroup, member_id: str, epoch: int, *, knows_epochs: bool, in_transaction: bool
    ) -> ErrorCode:
        """Whether these offsets may be committed: by a member in its epoch, or by anyone while there are no members.

        ``knows_epochs``: the request is of a version that can bear a member's epoch.
        """
        if epoch < 0 and not group.members:
            return ErrorCode.NONE
        member = group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is None and not (knows_epochs or in_transaction):
            return ErrorCode.UNSUPPORTED_VERSION
        error = _epoch_error(member, epoch)
        return ErrorCode.ILLEGAL_GENERATION if in_transaction and error is not ErrorCode.NONE else error

    def fetch_error(self, group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether offsets may be told: to a client that names no member, or to a member in its epoch."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = group.members.get(member_id or "")
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else _epoch_error(member, epoch)


def unknown_member(member_id: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member of the group")


def expect_static(holder: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """The holder of the instance id, if the member is it. Raises ApiError."""
    if holder is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}")
    if holder.member_id != member_id:
        raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} belongs to {holder.member_id}, not to {member_id}")
    return holder


def replace_static(draft: ConsumerGroup, holder: ConsumerMember, member_id: str) -> ConsumerMember:
    """Give the holder's place, partitions and target to its new id."""
    target = draft.target.get(holder.member_id, NONE)
    draft.remove(holder.member_id)
    member = replace(holder, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    draft.put(member)
    draft.target[member_id] = target
    return member


def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    """Raises ApiError (FENCED_MEMBER_EPOCH). A member that joins anew holds nothing: its old epoch does not matter."""
    if request.epoch in (JOIN_EPOCH, member.epoch):
        return
    if request.epoch == member.previous_epoch and request.owned is not None and request.owned <= member.assigned:
        return  # the answer with the new epoch was lost
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"{member.member_id} says epoch {request.epoch} and is in {member.epoch}; it must let go of all and join anew",
    )


def _epoch_error(member: ConsumerMember, epoch: int) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _complaint(request: ConsumerHeartbeat) -> str | None:
    """What is wrong with the request, if anything."""
    named = {"GroupId": request.group_id, "InstanceId": request.instance_id, "RackId": request.rack_id}
    for name, text in named.items():
        if text is not None and not text.strip():
            return f"{name} can't be empty"
    if not request.member_id.strip() and (request.brings_id or request.epoch != JOIN_EPOCH):
        return "MemberId can't be empty"
    if request.epoch == JOIN_EPOCH:
        return _join_complaint(request)
    if request.epoch < LEAVE_STATIC_EPOCH:
        return "MemberEpoch is invalid"
    if request.epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        return "InstanceId can't be null"
    return None


def _join_complaint(request: ConsumerHeartbeat) -> str | None:
    if request.rebalance_timeout_ms == UNCHANGED_MS:
        return "RebalanceTimeoutMs must be provided in first request"
    if request.owned is None or request.owned:
        return "TopicPartitions must be empty when (re-)joining"
    if request.topics is None and request.regex is None:
        return "SubscribedTopicNames or SubscribedTopicRegex must be set in first request"
    return None
