"""Handlers of long requests: others are served between their elements."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest
from broker.security.acl_lists import ROOT, FakeStore, following

from sparklog.broker.apis.cluster import create_topics, describe_configs
from sparklog.broker.apis.replicas import alter_partition, alter_replica_log_dirs, get_replica_log_info
from sparklog.broker.apis.security import create_acls, delete_acls, describe_acls
from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.context import ApiRequest
from sparklog.broker.topics import TopicMaker
from sparklog.config.broker import parse_broker_config
from sparklog.config.dynamic import Layers
from sparklog.errors import ApiError, ErrorCode
from sparklog.net.turns import SHARE_S, Turns
from sparklog.protocol.messages import (
    AlterPartitionRequest,
    AlterReplicaLogDirsRequest,
    CreateAclsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeConfigsRequest,
    GetReplicaLogInfoRequest,
)
from sparklog.security.access import AllowEverything, ResourceType
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import ResourcePattern
from sparklog.security.caller import Caller
from sparklog.structs import Endpoint
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import counted
from sparklog.zk.znodes import BrokerInfo

MANY = 50
ID = UUID(int=7)
TOPIC, BROKER = 2, 4


class SlowClock(ManualClock):
    """Whatever is done between two looks at it takes a share of the loop's time."""

    def monotonic(self):
        self.advance(SHARE_S)
        return super().monotonic()


def broker_of(loop, **parts):
    layers = Layers(parse_broker_config({}))
    settings = SimpleNamespace(layers=layers, topic_defaults=layers.topic_defaults)
    metadata = SimpleNamespace(
        brokers={0: BrokerInfo(0, Endpoint("localhost", 9092))},
        topics=list,
        topic=parts.pop("topic", lambda name: None),
    )
    return SimpleNamespace(
        authorizer=AllowEverything(),
        quotas=ClientQuotas(layers.static, ManualClock()),
        turns=Turns(loop, SlowClock()),
        config=layers.static,
        settings=settings,
        metadata=metadata,
        topics=TopicMaker(settings, metadata, None, None),
        **parts,
    )


async def with_others(work):
    """What is awaited comes to, and how often others had the loop meanwhile."""
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(others())
    done = await work
    beside.cancel()
    return done, turns


def served(handler, version, message, **parts):
    """The answer, and how often others had the loop meanwhile."""

    async def serve():
        broker = broker_of(asyncio.get_running_loop(), **parts)
        return await with_others(
            handler.handle(broker, ApiRequest(handler.API, version, "me", Caller("host"), message))
        )

    return asyncio.run(serve())


@pytest.mark.parametrize("validate_only", [True, False])
def test_topics_are_made_one_after_another(validate_only):
    topic = CreateTopicsRequest.CreatableTopic
    message = CreateTopicsRequest(
        topics=[
            topic(name=f"t{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for number in range(MANY)
        ],
        timeout_ms=0,
        validate_only=validate_only,
    )
    made = []

    async def run_zk(create, assignment, config):
        made.append(assignment.topic)
        return True

    controller = SimpleNamespace(is_active=True)

    def handle(broker, request):
        broker.topics = TopicMaker(
            broker.settings, broker.metadata, SimpleNamespace(topics=SimpleNamespace(create=None)), run_zk
        )
        return create_topics.handle(broker, request)

    handler = SimpleNamespace(API=create_topics.API, handle=handle)
    answer, turns = served(handler, 7, message, controller=controller)
    code = ErrorCode.NONE if validate_only else ErrorCode.REQUEST_TIMED_OUT  # made, and not waited for
    assert [each.error_code for each in answer.topics] == [code] * MANY
    assert [each.name for each in answer.topics] == [f"t{number}" for number in range(MANY)]
    assert made == ([] if validate_only else [f"t{number}" for number in range(MANY)])
    assert turns > MANY


def describe(*resources):
    asked = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[asked(resource_type=kind, resource_name=name, configuration_keys=None) for kind, name in resources],
        include_synonyms=True,
        include_documentation=True,
    )


async def nothing_stored(call, *args):
    return {}


def test_settings_are_described_one_resource_after_another():
    message = describe(*((TOPIC, f"t{number}") for number in range(MANY)))
    zk = SimpleNamespace(configs=SimpleNamespace(of_topic=None))
    answer, turns = served(describe_configs, 4, message, topic=str, zk=zk, run_zk=nothing_stored)
    assert [each.error_code for each in answer.results] == [ErrorCode.NONE] * MANY
    assert turns > MANY
    first, last = answer.results[0].configs, answer.results[-1].configs
    assert all(one is other for one, other in zip(first, last, strict=True)), "what is the same is held once"


def test_a_resource_is_described_once():
    answer, _ = served(describe_configs, 4, describe((BROKER, ""), (BROKER, "0"), (BROKER, "0")))
    assert [each.error_code for each in answer.results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]


