"""Requests of many elements: the work of one element, or of a slice of them, lies between two looks at the others."""

import asyncio
import inspect
from types import SimpleNamespace

import pytest
from broker.test_metadata_cache import update

from sparklog.broker.apis.cluster import alter_configs, create_partitions, delete_topics, update_metadata
from sparklog.broker.apis.groups import describe_groups, join_group, leave_group, offset_delete, offset_fetch
from sparklog.broker.apis.groups.join_group import MOST_METADATA, MOST_PROTOCOLS
from sparklog.broker.apis.replicas import elect_leaders
from sparklog.broker.apis.transactions import add_partitions_to_txn, describe_producers, write_txn_markers
from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.context import ApiRequest
from sparklog.broker.partition_changes import SLICE
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.group.classic.group import Group, GroupState, Member, Protocol
from sparklog.group.classic.requests import JoinAnswer, LeaveAnswer
from sparklog.group.removal import OffsetDeletion
from sparklog.protocol.messages import (
    AddPartitionsToTxnRequest,
    AlterConfigsRequest,
    CreatePartitionsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    ElectLeadersRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    WriteTxnMarkersRequest,
)
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import counted
from sparklog.zk.znodes import BrokerInfo

MANY = 3000
HOME = Endpoint("broker", 9092)


class Broker:
    """Knows every partition of ``t``; counts the looks at others that are possible while it awaits nothing."""

    authorizer = AllowEverything()

    def __init__(self):
        self.looks = 0
        self.turns = SimpleNamespace(paced=self.paced, time=ManualClock().monotonic)
        self.quotas = ClientQuotas(BrokerConfig(), ManualClock())
        self.metadata = SimpleNamespace(
            id_kept_for=lambda _: None,
            knows=lambda tp: tp.topic == "t",
            has_been_told=True,
            update=self.update,
            brokers={1: BrokerInfo(1, HOME)},
        )
        self.peers = SimpleNamespace(retain=self.retain)
        self.transactions = SimpleNamespace(add_partitions=self.add, verify=lambda *_: ErrorCode.NONE)
        self.txn_markers = SimpleNamespace(take=self.take)
        self.groups = SimpleNamespace(delete_offsets=self.delete_offsets, forget_topics=lambda _: None)
        self.fence = SimpleNamespace(admit=self.admit, check=lambda _: ErrorCode.NONE)
        self.taken, self.deletions, self.answers = [], [], []

    async def paced(self, items):
        for each in items:
            self.looks += 1
            yield each

    async def add(self, _id, _producer, partitions, _version):
        return ErrorCode.NONE

    async def take(self, _marker, partitions):
        self.taken.append(len(partitions))
        return dict.fromkeys(partitions, ErrorCode.NONE)

    async def delete_offsets(self, _group, partitions):
        self.deletions.append(len(partitions))
        if self.answers:
            return self.answers.pop(0)
        return OffsetDeletion(ErrorCode.NONE, dict.fromkeys(partitions, ErrorCode.NONE))

    async def admit(self, _request):
        return ErrorCode.NONE

    def update(self, _request, topics):
        self.taken = topics
        return []

    def retain(self, live):
        self.live = live


@pytest.fixture
def broker():
    return Broker()


def serve(broker, module, version, message):
    """How many steps it took, and the answer."""
    answer = module.handle(broker, ApiRequest(module.API, version, "c", Caller("h"), message))
    steps = 0
    if not inspect.iscoroutine(answer):
        steps, answer = counted(answer)
    return steps, asyncio.run(answer) if inspect.iscoroutine(answer) else answer


def test_partitions_of_a_transaction(broker):
    request = AddPartitionsToTxnRequest
    topics = [request.AddPartitionsToTxnTopic(name="t", partitions=list(range(MANY)))]
    message = request(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )
    steps, answer = serve(broker, add_partitions_to_txn, 3, message)
    assert steps >= MANY
    assert broker.looks >= MANY
    assert len(answer.results_by_topic_v3_and_below[0].results_by_partition) == MANY


