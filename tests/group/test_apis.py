"""The handlers of the group APIs, in every version that they claim: encoded, decoded, handled, encoded, decoded."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from group.consumer.samples import FakeTopics

from sparklog.broker.apis.groups import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from sparklog.broker.context import ApiRequest
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ErrorCode
from sparklog.group.runtime import GroupCoordinator
from sparklog.net.turns import Turns
from sparklog.protocol import messages
from sparklog.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.steps import finish
from sparklog.zk.znodes import BrokerInfo

HANDLERS = [
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
]


class Client:
    """Calls handlers as the broker does, through the wire's bytes."""

    def __init__(self, loop: Any, clock: Any, store: Any) -> None:
        self.asked_for_coordinators = 0
        self.store = store
        ids = itertools.count(1)
        self.topics = FakeTopics(t=2)
        config = BrokerConfig(group_initial_rebalance_delay_ms=0)
        topic = SimpleNamespace(partitions={0: None, 1: None})
        self.broker: Any = SimpleNamespace(
            authorizer=AllowEverything(),
            turns=Turns(loop),
            clock=clock,
            groups=GroupCoordinator(config, store, clock, loop, self.topics, lambda: str(next(ids))),
            metadata=SimpleNamespace(
                topic={"t": topic}.get,
                knows={TopicPartition("t", 0), TopicPartition("t", 1)}.__contains__,
                has_been_told=True,
            ),
            has_coordinators=self.has_coordinators,
            coordinator_of=lambda _, key: BrokerInfo(7, Endpoint(f"host-of-{key}", 9092), None),
        )

    async def has_coordinators(self, key_type: int) -> bool:
        self.asked_for_coordinators += 1
        return key_type == 0

    async def load(self) -> None:
        for partition in range(self.store.partition_count):
            await self.broker.groups.load(partition)

    async def call(self, module: ModuleType, version: int, message: Any) -> Any:
        body = memoryview(messages.encode(message, version))
        decoded = messages.decode_request(module.API, version, body)
        answer = module.handle(self.broker, ApiRequest(module.API, version, "app", Caller("10.0.0.1"), decoded))
        answer = finish(answer) if inspect.isgenerator(answer) else answer
        if inspect.isawaitable(answer):
            answer = await answer
        return messages.decode_response(module.API, version, memoryview(messages.encode(answer, version)))

    async def join(self, version: int = 9, member_id: str = "", instance_id: str | None = None) -> Any:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"sub")
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        answer = await self.call(join_group, version, request)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return await self.join(version, answer.member_id, instance_id)
        return answer

    async def sync(self, joined: Any, version: int = 5, instance_id: str | None = None) -> Any:
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"share")
        request = SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment],
        )
        return await self.call(sync_group, version, request)

    async def member(self) -> Any:
        joined = await self.join()
        await self.sync(joined)
        return joined

    async def commit(self, offset: int, version: int = 9, topic: str = "t", **fields: Any) -> list[int]:
        topic_type = OffsetCommitRequest.OffsetCommitRequestTopic
        partitions = [
            topic_type.OffsetCommitRequestPartition(
                partition_index=each, committed_offset=offset + each, committed_leader_epoch=4, committed_metadata=None
            )
            for each in (0, 2)
        ]
        request = OffsetCommitRequest(group_id="g", topics=[topic_type(name=topic, partitions=partitions)], **fields)
        answer = await self.call(offset_commit, version, request)
        assert [each.name for each in answer.topics] == [topic]
        assert [each.partition_index for each in answer.topics[0].partitions] == [0, 2]
        return [each.error_code for each in answer.topics[0].partitions]


@pytest.fixture
def client(loop: asyncio.AbstractEventLoop, clock: Any, store: Any) -> Any:
    client = Client(loop, clock, store)
    loop.run_until_complete(client.load())
    yield client
    loop.run_until_complete(client.broker.groups.close())


def versions(module: ModuleType, first: int = 0) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", [each for each in module.VERSIONS if each >= first])


@pytest.mark.parametrize("module", HANDLERS)
def test_the_schema_has_every_version_claimed(module: ModuleType) -> None:
    assert module.VERSIONS.step == 1
    assert module.VERSIONS[-1] <= messages.highest_version(module.API)