def test_the_ends_of_many_logs_are_told_in_steps():
    topic = GetReplicaLogInfoRequest.TopicLogs(name="t", topic_id=ID, partitions=list(range(MANY)))
    message = GetReplicaLogInfoRequest(broker_id=0, topics=[topic])
    parts = {"fence": SimpleNamespace(broker_epoch=5), "replicas": SimpleNamespace(log_end=lambda tp, topic_id: (1, 2))}
    answer, turns = served(get_replica_log_info, 0, message, **parts)
    assert [each.partition for each in answer.topics[0].partitions] == list(range(MANY))
    assert turns >= MANY // 5


@pytest.mark.parametrize(("topics", "partitions"), [(1, MANY), (MANY, 1)])
def test_many_isrs_are_asked_for_and_answered_in_steps(topics, partitions):
    kind = AlterPartitionRequest.TopicData
    ids = [UUID(int=number + 1) for number in range(topics)]
    asked = [
        kind(
            topic_id=topic_id,
            partitions=[
                kind.PartitionData(partition_index=number, leader_epoch=0, new_isr_with_epochs=[], partition_epoch=0)
                for number in range(partitions)
            ],
        )
        for topic_id in ids
    ]

    async def change_isrs(_leader, _epoch, asked):
        return dict.fromkeys(asked, ErrorCode.FENCED_LEADER_EPOCH)

    context = SimpleNamespace(named=lambda topic_id: str(topic_id))
    message = AlterPartitionRequest(broker_id=0, broker_epoch=5, topics=asked)
    controller = SimpleNamespace(context=context, change_isrs=change_isrs)
    answer, turns = served(alter_partition, 3, message, controller=controller)
    assert [topic.topic_id for topic in answer.topics] == ids
    assert sum(len(topic.partitions) for topic in answer.topics) == MANY
    assert turns >= MANY // 2


def test_many_moves_between_directories_are_answered_in_steps():
    directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topic = directory.AlterReplicaLogDirTopic(name="t", partitions=list(range(MANY)))
    message = AlterReplicaLogDirsRequest(dirs=[directory(path="/x", topics=[topic])])

    async def alter(_tp, _path):
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, "no such directory")

    replicas = SimpleNamespace(futures=SimpleNamespace(alter=alter))
    answer, turns = served(alter_replica_log_dirs, 2, message, replicas=replicas)
    codes = {each.partition_index: each.error_code for each in answer.results[0].partitions}
    assert codes == dict.fromkeys(range(MANY), ErrorCode.LOG_DIR_NOT_FOUND)
    assert turns >= 2 * MANY + MANY // 5, "the answer is made in steps too"


def served_with_lists(handler, message, store):
    """As ``served``, by a broker that follows the access control lists of the store."""

    async def serve():
        loop = asyncio.get_running_loop()
        async with following(store) as acls:
            broker = SimpleNamespace(authorizer=acls.authorizer, acls=acls, turns=Turns(loop, SlowClock()))
            return await with_others(handler.handle(broker, ApiRequest(handler.API, 3, "me", ROOT, message)))

    return asyncio.run(serve())


def test_the_entries_of_one_access_control_list_are_dealt_with_one_after_another():
    """Eight thousand, which are administered and told of in one go, held up all others for 140 ms."""
    creation = CreateAclsRequest.AclCreation
    named = {"resource_type": TOPIC, "resource_name": "t", "resource_pattern_type": 3}
    entry = {"host": "*", "operation": 3, "permission_type": 3}
    store = FakeStore()
    made = [creation(**named, **entry, principal=f"User:u{number}") for number in range(MANY)]
    added, turns = served_with_lists(create_acls, CreateAclsRequest(creations=made), store)
    assert {each.error_code for each in added.results} == {ErrorCode.NONE}
    assert turns > 6 * MANY
    every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    filter_ = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter")) | every
    deletion = DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**filter_)])
    removed, turns = served_with_lists(delete_acls, deletion, store)
    assert len(removed.filter_results[0].matching_acls) == MANY
    assert turns > 2 * MANY


def test_the_entries_of_one_access_control_list_are_described_one_after_another():
    store = FakeStore()
    store.lists[ResourcePattern(ResourceType.TOPIC, "t")] = frozenset(
        AclEntry(f"User:u{number}") for number in range(MANY)
    )
    every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    message = DescribeAclsRequest(**every, **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter")))

    async def described():
        async with following(store) as acls:
            broker = SimpleNamespace(authorizer=acls.authorizer, acls=acls)
            return counted(describe_acls.handle(broker, ApiRequest(describe_acls.API, 3, "me", ROOT, message)))

    steps, answer = asyncio.run(described())
    assert len(answer.resources[0].acls) == MANY
    assert steps > MANY
