"""The worst of what is asked about groups of consumers."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from typing import Any

from benchmarks.loads.raw import connect
from benchmarks.stalls.cluster import (
    LONGEST_STRING,
    MANY,
    PARTITIONS,
    TIMEOUT_MS,
    Case,
    Cluster,
    frame,
    read,
    request,
    sockets,
)
from sparklog.broker.apis.groups.join_group import MOST_METADATA, MOST_PROTOCOLS
from sparklog.clock import SystemClock
from sparklog.errors import ErrorCode
from sparklog.net.connection import BlockingConnection
from sparklog.protocol import messages
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Message, decode_response, encode
from sparklog.testing.eventually import eventually

_MEMBERS, _NAMES = 100, 2000
"""Of a group of the consumer protocol, and what each of its members names."""
_CLASSIC_MEMBERS = 500
_LARGE_MEMBERS = 3
_ASSIGNMENT = 90 << 20
_GROUPS = 1000


def of_what_exists() -> Iterator[Case]:
    """Groups that read the wide topic, which is there."""
    heartbeat = f"{_MEMBERS} members of {_NAMES} names"
    yield Case(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat, _members)
    yield Case(ApiKey.CONSUMER_GROUP_DESCRIBE, f"a group with {heartbeat}", _describe_members)
    yield Case(ApiKey.CONSUMER_GROUP_HEARTBEAT, f"{_MEMBERS} members leave", _leave)
    yield Case(ApiKey.OFFSET_COMMIT, f"{PARTITIONS} partitions that exist", _commit)
    yield Case(ApiKey.DELETE_GROUPS, f"a group with {PARTITIONS} offsets", _delete_group)


def classic() -> Iterator[Case]:
    """Members of the classic protocol."""
    many = f"{_CLASSIC_MEMBERS} members of {MOST_PROTOCOLS} protocols"
    yield Case(ApiKey.JOIN_GROUP, many, lambda cluster: _joined(cluster, _CLASSIC_MEMBERS, MOST_PROTOCOLS, 10))
    yield Case(ApiKey.LEAVE_GROUP, f"{_CLASSIC_MEMBERS} members", _leave_classic)
    large = f"{_LARGE_MEMBERS} members of {MOST_METADATA >> 20} MB"
    yield Case(ApiKey.JOIN_GROUP, large, lambda cluster: _joined(cluster, _LARGE_MEMBERS, 1, MOST_METADATA - 100))
    yield Case(ApiKey.SYNC_GROUP, "an assignment of 15 MB", lambda cluster: _sync(cluster, 1, 15 << 20))
    yield Case(
        ApiKey.SYNC_GROUP, f"an assignment of {_ASSIGNMENT >> 20} MB", lambda cluster: _sync(cluster, 1, _ASSIGNMENT)
    )
    yield Case(ApiKey.SYNC_GROUP, f"{MANY} assignments", lambda cluster: _sync(cluster, MANY, 10))
    yield Case(ApiKey.LIST_GROUPS, f"{_GROUPS} groups", _list_groups)
    yield request(ApiKey.LEAVE_GROUP, f"{MANY} who are no members", _strangers, 5)


def offsets() -> Iterator[Case]:
    """Of a topic that is not there."""
    yield request(ApiKey.OFFSET_COMMIT, f"{MANY} partitions", partial(_commits, "g", "stalls", MANY), 8)
    yield request(ApiKey.OFFSET_FETCH, f"{MANY} partitions", _fetched, 7)
    yield request(ApiKey.OFFSET_DELETE, f"{MANY} partitions", _deleted, 0)


def of_many() -> Iterator[Case]:
    """Many groups, none of which is there."""
    names = [f"g{n}" for n in range(MANY)]
    described = partial(messages.DescribeGroupsRequest, groups=names, include_authorized_operations=False)
    yield request(ApiKey.DESCRIBE_GROUPS, f"{MANY} groups", described, 5)
    consumers = partial(messages.ConsumerGroupDescribeRequest, group_ids=names, include_authorized_operations=False)
    yield request(ApiKey.CONSUMER_GROUP_DESCRIBE, f"{MANY} groups", consumers, 0)
    yield request(ApiKey.DELETE_GROUPS, f"{MANY} groups", partial(messages.DeleteGroupsRequest, groups_names=names), 2)
    yield request(ApiKey.FIND_COORDINATOR, f"{MANY} groups", partial(_find_coordinators, MANY), 4)
    yield Case(ApiKey.FIND_COORDINATOR, "100 groups, from 200 clients 10 times", _find_coordinator_flood)
    yield Case(ApiKey.FIND_COORDINATOR, "1 and 50 groups by turns, from 300 clients", _alternate)


def _strangers() -> Message:
    identity = messages.LeaveGroupRequest.MemberIdentity
    members = [identity(member_id=f"m{n}", group_instance_id=None, reason=None) for n in range(MANY)]
    return messages.LeaveGroupRequest(group_id="g", members=members)


def _fetched() -> Message:
    topic = messages.OffsetFetchRequest.OffsetFetchRequestTopic(name="stalls", partition_indexes=list(range(MANY)))
    return messages.OffsetFetchRequest(group_id="g", topics=[topic], require_stable=False)


def _deleted() -> Message:
    topic = messages.OffsetDeleteRequest.OffsetDeleteRequestTopic
    asked = [topic.OffsetDeleteRequestPartition(partition_index=n) for n in range(MANY)]
    return messages.OffsetDeleteRequest(group_id="g", topics=[topic(name="stalls", partitions=asked)])


def _heartbeat(cluster: Cluster, number: int, epoch: int, owned: Any, names: list[str] | None) -> Message:
    return messages.ConsumerGroupHeartbeatRequest(
        group_id=cluster.topic("members"),
        member_id=f"member-{number}",
        member_epoch=epoch,
        rebalance_timeout_ms=TIMEOUT_MS if epoch == 0 else -1,
        subscribed_topic_names=names,
        topic_partitions=owned,
    )


def _members(cluster: Cluster) -> None:
    """All join, each with all names, and do what they are told until there is nothing to do."""
    kind = messages.ConsumerGroupHeartbeatRequest.TopicPartitions
    names = [cluster.topic("wide"), *(f"nothing-{n}" for n in range(_NAMES - 1))]
    epochs, owned = dict.fromkeys(range(_MEMBERS), 0), dict[int, Any]()
    with connect(cluster.bootstrap) as connection:
        for _ in range(3):
            for number, epoch in epochs.items():
                message = _heartbeat(cluster, number, epoch, owned.get(number, []), None if epoch else names)
                connection.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, [encode(message, 1)])
                answer: Any = decode_response(*connection.receive())
                epochs[number] = answer.member_epoch
                if answer.assignment is not None:
                    owned[number] = [
                        kind(topic_id=each.topic_id, partitions=each.partitions)
                        for each in answer.assignment.topic_partitions
                    ]


def _describe_members(cluster: Cluster) -> None:
    message = messages.ConsumerGroupDescribeRequest(
        group_ids=[cluster.topic("members")], include_authorized_operations=False
    )
    cluster.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, message, 0)


def _leave(cluster: Cluster) -> None:
    with connect(cluster.bootstrap) as connection:
        for number in range(_MEMBERS):
            message = _heartbeat(cluster, number, -1, [], None)
            connection.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, [encode(message, 1)])
            connection.receive()


def _commits(group: str, topic: str, count: int) -> Message:
    named = messages.OffsetCommitRequest.OffsetCommitRequestTopic
    asked = [
        named.OffsetCommitRequestPartition(
            partition_index=n, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
        )
        for n in range(count)
    ]
    return messages.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[named(name=topic, partitions=asked)],
    )


def _commit(cluster: Cluster) -> None:
    message = _commits(cluster.topic("committed"), cluster.topic("wide"), PARTITIONS)
    cluster.ask(ApiKey.OFFSET_COMMIT, message, 8)


def _delete_group(cluster: Cluster) -> None:
    message = messages.DeleteGroupsRequest(groups_names=[cluster.topic("committed")])
    cluster.ask(ApiKey.DELETE_GROUPS, message, 2)


def _join(group: str, protocols: int, metadata: int, instance: str | None = None) -> Message:
    protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol
    return messages.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=TIMEOUT_MS,
        rebalance_timeout_ms=TIMEOUT_MS,
        member_id="",
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[protocol(name=f"p{n}", metadata=bytes(metadata)) for n in range(protocols)],
        reason=None,
    )


_JOIN, _SYNC = 5, 5


def _joined(cluster: Cluster, members: int, protocols: int, metadata: int) -> None:
    """All join one generation, and the leader, which came first, is told of all; the group is left as it is."""
    group = cluster.topic(f"classic-{members}")
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(cluster.bootstrap)) for _ in range(members)]
        _send_join(connections[0], group, 0, protocols, metadata)
        connections[0].receive()
        for number in range(1, members):
            _send_join(connections[number], group, number, protocols, metadata)
        described = messages.DescribeGroupsRequest(groups=[group], include_authorized_operations=False)

        def are_here() -> bool:
            return len(cluster.ask(ApiKey.DESCRIBE_GROUPS, described, 5).groups[0].members) == members

        eventually(are_here, what="all members to have joined")
        _send_join(connections[0], group, 0, protocols, metadata)
        told: Any = decode_response(*connections[0].receive())
        assert len(told.members) == members
        for each in connections[1:]:
            each.receive()


def _send_join(connection: BlockingConnection, group: str, number: int, protocols: int, metadata: int) -> None:
    message = _join(group, protocols, metadata, f"i{number}")
    connection.send(ApiKey.JOIN_GROUP, _JOIN, [encode(message, _JOIN)])


def _leave_classic(cluster: Cluster) -> None:
    identity = messages.LeaveGroupRequest.MemberIdentity
    left = [identity(member_id="", group_instance_id=f"i{n}", reason=None) for n in range(_CLASSIC_MEMBERS)]
    message = messages.LeaveGroupRequest(group_id=cluster.topic(f"classic-{_CLASSIC_MEMBERS}"), members=left)
    cluster.ask(ApiKey.LEAVE_GROUP, message, 5)


def _sync(cluster: Cluster, assignments: int, size: int) -> None:
    """Of the leader of a group of one."""
    group = cluster.topic(f"synced-{assignments}-{size}")
    joined = cluster.ask(ApiKey.JOIN_GROUP, _join(group, 1, 10, "i"), _JOIN)
    assert joined.error_code == ErrorCode.NONE
    assigned = messages.SyncGroupRequest.SyncGroupRequestAssignment
    own = [assigned(member_id=joined.member_id, assignment=bytes(size))]
    others = [assigned(member_id=f"m{n}", assignment=bytes(size)) for n in range(assignments - 1)]
    message = messages.SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id="i",
        protocol_type="consumer",
        protocol_name="p0",
        assignments=own + others,
    )
    cluster.ask(ApiKey.SYNC_GROUP, message, _SYNC)


def _list_groups(cluster: Cluster) -> None:
    """With names as long as may be."""
    with connect(cluster.bootstrap) as connection:
        for number in range(_GROUPS):
            group = f"{number:05}{'g' * (LONGEST_STRING - 5 if number < 200 else 200)}"
            message = _commits(group, cluster.topic("polled"), 1)
            connection.send(ApiKey.OFFSET_COMMIT, 8, [encode(message, 8)])
            answer: Any = decode_response(*connection.receive())
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    cluster.ask(ApiKey.LIST_GROUPS, messages.ListGroupsRequest(states_filter=[], types_filter=[]), 5)


def _find_coordinators(keys: int) -> Message:
    return messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{n}" for n in range(keys)])


def _find_coordinator_flood(cluster: Cluster, connections: int = 200, times: int = 10) -> None:
    """Many clients that ask for some coordinators each, all at once."""
    asked = frame(ApiKey.FIND_COORDINATOR, 4, _find_coordinators(100))
    with sockets(cluster, connections) as opened:
        for _ in range(times):
            for each in opened:
                each.sendall(asked)
            for each in opened:
                read(each)


def _alternate(cluster: Cluster, connections: int = 300, seconds: float = 3.0) -> None:
    """Many clients that each ask for little and for more by turns, without end."""
    little, more = (frame(ApiKey.FIND_COORDINATOR, 4, _find_coordinators(each)) for each in (1, 50))
    clock = SystemClock()
    with sockets(cluster, connections) as opened, select.epoll() as poll:
        following = {each.fileno(): (each, cycle((more, little))) for each in opened}
        for each in opened:
            each.sendall(little)
            poll.register(each, select.EPOLLIN)
        until = clock.monotonic() + seconds
        while clock.monotonic() < until:
            for number, _ in poll.poll(seconds):
                each, frames = following[number]
                read(each)
                each.sendall(next(frames))
