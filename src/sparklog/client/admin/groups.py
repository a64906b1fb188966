"""Groups and the offsets that they stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import uuid4

from sparklog.client.admin.base import AdminBase, raise_error, raise_first
from sparklog.client.cluster.arguments import checked_names, checked_partitions
from sparklog.client.cluster.session import Build, Check, CoordinatorKind
from sparklog.client.consumer.group.committed import OffsetAndMetadata, Offsets
from sparklog.client.consumer.group.membership import Generation
from sparklog.client.consumer.group.offset_messages import (
    LAST_VERSION_BY_NAME,
    Asker,
    commit_request,
    fetch_request,
    fetched_offsets,
)
from sparklog.errors import ApiError, ErrorCode, ProtocolError, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    A,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchResponse,
)
from sparklog.protocol.subscription import PROTOCOL_TYPE, decode_assignment
from sparklog.structs import BrokerId, TopicPartition, by_topic

_DEAD = "Dead"
"""The state in which a coordinator describes a group that it does not know."""
_DeleteTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic


class GroupListing(NamedTuple):
    """A group as lists show it; ``state`` and ``type`` are empty where the broker does not tell."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupMember(NamedTuple):
    """A member. ``metadata`` and ``assignment`` are bytes in the form of the group's protocol.

    ``partitions`` are those that it holds, where the members are consumers.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    partitions: tuple[TopicPartition, ...] = ()


class GroupDescription(NamedTuple):
    """A group: its state by Kafka's name, the assignor that it chose (``protocol``), its members."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]


