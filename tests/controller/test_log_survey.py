"""Whose log is the longest: who is asked, and which answers count."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

import pytest

from sparklog.controller import log_survey
from sparklog.controller.context import ControllerContext
from sparklog.controller.eligible import UNTOLD, LogEnd
from sparklog.controller.log_survey import NOTHING, LogSurvey, candidates
from sparklog.errors import ErrorCode
from sparklog.net.peers import Peers
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import GetReplicaLogInfoResponse
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.scripted import HangUp, ScriptedCluster
from sparklog.zk.znodes import BrokerInfo, PartitionState, TopicAssignment

TP = TopicPartition("t", 0)
ID = UUID(int=7)
EPOCH = 50
NOT_OFFERED = "as Kafka's brokers"


def context_of(state, brokers):
    context = ControllerContext(9, 0)
    context.brokers = {each.id: each for each in brokers}
    context.assign(TopicAssignment("t", {0: (1, 2, 3)}, ID))
    context.states = {TP: state}
    return context


def fallen(*last_known, isr=(1,)):
    return PartitionState(-1, 5, isr, 9, 3, last_known=last_known)


@pytest.mark.parametrize(
    ("state", "live", "found"),
    [
        (fallen(1, 2), {1, 2, 3}, (1, 2)),
        (fallen(1, 2), {1, 3}, ()),
        (fallen(2, isr=(1,)), {1, 2, 3}, ()),
        (PartitionState(1, 5, (1, 2), 9, 3), {1, 2, 3}, ()),
    ],
    ids=["all live", "one is away", "one stands, and is waited for", "there is a leader"],
)
def test_the_candidates(state, live, found):
    assert candidates(context_of(state, [BrokerInfo(each, Endpoint("h", 1)) for each in live]), TP) == found


def test_one_that_cannot_hold_the_partition_is_waited_for():
    context = context_of(fallen(1, 2), [BrokerInfo(each, Endpoint("h", 1)) for each in (1, 2)])
    context.refused(2, TP, ErrorCode.KAFKA_STORAGE_ERROR)
    assert candidates(context, TP) == ()


@asynccontextmanager
async def surveyed(*words):
    """The context and the survey of brokers 1, 2 and so on that say this; and an event that it sets."""
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        clusters = [await stack.enter_async_context(ScriptedCluster()) for _ in words]
        for number, (cluster, word) in enumerate(zip(clusters, words, strict=True), 1):
            if word is not NOT_OFFERED:
                cluster.on[ApiKey.GET_REPLICA_LOG_INFO] = answering(number, word)
        endpoints = enumerate([each.brokers[0].endpoint for each in clusters], 1)
        context = context_of(
            fallen(*range(1, len(words) + 1)), [BrokerInfo(each, endpoint, epoch=EPOCH) for each, endpoint in endpoints]
        )
        told = asyncio.Event()
        survey = LogSurvey(Peers("us"), told.set)
        try:
            yield context, survey, told
        finally:
            await survey.close()


def answering(number, word):
    async def answer(asked):
        (topic,) = asked.message.topics
        assert (asked.message.broker_id, topic.name, topic.topic_id, topic.partitions) == (number, "t", ID, [0])
        if word is HangUp:
            raise HangUp
        epoch, code, end = word
        kind = GetReplicaLogInfoResponse.TopicLogInfo
        info = kind.PartitionLogInfo(
            partition=0, last_written_leader_epoch=end[0], log_end_offset=end[1], error_code=code
        )
        return GetReplicaLogInfoResponse(
            throttle_time_ms=0, error_code=0, broker_epoch=epoch, topics=[kind(name="t", partitions=[info])]
        )

    return answer


async def ends_of(context, survey, told):
    survey.ask(context, [TP])
    while survey._asking:
        await told.wait()
        told.clear()
    return context.log_ends.get(TP, {})


@pytest.mark.parametrize(
    ("words", "ends"),
    [
        ([(EPOCH, 0, (4, 9)), (EPOCH, 0, (4, 7))], {1: LogEnd(4, 9), 2: LogEnd(4, 7)}),
        ([(EPOCH, 0, (4, 9)), NOT_OFFERED], {1: LogEnd(4, 9), 2: UNTOLD}),
        ([(EPOCH, 0, (4, 9)), (EPOCH - 1, 0, (4, 7))], {1: LogEnd(4, 9)}),
        ([(EPOCH, 0, (4, 9)), (EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (-1, -1))], {1: LogEnd(4, 9), 2: NOTHING}),
        ([(EPOCH, 0, (4, 9)), (EPOCH, ErrorCode.KAFKA_STORAGE_ERROR, (-1, -1))], {1: LogEnd(4, 9)}),
        ([(EPOCH, 0, (4, 9)), HangUp], {1: LogEnd(4, 9)}),
    ],
    ids=[
        "both tell",
        "one cannot tell",
        "another registration answers",
        "nothing of it is there",
        "it cannot be served",
        "one does not answer",
    ],
)
def test_what_brokers_tell(words, ends, monkeypatch):
    monkeypatch.setattr(log_survey, "_ASK_AGAIN_S", 0)

    async def main():
        async with surveyed(*words) as (context, survey, told):
            assert await ends_of(context, survey, told) == ends

    asyncio.run(main())


def test_what_a_broker_told_counts_as_long_as_it_is_registered():
    async def main():
        async with surveyed((EPOCH, 0, (4, 9)), (EPOCH, 0, (4, 7))) as (context, survey, told):
            await ends_of(context, survey, told)
            context.begin_anew(2)
            assert context.log_ends[TP] == {1: LogEnd(4, 9)}
            context.brokers[2] = context.brokers[2]._replace(epoch=EPOCH + 1)
            assert await ends_of(context, survey, told) == {1: LogEnd(4, 9)}, "it answers for what it was before"

    asyncio.run(main())