@versions(join_group)
def test_join(loop: Any, client: Client, version: int) -> None:
    answer = loop.run_until_complete(client.join(version))
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.leader == answer.member_id == "app-1"
    assert [(each.member_id, each.metadata) for each in answer.members] == [("app-1", b"sub")]
    if version >= 7:
        assert answer.protocol_type == "consumer"
    member = client.broker.groups.describe_group("g")[1].members["app-1"]
    assert member.rebalance_timeout_ms == (60_000 if version else 10_000)
    assert member.client_host == "/10.0.0.1"


@versions(join_group)
def test_a_join_that_is_refused(loop: Any, client: Client, version: int) -> None:
    request = JoinGroupRequest(group_id="g", session_timeout_ms=1, protocol_type="consumer", protocols=[])
    answer = loop.run_until_complete(client.call(join_group, version, request))
    assert (answer.error_code, answer.generation_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, -1)
    assert answer.protocol_name == ("" if version < 7 else None)


@versions(join_group, first=5)
def test_a_static_member_is_known_by_its_instance_id(loop: Any, client: Client, version: int) -> None:
    answer = loop.run_until_complete(client.join(version, instance_id="i"))
    assert answer.member_id == "i-1"
    assert answer.members[0].group_instance_id == "i"


@versions(sync_group)
def test_sync(loop: Any, client: Client, version: int) -> None:
    async def body() -> Any:
        return await client.sync(await client.join(), version)

    answer = loop.run_until_complete(body())
    assert (answer.error_code, answer.assignment) == (0, b"share")
    if version >= 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


@versions(heartbeat)
@pytest.mark.parametrize(("generation", "error"), [(1, ErrorCode.NONE), (2, ErrorCode.ILLEGAL_GENERATION)])
def test_heartbeat(loop: Any, client: Client, version: int, generation: int, error: ErrorCode) -> None:
    async def body() -> Any:
        joined = await client.member()
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=joined.member_id)
        return await client.call(heartbeat, version, request)

    assert loop.run_until_complete(body()).error_code == error


@versions(leave_group)
def test_leave(loop: Any, client: Client, version: int) -> None:
    async def body() -> None:
        joined = await client.member()
        identity = LeaveGroupRequest.MemberIdentity
        members = [identity(member_id="stranger"), identity(member_id=joined.member_id)]
        request = LeaveGroupRequest(group_id="g", member_id=joined.member_id, members=members)
        answer = await client.call(leave_group, version, request)
        again = await client.call(leave_group, version, request)
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        if version < 3:
            assert (answer.error_code, again.error_code) == (0, unknown)
        else:
            assert (answer.error_code, again.error_code) == (0, 0)
            assert [each.error_code for each in answer.members] == [unknown, 0]
            assert [each.error_code for each in again.members] == [unknown, unknown]

    loop.run_until_complete(body())


@versions(leave_group)
def test_leaving_a_group_that_lives_elsewhere(loop: Any, client: Client, version: int) -> None:
    client.store.led.clear()
    members = [LeaveGroupRequest.MemberIdentity(member_id="m")]
    request = LeaveGroupRequest(group_id="g", member_id="m", members=members)
    answer = loop.run_until_complete(client.call(leave_group, version, request))
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


