"""The handlers of the consumer protocol's APIs, in every version: encoded, decoded, handled, encoded, decoded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from group.test_apis import Client

from sparklog.broker import group_topics
from sparklog.broker.apis.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    list_groups,
    offset_commit,
    offset_fetch,
)
from sparklog.broker.expressions import Expressions
from sparklog.broker.group_topics import GroupTopics
from sparklog.broker.metadata_cache import TopicMetadata
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol import messages
from sparklog.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)

Owned = ConsumerGroupHeartbeatRequest.TopicPartitions
VERSIONS = pytest.mark.parametrize("version", [0, 1])
JOIN = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": ["t"], "topic_partitions": []}


class ConsumerClient(Client):
    def __init__(self, loop: Any, clock: Any, store: Any) -> None:
        super().__init__(loop, clock, store)
        self.broker.metadata.name_of = self.topics.name_of

    async def beat(self, version: int = 1, member_id: str = "", epoch: int = 0, **said: Any) -> Any:
        said = {**JOIN, **said} if epoch == 0 else said
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **said)
        return await self.call(consumer_group_heartbeat, version, request)

    async def describe(self, version: int = 1, group_id: str = "g") -> Any:
        request = ConsumerGroupDescribeRequest(group_ids=[group_id])
        return (await self.call(consumer_group_describe, version, request)).groups[0]


@pytest.fixture
def client(loop: asyncio.AbstractEventLoop, clock: Any, store: Any) -> Any:
    client = ConsumerClient(loop, clock, store)
    loop.run_until_complete(client.load())
    yield client
    loop.run_until_complete(client.broker.groups.close())


@VERSIONS
def test_a_life(loop: Any, client: ConsumerClient, version: int) -> None:
    async def body() -> None:
        joined = await client.beat(version, "mine")
        assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "mine", 1)
        assert joined.heartbeat_interval_ms == 5000
        (share,) = joined.assignment.topic_partitions
        assert (share.topic_id, share.partitions) == (client.topics.topic("t").topic_id, [0, 1])
        owned = [Owned(topic_id=share.topic_id, partitions=share.partitions)]
        still = await client.beat(version, "mine", 1, topic_partitions=owned)
        assert (still.error_code, still.assignment) == (0, None)
        fenced = await client.beat(version, "mine", 9)
        assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert "join anew" in fenced.error_message
        left = await client.beat(version, "mine", -1)
        assert (left.error_code, left.member_epoch) == (0, -1)
        assert (await client.describe(version)).group_state == "Empty"

    loop.run_until_complete(body())


def test_from_version_1_on_members_choose_their_ids(loop: Any, client: ConsumerClient) -> None:
    given = loop.run_until_complete(client.beat(0))
    assert given.member_id == "1"
    assert loop.run_until_complete(client.beat(1)).error_code == ErrorCode.INVALID_REQUEST


def test_an_expression_comes_with_version_1(loop: Any, client: ConsumerClient) -> None:
    said = {"subscribed_topic_names": None, "subscribed_topic_regex": "t|u"}
    assert loop.run_until_complete(client.beat(0, "m", **said)).error_code == ErrorCode.INVALID_REQUEST
    assert loop.run_until_complete(client.beat(1, "m", **said)).error_code == 0
    assert loop.run_until_complete(client.describe()).members[0].subscribed_topic_regex == "t|u"
    said["subscribed_topic_regex"] = "("
    wrong = loop.run_until_complete(client.beat(1, "n", **said))
    assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@VERSIONS
def test_a_group_is_described_once(loop: Any, client: ConsumerClient, version: int) -> None:
    request = ConsumerGroupDescribeRequest(group_ids=["g", "none", "g", "none"])
    answer = loop.run_until_complete(client.call(consumer_group_describe, version, request))
    assert [each.group_id for each in answer.groups] == ["g", "none"]


@VERSIONS
def test_describe(loop: Any, client: ConsumerClient, version: int) -> None:
    async def body() -> None:
        await client.beat(1, "mine", instance_id="i", rack_id="r", server_assignor="range")
        await client.beat(1, "other")
        group = await client.describe(version)
        assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (
            0,
            "Reconciling",
            2,
            2,
        )
        assert group.assignor_name == "range"
        mine, other = sorted(group.members, key=lambda each: each.member_id)
        assert (mine.instance_id, mine.rack_id, mine.member_epoch) == ("i", "r", 1)
        assert (mine.client_id, mine.client_host, mine.subscribed_topic_names) == ("app", "/10.0.0.1", ["t"])
        (has,), (shall_have,) = mine.assignment.topic_partitions, mine.target_assignment.topic_partitions
        assert (has.topic_name, has.partitions, shall_have.partitions) == ("t", [0, 1], [0])
        assert other.assignment.topic_partitions == []
        assert mine.member_type == (1 if version else -1)
        client.topics.delete("t")
        gone = (await client.describe(version)).members[0]
        assert gone.assignment.topic_partitions == [], "a topic without a name is not shown"

    loop.run_until_complete(body())


@VERSIONS
def test_what_is_no_consumer_group_cannot_be_described(loop: Any, client: ConsumerClient, version: int) -> None:
    loop.run_until_complete(client.join())
    for group_id in ("g", "nobody"):
        group = loop.run_until_complete(client.describe(version, group_id))
        assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert group_id in group.error_message
    assert loop.run_until_complete(client.describe(version, "")).error_code == ErrorCode.INVALID_GROUP_ID


def test_the_other_apis_know_its_kind(loop: Any, client: ConsumerClient) -> None:
    async def listed(**filters: Any) -> list[tuple[str, ...]]:
        answer = await client.call(list_groups, 5, ListGroupsRequest(**filters))
        return [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in answer.groups]

    async def body() -> None:
        await client.beat(1, "mine")
        assert await listed() == [("g", "consumer", "Stable", "consumer")]
        assert await listed(types_filter=["Consumer"], states_filter=["stable"]) != []
        assert await listed(types_filter=["classic"]) == await listed(states_filter=["Empty"]) == []
        described = await client.call(describe_groups, 5, DescribeGroupsRequest(groups=["g"]))
        assert (described.groups[0].group_state, described.groups[0].members) == ("Dead", [])
        deleted = await client.call(delete_groups, 2, DeleteGroupsRequest(groups_names=["g"]))
        assert deleted.results[0].error_code == ErrorCode.NON_EMPTY_GROUP

    loop.run_until_complete(body())


@pytest.mark.parametrize(
    ("version", "epoch", "error"),
    [
        (9, 1, ErrorCode.NONE),
        (9, 2, ErrorCode.STALE_MEMBER_EPOCH),
        (8, 1, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_offsets_are_committed_with_an_epoch(
    loop: Any, client: ConsumerClient, version: int, epoch: int, error: ErrorCode
) -> None:
    loop.run_until_complete(client.beat(1, "mine"))
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=3, committed_leader_epoch=-1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=epoch,
        member_id="mine",
        topics=[topic(name="t", partitions=[partition])],
    )
    answer = loop.run_until_complete(client.call(offset_commit, version, request))
    assert answer.topics[0].partitions[0].error_code == error


@pytest.mark.parametrize(
    ("version", "member_id", "epoch", "error"),
    [
        (9, None, -1, ErrorCode.NONE),
        (9, "mine", 1, ErrorCode.NONE),
        (9, "mine", 0, ErrorCode.STALE_MEMBER_EPOCH),
        (9, "who", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        (8, None, -1, ErrorCode.NONE),
    ],
)
def test_offsets_are_fetched_with_an_epoch(
    loop: Any, client: ConsumerClient, version: int, member_id: str | None, epoch: int, error: ErrorCode
) -> None:
    loop.run_until_complete(client.beat(1, "mine"))
    group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id="g", member_id=member_id, member_epoch=epoch, topics=None
    )
    answer = loop.run_until_complete(client.call(offset_fetch, version, OffsetFetchRequest(groups=[group])))
    assert answer.groups[0].error_code == error


def test_the_schemas_have_the_versions_claimed() -> None:
    for module in (consumer_group_heartbeat, consumer_group_describe):
        assert module.VERSIONS[-1] == messages.highest_version(module.API)


def test_the_brokers_topics_are_matched_without_its_own() -> None:
    names = ["a", "b", "__consumer_offsets"]
    known = {each: TopicMetadata(each, None, {0: None, 1: None}) for each in names}
    cache: Any = SimpleNamespace(topics_version=1, topics=lambda: [*known.values()], topic=known.get)
    topics = GroupTopics(cache, Expressions())
    assert topics.matching(".*") == {"a", "b"}
    del known["a"]
    assert topics.matching(".*") == {"a", "b"}, "remembered until the version changes"
    cache.topics_version = 2
    assert topics.matching(".*") == {"b"}
    cache.topics_version = 3
    asyncio.run(topics.look_up(["a|b", "("]))
    del known["b"]
    assert topics.matching("a|b") == {"b"}, "looked up before"
    with pytest.raises(ApiError):
        topics.matching("(")
    known["b"] = TopicMetadata("b", None, {0: None, 1: None})
    described = topics.topic("b")
    assert described is not None
    assert described.partition_count == 2
    assert topics.topic("a") is None
    with pytest.raises(ApiError):
        topics.matching("(")


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """On which an expression was looked at, once for each time; it matches all topics."""
    looked: list[threading.Thread] = []

    def match(_regex: str, names: list[str]) -> frozenset[str]:
        looked.append(threading.current_thread())
        return frozenset(names)

    monkeypatch.setattr(group_topics, "matching", match)
    return looked


def test_expressions_are_looked_up_off_the_loop(threads: list[threading.Thread]) -> None:
    cache: Any = SimpleNamespace(topics_version=1, topics=lambda: [])
    topics = GroupTopics(cache, Expressions())

    async def look_up() -> None:
        await asyncio.gather(topics.look_up(["a"]), topics.look_up(["a", "b"]))

    asyncio.run(look_up())
    assert topics.matching("a") == topics.matching("b") == frozenset()
    assert len(threads) == 2
    assert threading.current_thread() not in threads


def test_expressions_are_looked_up_off_the_loop_again_if_topics_change_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names, threads = ["a"], []
    cache: Any = SimpleNamespace(topics_version=1, topics=lambda: [SimpleNamespace(name=each) for each in names])
    topics = GroupTopics(cache, Expressions())

    def slow(regex: str, known: list[str]) -> frozenset[str]:
        threads.append(threading.current_thread())
        if cache.topics_version < 3:  # a topic is made while the expression is looked at
            cache.topics_version += 1
            names.append(f"topic-{cache.topics_version}")
        return frozenset(known)

    monkeypatch.setattr(group_topics, "matching", slow)
    asyncio.run(topics.look_up(["."]))
    assert topics.matching(".") == {"a", "topic-2", "topic-3"}
    assert threading.current_thread() not in threads


class ChangingTopics:
    """A cache of topics whose version goes up while an expression is looked at."""

    def __init__(self) -> None:
        self.topics_version = 1
        self.looked_at: list[str] = []

    def topics(self) -> list[Any]:
        return [SimpleNamespace(name="a")]

    def match(self, regex: str, names: Iterable[str]) -> frozenset[str]:
        self.looked_at.append(regex)
        assert len(self.looked_at) < 10, "it is looked up again and again"
        self.topics_version += 1
        return frozenset(names)


def test_an_expression_is_looked_up_once_while_topics_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of a leader, or of a set of replicas, changes nothing of what an expression matches."""
    cache: Any = ChangingTopics()
    topics = GroupTopics(cache, Expressions())
    monkeypatch.setattr(group_topics, "matching", cache.match)
    asyncio.run(topics.look_up(["x"]))
    cache.topics_version += 1
    asyncio.run(topics.look_up(["x"]))
    assert topics.matching("x") == {"a"}
    assert cache.looked_at == ["x"]