def test_transactions_of_a_leader(broker):
    request = AddPartitionsToTxnRequest
    topics = [request.AddPartitionsToTxnTopic(name="t", partitions=[0])]
    transactions = [
        request.AddPartitionsToTxnTransaction(
            transactional_id=str(number), producer_id=1, producer_epoch=0, verify_only=bool(number % 2), topics=topics
        )
        for number in range(MANY)
    ]
    steps, answer = serve(broker, add_partitions_to_txn, 4, request(transactions=transactions))
    assert steps >= MANY
    assert broker.looks >= MANY // SLICE
    assert [each.transactional_id for each in answer.results_by_transaction] == [str(each) for each in range(MANY)]


def test_markers_are_written_a_slice_at_a_time_and_once_a_partition(broker):
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topics = [marker.WritableTxnMarkerTopic(name="t", partition_indexes=[*range(MANY), *range(MANY)])]
    markers = [marker(producer_id=1, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0)]
    _, answer = serve(broker, write_txn_markers, 1, WriteTxnMarkersRequest(markers=markers))
    assert sum(broker.taken) == MANY
    assert max(broker.taken) <= SLICE
    assert broker.looks >= MANY
    assert len(answer.markers[0].topics[0].partitions) == MANY


def offset_deletion(*names, count=MANY):
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    asked = [topic.OffsetDeleteRequestPartition(partition_index=number) for number in range(count)]
    return OffsetDeleteRequest(group_id="g", topics=[topic(name=name, partitions=asked) for name in names])


def test_offsets_are_deleted_a_slice_at_a_time(broker):
    steps, answer = serve(broker, offset_delete, 0, offset_deletion("t", "unknown"))
    assert steps >= 2 * MANY
    assert sum(broker.deletions) == MANY
    assert max(broker.deletions) <= MANY // 4
    codes = {topic.name: {each.error_code for each in topic.partitions} for topic in answer.topics}
    assert codes == {"t": {ErrorCode.NONE}, "unknown": {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}


def test_a_group_that_went_with_the_last_of_its_offsets_is_no_error(broker):
    first = {TopicPartition("t", number): ErrorCode.NONE for number in range(500)}
    broker.answers = [
        OffsetDeletion(ErrorCode.NONE, first),
        *[OffsetDeletion(ErrorCode.GROUP_ID_NOT_FOUND, {})] * 4,
        OffsetDeletion(ErrorCode.NOT_COORDINATOR, {}),
    ]
    _, answer = serve(broker, offset_delete, 0, offset_deletion("t"))
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [ErrorCode.NONE] * 2500 + [ErrorCode.NOT_COORDINATOR] * 500
    broker.answers = [OffsetDeletion(ErrorCode.GROUP_ID_NOT_FOUND, {})]
    _, answer = serve(broker, offset_delete, 0, offset_deletion("t"))
    assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_settings_of_many(broker):
    resource = AlterConfigsRequest.AlterConfigsResource
    message = AlterConfigsRequest(
        resources=[resource(resource_type=99, resource_name=str(number), configs=[]) for number in range(MANY)],
        validate_only=False,
    )
    steps, answer = serve(broker, alter_configs, 1, message)
    assert steps >= MANY
    assert broker.looks >= 2 * MANY
    assert {each.error_code for each in answer.responses} == {ErrorCode.INVALID_REQUEST}


def test_many_settings_of_one(broker):
    resource = AlterConfigsRequest.AlterConfigsResource
    entries = [resource.AlterableConfig(name=str(number), value="") for number in range(MANY)]
    message = AlterConfigsRequest(
        resources=[resource(resource_type=99, resource_name="", configs=entries)], validate_only=False
    )
    steps, answer = serve(broker, alter_configs, 1, message)
    assert steps >= MANY
    assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST


def test_a_cluster_is_looked_into_in_steps_and_taken_over_at_once(broker):
    topics = [("t", None, dict.fromkeys(range(MANY), 1)), ("u", None, {0: 1})]
    steps, answer = serve(broker, update_metadata, 7, update(topics=topics))
    assert answer.error_code == ErrorCode.NONE
    assert steps > MANY
    assert [len(topic.partitions) for topic in broker.taken] == [MANY, 1]
    assert broker.live == {HOME}
    broker.taken = None
    _, answer = serve(broker, update_metadata, 7, update(topics=[*topics, ("v", None, {-1: 1})]))
    assert (answer.error_code, broker.taken) == (ErrorCode.INVALID_REQUEST, None)


def test_what_a_controller_told_is_forgotten_some_partitions_at_a_time(broker):
    """99,990 of them took 40 ms to be freed, when the request was answered."""
    message = update(topics=[("t", None, dict.fromkeys(range(MANY), 1)), ("u", None, {0: 1})])
    serve(broker, update_metadata, 7, message)
    assert broker.looks == MANY // 500 + 1
    assert [each.partition_states for each in message.topic_states] == [[], []]


def names():
    return [f"t{number}" for number in range(MANY)]


def growth():
    topic = CreatePartitionsRequest.CreatePartitionsTopic
    topics = [topic(name=name, count=5, assignments=None) for name in names()]
    return create_partitions, 3, CreatePartitionsRequest(topics=topics, timeout_ms=0, validate_only=False)


def deletion(version):
    topics = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=None) for name in names()]
    return delete_topics, version, DeleteTopicsRequest(topics=topics, topic_names=names(), timeout_ms=0)