# Version 0 of OffsetCommit and OffsetFetch keeps offsets in ZooKeeper: see tests/integration/test_old_clients.py.
@versions(offset_commit, first=1)
def test_commit(loop: Any, client: Client, clock: Any, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert loop.run_until_complete(client.commit(100, version, retention_time_ms=1000)) == [0, unknown]
    assert loop.run_until_complete(client.commit(100, version, topic="nowhere")) == [unknown, unknown]
    client.broker.metadata.has_been_told = False
    again = ErrorCode.NOT_COORDINATOR
    assert loop.run_until_complete(client.commit(100, version, topic="nowhere")) == [again, again]
    _, found = client.broker.groups.fetch_offsets("g", None)
    ((tp, committed),) = found.items()
    expires = 2 <= version < 5
    assert (tp.topic, tp.partition, committed.offset) == ("t", 0, 100)
    assert committed.leader_epoch == (4 if version >= 6 else -1)
    assert committed.expire_timestamp_ms == (clock.now_ms() + 1000 if expires else -1)


@versions(offset_commit, first=1)
def test_a_commit_for_a_topic_made_anew_since_it_was_looked_up(loop: Any, client: Client, version: int) -> None:
    look_up = client.broker.metadata.topic

    def made_anew(name: str) -> Any:
        found = look_up(name)
        finish(client.broker.groups.forget_topics([TopicPartition(name, 0)]))
        return found

    client.broker.metadata.topic = made_anew
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert loop.run_until_complete(client.commit(100, version)) == [unknown, unknown]
    assert client.broker.groups.fetch_offsets("g", None) == (ErrorCode.NONE, {})
    client.broker.metadata.topic = look_up
    assert loop.run_until_complete(client.commit(100, version)) == [ErrorCode.NONE, unknown]


def test_a_commit_that_is_never_to_expire(loop: Any, client: Client) -> None:
    for_ever = 2**63 - 1
    assert loop.run_until_complete(client.commit(100, 4, retention_time_ms=for_ever))[0] == ErrorCode.NONE
    _, found = client.broker.groups.fetch_offsets("g", None)
    ((_, committed),) = found.items()
    assert committed.expire_timestamp_ms == for_ever


@versions(offset_commit, first=1)
def test_a_commit_of_a_member(loop: Any, client: Client, version: int) -> None:
    async def body() -> None:
        joined = await client.member()
        identity = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        assert (await client.commit(1, version, **identity))[0] == ErrorCode.NONE
        identity["generation_id_or_member_epoch"] = 2
        assert (await client.commit(1, version, **identity))[0] == ErrorCode.ILLEGAL_GENERATION

    loop.run_until_complete(body())


def fetch_request(version: int, partitions: list[int] | None) -> Any:
    if version >= 8:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = partitions and [group.OffsetFetchRequestTopics(name="t", partition_indexes=partitions)]
        return OffsetFetchRequest(groups=[group(group_id="g", topics=topics), group(group_id="none", topics=topics)])
    topics = partitions and [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=partitions)]
    return OffsetFetchRequest(group_id="g", topics=topics)


def fetched(version: int, answer: Any) -> dict[tuple[str, int], tuple[int, int, str, int]]:
    found = answer.groups[0] if version >= 8 else answer
    return {
        (topic.name, each.partition_index): (
            each.committed_offset,
            each.committed_leader_epoch if version >= 5 else 4,
            each.metadata,
            each.error_code,
        )
        for topic in found.topics
        for each in topic.partitions
    }


@versions(offset_fetch, first=1)
def test_fetch(loop: Any, client: Client, version: int) -> None:
    async def body() -> None:
        await client.commit(100)
        answer = await client.call(offset_fetch, version, fetch_request(version, [0, 1]))
        nothing = (-1, -1 if version >= 5 else 4, "", 0)
        assert fetched(version, answer) == {("t", 0): (100, 4, "", 0), ("t", 1): nothing}
        if version >= 8:
            assert [each.group_id for each in answer.groups] == ["g", "none"]
            assert answer.groups[1].topics[0].partitions[0].committed_offset == -1

    loop.run_until_complete(body())


@versions(offset_fetch, first=2)
def test_fetch_all(loop: Any, client: Client, version: int) -> None:
    async def body() -> None:
        await client.commit(100)
        answer = await client.call(offset_fetch, version, fetch_request(version, None))
        assert fetched(version, answer) == {("t", 0): (100, 4, "", 0)}

    loop.run_until_complete(body())


@versions(offset_fetch, first=8)
@pytest.mark.parametrize(
    ("asked", "told"), [([[0], [1], []], {0: 100, 1: -1}), ([[1], None, [2]], {0: 100}), ([None, None], {0: 100})]
)
def test_a_group_whose_offsets_are_asked_for_twice_is_told_once(
    loop: Any, client: Client, version: int, asked: list[list[int] | None], told: dict[int, int]
) -> None:
    async def body() -> None:
        await client.commit(100)
        groups = [group for each in asked for group in fetch_request(version, each).groups]
        answer = await client.call(offset_fetch, version, OffsetFetchRequest(groups=groups))
        assert [each.group_id for each in answer.groups] == ["g", "none"]
        (topic,) = answer.groups[0].topics
        assert {each.partition_index: each.committed_offset for each in topic.partitions} == told

    loop.run_until_complete(body())


@versions(offset_fetch, first=1)
def test_a_fetch_from_the_wrong_broker(loop: Any, client: Client, version: int) -> None:
    client.store.led.clear()
    answer = loop.run_until_complete(client.call(offset_fetch, version, fetch_request(version, [0])))
    if version >= 8:
        assert [each.error_code for each in answer.groups] == [ErrorCode.NOT_COORDINATOR] * 2
    elif version >= 2:
        assert (answer.error_code, answer.topics) == (ErrorCode.NOT_COORDINATOR, [])
    else:
        assert fetched(version, answer)["t", 0][3] == ErrorCode.NOT_COORDINATOR


