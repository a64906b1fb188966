"""What is asked on a connection sees what was asked there before, though the client waits for no answer in between."""

from typing import Any

import pytest
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    CreateTopicsRequest,
    JoinGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    decode_response,
    encode,
)
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

PARTITIONS = 200
COMMIT_VERSION, FETCH_VERSION, CREATE_VERSION, METADATA_VERSION, JOIN_VERSION = 7, 8, 4, 8, 3
LONG = "x" * 4000
"""The metadata of an offset: with two hundred of these a commit takes more than one share of the loop's time."""


def send_commit(connection, group, offsets, metadata=""):
    topics = OffsetCommitRequest.OffsetCommitRequestTopic
    partitions = [
        topics.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_metadata=metadata
        )
        for number, offset in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topics(name="t", partitions=partitions)]
    )
    connection.send(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, [encode(request, COMMIT_VERSION)])


def send_fetch(connection, group):
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None, member_epoch=-1)
    request = OffsetFetchRequest(groups=[asked], require_stable=True)
    connection.send(ApiKey.OFFSET_FETCH, FETCH_VERSION, [encode(request, FETCH_VERSION)])


def receive(connection, api) -> Any:
    _, version, body = connection.receive()
    return decode_response(api, version, body)


def commit_codes(answer):
    return {each.error_code for topic in answer.topics for each in topic.partitions}


def committed(answer):
    (group,) = answer.groups
    assert group.error_code == ErrorCode.NONE
    return {each.partition_index: each.committed_offset for topic in group.topics for each in topic.partitions}


@pytest.fixture
def group(connection, request):
    """A name, once the broker coordinates groups and knows the topic ``t``."""
    wire.create_topic(connection, "t", PARTITIONS)
    name = request.node.name

    def is_there():
        wire.find_coordinator(connection, name)
        send_commit(connection, name, {PARTITIONS - 1: 0})
        return commit_codes(receive(connection, ApiKey.OFFSET_COMMIT)) == {ErrorCode.NONE}

    eventually(is_there, 60, "the group")
    return name


@pytest.fixture
def connection(cluster):
    with wire.connect(cluster.bootstrap_servers) as connected:
        yield connected


def test_the_last_of_several_commits_on_the_way_counts(connection, group):
    """A large one takes many turns; the small ones behind it, each done in one, do not overtake it."""
    rounds = range(1, 21)
    for number in rounds:
        send_commit(connection, group, dict.fromkeys(range(PARTITIONS), 10 * number), LONG)
        send_commit(connection, group, {0: 10 * number + 1})
        send_commit(connection, group, {0: 10 * number + 2, 1: 10 * number + 1})
        send_fetch(connection, group)
        for _ in range(3):
            assert commit_codes(receive(connection, ApiKey.OFFSET_COMMIT)) == {ErrorCode.NONE}
        found = committed(receive(connection, ApiKey.OFFSET_FETCH))
        assert (found[0], found[1], found[2]) == (10 * number + 2, 10 * number + 1, 10 * number)


def test_a_topic_made_is_in_the_metadata_asked_for_behind_it(connection, topic):
    asked = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=3, replication_factor=1)
    request = CreateTopicsRequest(topics=[asked], timeout_ms=60_000)
    connection.send(ApiKey.CREATE_TOPICS, CREATE_VERSION, [encode(request, CREATE_VERSION)])
    named = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    connection.send(ApiKey.METADATA, METADATA_VERSION, [encode(named, METADATA_VERSION)])
    (made,) = receive(connection, ApiKey.CREATE_TOPICS).topics
    (known,) = receive(connection, ApiKey.METADATA).topics
    assert (made.error_code, known.error_code, len(known.partitions)) == (ErrorCode.NONE, ErrorCode.NONE, 3)


def test_a_member_that_waits_for_another_keeps_nothing_waiting(connection, group):
    """The second one joins on the connection on which the first one waits for it."""

    def join(member_id):
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        connection.send(ApiKey.JOIN_GROUP, JOIN_VERSION, [encode(request, JOIN_VERSION)])

    join("")
    alone = receive(connection, ApiKey.JOIN_GROUP)
    assert alone.error_code == ErrorCode.NONE
    join("")  # waits for the first to join again
    join(alone.member_id)
    both = [receive(connection, ApiKey.JOIN_GROUP) for _ in range(2)]
    assert {each.generation_id for each in both} == {alone.generation_id + 1}
    assert {each.leader for each in both} == {alone.member_id}
