"""Administrative handlers where a healthy broker cannot show what they say."""

import asyncio
import inspect
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparklog.broker.apis.cluster import create_partitions
from sparklog.broker.apis.replicas import (
    alter_partition_reassignments,
    describe_log_dirs,
    elect_leaders,
    list_partition_reassignments,
)
from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.context import ApiRequest
from sparklog.config.broker import BrokerConfig
from sparklog.controller.context import ControllerContext
from sparklog.controller.election import elect_unclean, prefer
from sparklog.errors import ErrorCode
from sparklog.log.directories.usage import DirectoryUse, LogUse
from sparklog.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    decode_response,
    encode,
)
from sparklog.protocol.slices import done
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import NO_LEADER, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import finish
from sparklog.zk.znodes import PartitionState, TopicAssignment

TP = TopicPartition("t", 0)
PREFERRED, UNCLEAN = 0, 1


def ask(module, broker, message):
    """The answer as a client gets it, in the newest version."""
    version = module.VERSIONS.stop - 1
    answer = module.handle(broker, ApiRequest(module.API, version, "me", Caller("h"), message))
    answer = finish(answer) if inspect.isgenerator(answer) else answer
    if asyncio.iscoroutine(answer):
        answer = asyncio.run(answer)
    return decode_response(module.API, version, memoryview(encode(answer, version)))


async def unpaced(items):
    for each in items:
        yield each


async def driven(steps, _what):
    return finish(steps)


def broker_with(context):
    async def give_back(partitions):
        for tp, state in prefer(context, partitions).items():
            context.states[tp] = state

    async def force(partitions):
        for tp in partitions:
            context.states[tp] = elect_unclean(context, tp)

    controller = SimpleNamespace(
        context=context,
        is_active=context is not None,
        elect_preferred=give_back,
        elect_unclean=force,
    )
    return SimpleNamespace(
        authorizer=AllowEverything(),
        quotas=ClientQuotas(BrokerConfig(), ManualClock()),
        controller=controller,
        turns=SimpleNamespace(paced=unpaced, drive=driven, time=ManualClock().monotonic),
    )


def cluster(leader, live=(1,), deleting=()):
    context = ControllerContext(1, 0, brokers=dict.fromkeys(live), deleting=set(deleting))
    context.assign(TopicAssignment("t", {0: (1,)}))
    context.states[TP] = PartitionState(leader, 0, (1,), 1)
    return broker_with(context)


def election(kind, everywhere=False):
    asked = None if everywhere else [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
    return ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=1000)


def growth():
    asked = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=5, assignments=None)
    return CreatePartitionsRequest(topics=[asked], timeout_ms=1000, validate_only=False)


def reassignment(replicas):
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    asked = topic(name="t", partitions=[topic.ReassignablePartition(partition_index=0, replicas=replicas)])
    return AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[asked])


@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize(
    ("broker", "kind", "code"),
    [
        (cluster(NO_LEADER, live=(2,)), PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (cluster(NO_LEADER, live=(2,)), UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (cluster(1, deleting=("t",)), PREFERRED, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_partition_that_can_have_no_leader(broker, kind, code, everywhere):
    answer = ask(elect_leaders, broker, election(kind, everywhere))
    assert answer.error_code == ErrorCode.NONE
    ((result,),) = (each.partition_result for each in answer.replica_election_results)
    assert (result.partition_id, result.error_code) == (0, code)
    assert result.error_message


def test_only_the_controller_answers():
    broker = broker_with(None)
    elected = ask(elect_leaders, broker, election(PREFERRED))
    assert elected.error_code == ErrorCode.NOT_CONTROLLER
    assert elected.replica_election_results[0].partition_result[0].error_code == ErrorCode.NOT_CONTROLLER
    assert ask(elect_leaders, broker, election(PREFERRED, everywhere=True)).error_code == ErrorCode.NOT_CONTROLLER
    assert ask(create_partitions, broker, growth()).results[0].error_code == ErrorCode.NOT_CONTROLLER
    assert ask(alter_partition_reassignments, broker, reassignment([1])).error_code == ErrorCode.NOT_CONTROLLER
    listing = ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None)
    assert ask(list_partition_reassignments, broker, listing).error_code == ErrorCode.NOT_CONTROLLER


def test_moves_are_looked_up_as_they_are_come_to_and_told_once(monkeypatch):
    """19,000 names were looked at before the first of them was: 28 ms."""
    broker, taken = cluster(1), []

    class Numbers(list[int]):
        def __iter__(self):
            for each in super().__iter__():
                taken.append(each)
                yield each

    topic = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    message = ListPartitionReassignmentsRequest(timeout_ms=0, topics=[topic(name="t", partition_indexes=Numbers([0]))])
    message.topics[0].partition_indexes = Numbers([0, 0, *range(7, 1000)])
    move = SimpleNamespace(replicas=(1,), adding=(), removing=())
    monkeypatch.setattr(list_partition_reassignments, "in_progress", lambda _, tp: None if tp.partition else move)
    request = ApiRequest(list_partition_reassignments.API, 0, "c", Caller("h"), message)
    steps = list_partition_reassignments.handle(broker, request)
    next(steps)
    assert taken == [0]
    answer = finish(steps)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, ""), "as Kafka's"
    (told,) = answer.topics
    assert [each.partition_index for each in told.partitions] == [0]


def test_a_directory_that_failed_is_told_as_failed():
    uses = [DirectoryUse(Path("/good"), None, {TP: LogUse(7)}, 100, 50), DirectoryUse(Path("/bad"), "cable pulled")]
    broker = SimpleNamespace(authorizer=AllowEverything(), replicas=SimpleNamespace(log_dirs=lambda: done(uses)))
    good, bad = ask(describe_log_dirs, broker, DescribeLogDirsRequest(topics=None)).results
    assert (good.error_code, good.log_dir, good.total_bytes, good.usable_bytes) == (ErrorCode.NONE, "/good", 100, 50)
    assert [(each.name, each.partitions[0].partition_size) for each in good.topics] == [("t", 7)]
    assert (bad.error_code, bad.log_dir, bad.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, "/bad", [])
    assert (bad.total_bytes, bad.usable_bytes) == (-1, -1)


def test_an_election_is_told_as_done():
    broker = cluster(NO_LEADER)
    answer = ask(elect_leaders, broker, election(UNCLEAN))
    ((result,),) = (each.partition_result for each in answer.replica_election_results)
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert broker.controller.context.states[TP].leader == 1