class GroupAdmin(AdminBase):
    """Asks each group's coordinator."""

    async def list_groups(self, *, states: Collection[str] = ()) -> list[GroupListing]:
        """Every group of the cluster, by name; of certain states only, if any are given."""
        answers = await self._ask_every_broker(ApiKey.LIST_GROUPS, _list_request(checked_names(states, "states")))
        return _listings(answers.values())

    async def reachable_groups(
        self, *, states: Collection[str] = (), timeout: float = 5.0
    ) -> tuple[list[GroupListing], dict[BrokerId, SparklogError]]:
        """The groups that ``list_groups`` finds at the brokers that answer within ``timeout`` seconds, and why the
        others do not: the groups that these coordinate are missing."""
        request = _list_request(checked_names(states, "states"))
        answers = await self._ask_reachable_brokers(ApiKey.LIST_GROUPS, request, timeout)
        failures = {broker: each for broker, each in answers.items() if isinstance(each, SparklogError)}
        return _listings(each for each in answers.values() if not isinstance(each, SparklogError)), failures

    async def sees_all_groups(self) -> bool:
        """Whether we may describe a group of any name; else lists leave out those that we may not, and do not tell.

        A broker is asked for a group of a name that nobody has chosen. What we may not describe by its own name is not
        told by that.
        """
        name = uuid4().hex
        answer = await self._session.any_broker_request(
            ApiKey.DESCRIBE_GROUPS,
            lambda version: DescribeGroupsRequest(version=version, groups=[name], include_authorized_operations=False),
            check=lambda _: None,
        )
        return bool(answer.groups[0].error_code != ErrorCode.GROUP_AUTHORIZATION_FAILED)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """These groups, of either protocol; one that does not exist has the state Dead."""
        return {group_id: await self._describe_group(group_id) for group_id in checked_names(group_ids, "groups")}

    async def _describe_group(self, group_id: str) -> GroupDescription:
        """A coordinator tells of a group only by the API of the protocol that its members speak."""
        try:
            found = await self._describe_classic_group(group_id)
        except ApiError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            found = GroupDescription(group_id, _DEAD, "", "", ())
        return found if found.state != _DEAD else await self._describe_consumer_group(group_id) or found

    async def _describe_consumer_group(self, group_id: str) -> GroupDescription | None:
        """A group of the consumer protocol; None where there is none, or the coordinator does not know the protocol."""
        try:
            answer = await self._ask_coordinator(
                group_id,
                ApiKey.CONSUMER_GROUP_DESCRIBE,
                lambda version: ConsumerGroupDescribeRequest(
                    version=version, group_ids=[group_id], include_authorized_operations=False
                ),
                lambda answer: raise_error(answer.groups[0], f"group {group_id!r}"),
            )
        except ApiError as error:
            if error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                return None
            raise
        found = answer.groups[0]
        members = tuple(
            GroupMember(each.member_id, each.instance_id, each.client_id, each.client_host, b"", b"", _held(each))
            for each in found.members
        )
        return GroupDescription(group_id, found.group_state, PROTOCOL_TYPE, found.assignor_name, members)

    async def _describe_classic_group(self, group_id: str) -> GroupDescription:
        answer = await self._ask_coordinator(
            group_id,
            ApiKey.DESCRIBE_GROUPS,
            lambda version: DescribeGroupsRequest(
                version=version, groups=[group_id], include_authorized_operations=False
            ),
            lambda answer: raise_error(answer.groups[0], f"group {group_id!r}"),
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
                _assigned(found.protocol_type, bytes(each.member_assignment)),
            )
            for each in found.members
        )
        return GroupDescription(group_id, found.group_state, found.protocol_type, found.protocol_data, members)

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete them and their offsets, or raise the first error; a group with members is not deleted."""
        for group_id in checked_names(group_ids, "groups"):
            await self._ask_coordinator(
                group_id,
                ApiKey.DELETE_GROUPS,
                lambda version, group_id=group_id: DeleteGroupsRequest(version=version, groups_names=[group_id]),  # type: ignore[misc]
                lambda answer, group_id=group_id: raise_error(answer.results[0], f"group {group_id!r}"),  # type: ignore[misc]
            )

    async def group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> Offsets:
        """What a group stored, for these partitions or all; those for which it stored nothing are left out.

        ``require_stable``: wait while a transaction may change it.
        """
        found: Offsets = {}

        def check(answer: OffsetFetchResponse) -> None:
            found.update({tp: at for tp, at in fetched_offsets(answer, {}).items() if at is not None})

        partitions = None if partitions is None else checked_partitions(partitions)
        request = fetch_request(group_id, partitions, {}, require_stable=require_stable)
        await self._ask_coordinator(group_id, ApiKey.OFFSET_FETCH, request, check, LAST_VERSION_BY_NAME)
        return found

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Store these offsets for a group without members, or raise the first error."""
        checked_partitions(offsets)
        stored = {tp: OffsetAndMetadata(each) if isinstance(each, int) else each for tp, each in offsets.items()}
        await self._ask_coordinator(
            group_id,
            ApiKey.OFFSET_COMMIT,
            commit_request(Asker(group_id, Generation(), None), stored, {}),
            lambda answer: _check_topics(answer, group_id),
            LAST_VERSION_BY_NAME,
        )

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget these offsets, or raise the first error; those of topics to which the group subscribes stay."""
        topics = [
            _DeleteTopic(
                name=name,
                partitions=[_DeleteTopic.OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
            )
            for name, numbers in by_topic(checked_partitions(partitions)).items()
        ]
        await self._ask_coordinator(
            group_id,
            ApiKey.OFFSET_DELETE,
            lambda version: OffsetDeleteRequest(version=version, group_id=group_id, topics=topics),
            lambda answer: _check_topics(answer, group_id),
        )

    async def _ask_coordinator(
        self, group_id: str, api: ApiKey, build: Build[A], check: Check[A], ceiling: int | None = None
    ) -> A:
        return await self._session.coordinator_request(
            CoordinatorKind.GROUP, group_id, api, build, check=check, ceiling=ceiling
        )


def _list_request(states: list[str]) -> Build[ListGroupsResponse]:
    def build(version: int) -> ListGroupsRequest:
        if states and version < 4:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "a broker cannot list groups by their states")
        return ListGroupsRequest(version=version, states_filter=states, types_filter=[])

    return build


def _listings(answers: Iterable[ListGroupsResponse]) -> list[GroupListing]:
    return sorted(
        GroupListing(
            each.group_id,
            each.protocol_type,
            getattr(each, "group_state", "") or "",
            getattr(each, "group_type", "") or "",
        )
        for answer in answers
        for each in answer.groups
    )


def _assigned(protocol_type: str, assignment: bytes) -> tuple[TopicPartition, ...]:
    """What a member of a classic group holds; nothing where its bytes are not a consumer's."""
    if protocol_type != PROTOCOL_TYPE or not assignment:
        return ()
    try:
        return tuple(sorted(decode_assignment(assignment).partitions))
    except ProtocolError:
        return ()


def _held(member: ConsumerGroupDescribeResponse.DescribedGroup.Member) -> tuple[TopicPartition, ...]:
    """What a member of the consumer protocol holds."""
    topics = member.assignment.topic_partitions
    return tuple(sorted(TopicPartition(each.topic_name, number) for each in topics for number in each.partitions))


def _check_topics(answer: OffsetCommitResponse | OffsetDeleteResponse, group_id: str) -> None:
    if isinstance(answer, OffsetDeleteResponse):
        raise_error(answer, f"group {group_id!r}")
    for topic in answer.topics:
        what = f"group {group_id!r}, topic {topic.name!r}"
        raise_first(topic.partitions, lambda _, what=what: what)  # type: ignore[misc]