@versions(list_groups)
def test_list(loop: Any, client: Client, version: int) -> None:
    async def listed(**filters: Any) -> list[Any]:
        answer = await client.call(list_groups, version, ListGroupsRequest(**filters))
        assert answer.error_code == 0
        return list(answer.groups)

    async def body() -> None:
        assert await listed() == []
        await client.member()
        (group,) = await listed()
        assert (group.group_id, group.protocol_type) == ("g", "consumer")
        if version >= 4:
            assert group.group_state == "Stable"
            assert len(await listed(states_filter=["stable", "Empty"])) == 1
            assert await listed(states_filter=["Empty"]) == []
        if version >= 5:
            assert group.group_type == "classic"
            assert len(await listed(types_filter=["Classic"])) == 1
            assert await listed(types_filter=["consumer"]) == []

    loop.run_until_complete(body())


@versions(describe_groups)
def test_describe(loop: Any, client: Client, version: int) -> None:
    async def body() -> None:
        joined = await client.join(instance_id="i")
        request = DescribeGroupsRequest(groups=["g", "none"])
        group, unknown = (await client.call(describe_groups, version, request)).groups
        assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
        assert group.members[0].member_metadata == b""
        assert (unknown.error_code, unknown.group_state, unknown.members) == (0, "Dead", [])
        request_sync = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"share")
        await client.call(
            sync_group,
            5,
            SyncGroupRequest(
                group_id="g",
                generation_id=1,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[request_sync],
            ),
        )
        group = (await client.call(describe_groups, version, request)).groups[0]
        assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
        (member,) = group.members
        assert (member.member_id, member.client_id, member.client_host) == ("i-1", "app", "/10.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (b"sub", b"share")
        if version >= 4:
            assert member.group_instance_id == "i"
        client.store.led.clear()
        group = (await client.call(describe_groups, version, request)).groups[0]
        assert (group.error_code, group.group_state) == (ErrorCode.NOT_COORDINATOR, "")

    loop.run_until_complete(body())


@versions(describe_groups)
def test_a_group_is_described_once(loop: Any, client: Client, version: int) -> None:
    request = DescribeGroupsRequest(groups=["g", "none", "g", "none"])
    answer = loop.run_until_complete(client.call(describe_groups, version, request))
    assert [each.group_id for each in answer.groups] == ["g", "none"]


@versions(find_coordinator)
def test_find_coordinator(loop: Any, client: Client, version: int) -> None:
    def ask(key_type: int) -> Any:
        request = FindCoordinatorRequest(key="a", key_type=key_type, coordinator_keys=["a", "b"])
        client.asked_for_coordinators = 0
        answer = loop.run_until_complete(client.call(find_coordinator, version, request))
        assert client.asked_for_coordinators <= 1, "what has to be made is waited for once"
        if version >= 4:
            assert [each.key for each in answer.coordinators] == ["a", "b"]
            return answer.coordinators[0]
        return answer

    found = ask(0)
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 7, "host-of-a", 9092)
    if version >= 1:
        assert found.error_message == ("" if version >= 4 else "NONE"), "as Kafka's"
        found = ask(1)
        assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        assert found.error_message == "COORDINATOR_NOT_AVAILABLE"
        assert ask(2).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("module", "version"),
    [
        (module, version)
        for module, first in [(join_group, 5), (sync_group, 3), (heartbeat, 3), (offset_commit, 7), (leave_group, 3)]
        for version in module.VERSIONS
        if version >= first
    ],
    ids=lambda each: each if isinstance(each, int) else each.__name__.rpartition(".")[2],
)
def test_whoever_held_an_instance_id_before_is_fenced(
    loop: Any, client: Client, module: ModuleType, version: int
) -> None:
    who = {"group_id": "g", "member_id": "i-1", "group_instance_id": "i"}
    leaving = LeaveGroupRequest.MemberIdentity(member_id="i-1", group_instance_id="i")

    async def ask() -> int:
        if module is join_group:
            return int((await client.join(version, "i-1", "i")).error_code)
        if module is offset_commit:
            named = {"member_id": "i-1", "group_instance_id": "i", "generation_id_or_member_epoch": 1}
            return (await client.commit(1, version, **named))[0]
        if module is leave_group:
            request: Any = LeaveGroupRequest(group_id="g", members=[leaving])
            return int((await client.call(module, version, request)).members[0].error_code)
        if module is sync_group:
            request = SyncGroupRequest(generation_id=1, protocol_type="consumer", protocol_name="range", **who)
        else:
            request = HeartbeatRequest(generation_id=1, **who)
        return int((await client.call(module, version, request)).error_code)

    async def body() -> None:
        first = await client.join(instance_id="i")
        await client.sync(first, instance_id="i")
        second = await client.join(instance_id="i")
        assert (first.member_id, second.member_id, second.generation_id) == ("i-1", "i-2", 1)
        assert await ask() == ErrorCode.FENCED_INSTANCE_ID
        assert client.broker.groups.describe_group("g")[1].instances == {"i": "i-2"}

    loop.run_until_complete(body())


