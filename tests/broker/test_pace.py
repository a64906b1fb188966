"""Handlers of long requests: others are served between their elements."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from sparklog.broker.apis import (
    alter_partition,
    alter_replica_log_dirs,
    create_topics,
    describe_configs,
    get_replica_log_info,
)
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
    CreateTopicsRequest,
    DescribeConfigsRequest,
    GetReplicaLogInfoRequest,
)
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import Endpoint
from sparklog.testing.clock import ManualClock
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