@pytest.mark.parametrize(("module", "version", "message"), [growth(), deletion(5), deletion(6)])
def test_topics_are_dealt_with_one_after_another(broker, module, version, message):
    broker.controller = SimpleNamespace(context=None, is_active=False)
    broker.metadata.name_of = broker.metadata.topic = lambda _: None
    _, answer = serve(broker, module, version, message)
    assert broker.looks >= MANY
    results = answer.results if module is create_partitions else answer.responses
    assert [(each.name, each.error_code) for each in results] == [(name, ErrorCode.NOT_CONTROLLER) for name in names()]


@pytest.mark.parametrize("topics", [1, MANY])
def test_elections_are_answered_in_steps(broker, topics):
    broker.controller = SimpleNamespace(context=None)
    asked = [
        ElectLeadersRequest.TopicPartitions(topic=f"t{number}", partitions=list(range(MANY // topics)))
        for number in range(topics)
    ]
    message = ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout_ms=0)
    steps, answer = serve(broker, elect_leaders, 2, message)
    assert steps >= MANY + topics
    codes = [each.error_code for result in answer.replica_election_results for each in result.partition_result]
    assert codes == [ErrorCode.NOT_CONTROLLER] * MANY


def test_members_leave_in_steps(broker):
    async def leave(_group, members):
        return LeaveAnswer(ErrorCode.NONE, (ErrorCode.UNKNOWN_MEMBER_ID,) * len(members))

    broker.groups = SimpleNamespace(members=SimpleNamespace(leave=leave))
    identity = LeaveGroupRequest.MemberIdentity
    members = [identity(member_id=str(number), group_instance_id=None) for number in range(MANY)]
    steps, answer = serve(broker, leave_group, 5, LeaveGroupRequest(group_id="g", members=members))
    assert steps >= MANY
    assert broker.looks >= MANY
    assert [each.member_id for each in answer.members] == [str(number) for number in range(MANY)]


def test_a_member_of_too_many_protocols_is_refused(broker):
    asked = []

    async def join(_group, request):
        asked.append(len(request.protocols))
        return JoinAnswer(ErrorCode.NONE, "m")

    broker.groups = SimpleNamespace(members=SimpleNamespace(join=join))
    for count, code in ((MOST_PROTOCOLS, ErrorCode.NONE), (MOST_PROTOCOLS + 1, ErrorCode.INVALID_REQUEST)):
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        protocols = [protocol(name=str(number), metadata=b"") for number in range(count)]
        message = JoinGroupRequest(group_id="g", member_id="m", protocols=protocols)
        _, answer = serve(broker, join_group, 9, message)
        assert (answer.error_code, answer.member_id, answer.generation_id) == (code, "m", -1)
    assert asked == [MOST_PROTOCOLS]


@pytest.mark.parametrize(("more", "code"), [(0, ErrorCode.NONE), (1, ErrorCode.INVALID_REQUEST)])
def test_a_member_of_too_much_metadata_is_refused(broker, more, code):
    """Ninety megabytes were kept of each group that a client made up, for half an hour."""

    async def join(_group, _request):
        return JoinAnswer(ErrorCode.NONE, "m")

    broker.groups = SimpleNamespace(members=SimpleNamespace(join=join))
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    protocols = [protocol(name=str(size), metadata=bytes(size)) for size in (MOST_METADATA - 10, 10 + more)]
    message = JoinGroupRequest(group_id="g", member_id="m", protocols=protocols)
    assert serve(broker, join_group, 9, message)[1].error_code == code


def fetches(names, topics):
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    asked = [group.OffsetFetchRequestTopics(name=f"t{number}", partition_indexes=[0]) for number in range(topics)]
    return OffsetFetchRequest(groups=[group(group_id=name, topics=asked) for name in names], require_stable=False)


@pytest.mark.parametrize(("groups", "topics"), [(MANY, 0), (1, MANY)])
def test_offsets_of_groups_are_fetched_in_steps(broker, groups, topics):
    broker.groups.fetch_offsets = lambda _group, partitions, *_: (ErrorCode.NONE, dict.fromkeys(partitions))
    named = [f"g{number}" for number in range(groups)]
    steps, answer = serve(broker, offset_fetch, 8, fetches(named, topics))
    assert steps >= 2 * MANY
    assert [each.group_id for each in answer.groups] == named
    assert [len(each.topics) for each in answer.groups] == [topics] * groups


def test_a_partition_whose_producers_are_asked_for_twice_is_described_once(broker):
    described = []

    def partition(tp):
        described.append(tp)
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    broker.replicas = SimpleNamespace(partition=partition)
    topic = DescribeProducersRequest.TopicRequest
    asked = [("t", [0, 1, 0]), ("u", [0]), ("t", [1, 2])]
    message = DescribeProducersRequest(topics=[topic(name=name, partition_indexes=numbers) for name, numbers in asked])
    _, answer = serve(broker, describe_producers, 0, message)
    told = {each.name: [partition.partition_index for partition in each.partitions] for each in answer.topics}
    assert told == {"t": [0, 1, 2], "u": [0]}
    assert len(described) == 4


def test_a_large_group_is_described_in_steps_as_it_was(broker):
    group = Group("g", GroupState.STABLE, generation=1, protocol_type="consumer", protocol="range")
    for number in range(MANY):
        group.add(Member(f"m{number}", None, "c", "/h", 1, 1, (Protocol("range", b"old"),), b"old"))
    broker.groups.describe_group = lambda _: (ErrorCode.NONE, group)
    message = DescribeGroupsRequest(groups=["g"], include_authorized_operations=False)
    answering = describe_groups.handle(broker, ApiRequest(describe_groups.API, 5, "c", Caller("h"), message))
    next(answering)
    for member in group.members.values():
        member.protocols, member.assignment = (Protocol("range", b"new"),), b"new"
    group.remove("m1")
    group.state = GroupState.PREPARING_REBALANCE
    steps, answer = counted(answering)
    assert steps >= MANY - 1
    assert (answer.groups[0].group_state, answer.groups[0].protocol_data) == ("Stable", "range")
    assert [each.member_id for each in answer.groups[0].members] == [f"m{number}" for number in range(MANY)]
    assert {(each.member_metadata, each.member_assignment) for each in answer.groups[0].members} == {(b"old", b"old")}