@versions(leave_group, first=3)
def test_static_members_are_removed_by_instance_id(loop: Any, client: Client, version: int) -> None:
    async def body() -> Any:
        await client.sync(await client.join(instance_id="i"), instance_id="i")
        members = [LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id=each) for each in ("i", "j")]
        return await client.call(leave_group, version, LeaveGroupRequest(group_id="g", members=members))

    answer = loop.run_until_complete(body())
    left = [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members]
    assert left == [("", "i", ErrorCode.NONE), ("", "j", ErrorCode.UNKNOWN_MEMBER_ID)]


@versions(delete_groups)
def test_delete_groups(loop: Any, client: Client, version: int) -> None:
    async def delete() -> dict[str, int]:
        request = DeleteGroupsRequest(groups_names=["g", "none", "g"])
        answer = await client.call(delete_groups, version, request)
        assert len(answer.results) == 2
        return {each.group_id: each.error_code for each in answer.results}

    async def body() -> None:
        joined = await client.member()
        assert await delete() == {"g": ErrorCode.NON_EMPTY_GROUP, "none": ErrorCode.GROUP_ID_NOT_FOUND}
        member = LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)
        await client.call(leave_group, 5, LeaveGroupRequest(group_id="g", members=[member]))
        assert await delete() == {"g": ErrorCode.NONE, "none": ErrorCode.GROUP_ID_NOT_FOUND}
        assert finish(client.broker.groups.list_groups())[1] == []

    loop.run_until_complete(body())


@versions(offset_delete)
def test_offset_delete(loop: Any, client: Client, version: int) -> None:
    topic_type = OffsetDeleteRequest.OffsetDeleteRequestTopic

    async def delete(*topics: str) -> Any:
        partitions = [topic_type.OffsetDeleteRequestPartition(partition_index=each) for each in (0, 1, 2)]
        request = OffsetDeleteRequest(group_id="g", topics=[topic_type(name=t, partitions=partitions) for t in topics])
        return await client.call(offset_delete, version, request)

    async def body() -> None:
        answer = await delete("t")
        assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        await client.commit(5)
        answer = await delete("t", "unknown")
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        codes = {each.name: [p.error_code for p in each.partitions] for each in answer.topics}
        assert (answer.error_code, codes) == (0, {"t": [0, 0, missing], "unknown": [missing] * 3})
        assert client.broker.groups.fetch_offsets("g", None) == (ErrorCode.NONE, {})
        joined = await client.member()
        refused = [each.error_code for each in (await delete("t")).topics[0].partitions]
        assert refused == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2 + [missing], joined.member_id

    loop.run_until_complete(body())


@versions(offset_fetch, first=7)
@pytest.mark.parametrize("require_stable", [False, True])
def test_only_stable_offsets(loop: Any, client: Client, version: int, require_stable: bool) -> None:
    async def body() -> None:
        await client.commit(5)
        gate = loop.create_future()
        client.store.gate = lambda: gate
        commit = asyncio.ensure_future(client.commit(6))
        await asyncio.sleep(0.1)
        request = fetch_request(version, [0, 1])
        request.require_stable = require_stable
        found = fetched(version, await client.call(offset_fetch, version, request))
        unstable = (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert found["t", 0] == (unstable if require_stable else (5, 4, "", 0))
        assert found["t", 1][0] == -1
        gate.set_result(None)
        await commit

    loop.run_until_complete(body())
