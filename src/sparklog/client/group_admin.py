"""Groups and the offsets that they stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from sparklog.client.admin_base import AdminBase, by_topic, error_of
from sparklog.client.session import Build, Check, CoordinatorKind
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    Message,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from sparklog.structs import TopicPartition

_BY_NAME = 9
"""The newest OffsetFetch and OffsetCommit in which topics go by their names."""
_CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
_DeleteTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic


class GroupListing(NamedTuple):
    """A group as lists show it; ``state`` and ``type`` are empty where the broker does not tell."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupMember(NamedTuple):
    """A member. ``metadata`` and ``assignment`` are bytes in the form of the group's protocol."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A classic group: its state by Kafka's name, the protocol that it chose, its members."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]


class StoredOffset(NamedTuple):
    """What a group stored for a partition: the next offset that it will read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupAdmin(AdminBase):
    """Asks each group's coordinator."""

    async def list_groups(self, *, states: Collection[str] = ()) -> list[GroupListing]:
        """Every group of the cluster, by name; of certain states only, if any are given."""

        def build(version: int) -> Message:
            if states and version < 4:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "a broker cannot list groups by their states")
            return ListGroupsRequest(version=version, states_filter=list(states), types_filter=[])

        answers = await self._ask_every_broker(ApiKey.LIST_GROUPS, build)
        return sorted(
            GroupListing(
                each.group_id,
                each.protocol_type,
                getattr(each, "group_state", "") or "",
                getattr(each, "group_type", "") or "",
            )
            for answer in answers.values()
            for each in answer.groups
        )

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """These groups; one that nobody knows has the state Dead, or raises GROUP_ID_NOT_FOUND with newer brokers."""
        return {group_id: await self._describe_group(group_id) for group_id in group_ids}

    async def _describe_group(self, group_id: str) -> GroupDescription:
        def check(answer: Message) -> None:
            error = error_of(answer.groups[0], f"group {group_id!r}")
            if error is not None:
                raise error

        answer = await self._ask_coordinator(
            group_id,
            ApiKey.DESCRIBE_GROUPS,
            lambda version: DescribeGroupsRequest(
                version=version, groups=[group_id], include_authorized_operations=False
            ),
            check,
        )
        found = answer.groups[0]
        members = tuple(
            GroupMember(
                each.member_id,
                getattr(each, "group_instance_id", None),
                each.client_id,
                each.client_host,
                bytes(each.member_metadata),
                bytes(each.member_assignment),
            )
            for each in found.members
        )
        return GroupDescription(group_id, found.group_state, found.protocol_type, found.protocol_data, members)

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete them and their offsets, or raise the first error; a group with members is not deleted."""
        for group_id in group_ids:
            await self._ask_coordinator(
                group_id,
                ApiKey.DELETE_GROUPS,
                lambda version, group_id=group_id: DeleteGroupsRequest(version=version, groups_names=[group_id]),  # type: ignore[misc]
                lambda answer, group_id=group_id: _raise_any(answer.results, f"group {group_id!r}"),  # type: ignore[misc]
            )

    async def group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, StoredOffset]:
        """What a group stored, for these partitions or all; those for which it stored nothing are left out."""
        asked = None if partitions is None else by_topic(partitions)

        def check(answer: Message) -> None:
            for each in _fetched(answer):
                _raise_any([each] if hasattr(each, "error_code") else [], f"group {group_id!r}")
                for topic in each.topics:
                    _raise_any(topic.partitions, f"group {group_id!r}, topic {topic.name!r}")

        answer = await self._ask_coordinator(
            group_id, ApiKey.OFFSET_FETCH, lambda version: _fetch_request(version, group_id, asked), check, _BY_NAME
        )
        return {
            TopicPartition(topic.name, each.partition_index): StoredOffset(
                each.committed_offset, getattr(each, "committed_leader_epoch", -1), each.metadata or ""
            )
            for found in _fetched(answer)
            for topic in found.topics
            for each in topic.partitions
            if each.committed_offset >= 0
        }

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int | StoredOffset]) -> None:
        """Store these offsets for a group without members, or raise the first error."""
        stored = {tp: StoredOffset(each) if isinstance(each, int) else each for tp, each in offsets.items()}
        await self._ask_coordinator(
            group_id,
            ApiKey.OFFSET_COMMIT,
            lambda version: _commit_request(version, group_id, stored),
            lambda answer: _check_topics(answer, group_id),
            _BY_NAME,
        )

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget these offsets, or raise the first error; those of topics to which the group subscribes stay."""
        topics = [
            _DeleteTopic(
                name=name,
                partitions=[_DeleteTopic.OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
            )
            for name, numbers in by_topic(partitions).items()
        ]
        await self._ask_coordinator(
            group_id,
            ApiKey.OFFSET_DELETE,
            lambda version: OffsetDeleteRequest(version=version, group_id=group_id, topics=topics),
            lambda answer: _check_topics(answer, group_id),
        )

    async def _ask_coordinator(
        self, group_id: str, api: ApiKey, build: Build, check: Check, ceiling: int | None = None
    ) -> Message:
        return await self._session.coordinator_request(
            CoordinatorKind.GROUP, group_id, api, build, check=check, ceiling=ceiling
        )


def _raise_any(results: Iterable[Message], what: str) -> None:
    for each in results:
        error = error_of(each, what)
        if error is not None:
            raise error


def _check_topics(answer: Message, group_id: str) -> None:
    if getattr(answer, "error_code", None):
        _raise_any([answer], f"group {group_id!r}")
    for topic in answer.topics:
        _raise_any(topic.partitions, f"group {group_id!r}, topic {topic.name!r}")


def _fetched(answer: Message) -> list[Message]:
    """The groups of an answer, or the answer itself in the versions that hold one group."""
    return list(answer.groups) if getattr(answer, "groups", None) else [answer]


def _fetch_request(version: int, group_id: str, asked: Mapping[str, list[int]] | None) -> Message:
    if version < 8:
        form = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = None if asked is None else [form(name=name, partition_indexes=each) for name, each in asked.items()]
        return OffsetFetchRequest(version=version, group_id=group_id, topics=topics, require_stable=False)
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    inner = group.OffsetFetchRequestTopics
    wanted = None if asked is None else [inner(name=name, partition_indexes=each) for name, each in asked.items()]
    groups = [group(group_id=group_id, member_id=None, member_epoch=-1, topics=wanted)]
    return OffsetFetchRequest(version=version, groups=groups, require_stable=False)


def _commit_request(version: int, group_id: str, offsets: Mapping[TopicPartition, StoredOffset]) -> Message:
    topics = [
        _CommitTopic(
            name=name,
            partitions=[
                _CommitTopic.OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offsets[TopicPartition(name, number)].offset,
                    committed_leader_epoch=offsets[TopicPartition(name, number)].leader_epoch,
                    committed_metadata=offsets[TopicPartition(name, number)].metadata,
                )
                for number in numbers
            ],
        )
        for name, numbers in by_topic(offsets).items()
    ]
    return OffsetCommitRequest(
        version=version,
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=topics,
    )