def test_a_group_with_many_expressions_lets_others_have_theirs_looked_up_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache: Any = SimpleNamespace(topics_version=1, topics=lambda: [])
    topics = GroupTopics(cache, Expressions())
    looked_at: list[str] = []

    def seen(regex: str, _names: Iterable[str]) -> frozenset[str]:
        looked_at.append(regex)
        return frozenset()

    monkeypatch.setattr(group_topics, "matching", seen)

    async def look_up() -> None:
        await asyncio.gather(topics.look_up(["a", "b", "c"]), topics.look_up(["x", "c"]))

    asyncio.run(look_up())
    assert looked_at == ["a", "x", "b", "c"]


def test_groups_that_look_up_much_at_once_do_not_forget_what_each_other_needs(
    threads: list[threading.Thread],
) -> None:
    cache: Any = SimpleNamespace(topics_version=1, topics=lambda: [])
    topics = GroupTopics(cache, Expressions())
    long = [letter * (group_topics._MOST // 2 - 1000) for letter in "abcdef"]

    async def look_up(regexes: list[str]) -> None:
        await topics.look_up(regexes)
        for each in regexes:
            topics.matching(each)

    async def both() -> None:
        await asyncio.gather(look_up(long[:3]), look_up(long[3:]))

    asyncio.run(both())
    assert len(threads) == 6
    assert threading.current_thread() not in threads


def test_what_a_group_needs_at_once_is_remembered_however_much_it_is(threads: list[threading.Thread]) -> None:
    cache: Any = SimpleNamespace(topics_version=1, topics=lambda: [])
    topics = GroupTopics(cache, Expressions())
    long = [letter * (group_topics._MOST // 2 - 1000) for letter in "abc"]
    asyncio.run(topics.look_up(long[:2]))
    asyncio.run(topics.look_up(long))
    assert [*map(topics.matching, long)] == [frozenset()] * 3
    assert threading.current_thread() not in threads


def test_what_expressions_match_is_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []

    def seen(regex: str, names: list[str]) -> frozenset[str]:
        looked_at.append(regex[0])
        return frozenset(names)

    monkeypatch.setattr(group_topics, "matching", seen)
    cache: Any = SimpleNamespace(topics_version=1, topics=lambda: [])
    topics = GroupTopics(cache, Expressions())
    size = group_topics._MOST // 2 - 1000
    for letter in "ababca":
        asyncio.run(topics.look_up([letter * size]))
    assert looked_at == [*"abca"]
