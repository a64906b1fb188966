"""Whom an admin client asks, and what becomes of the others where one does not answer."""

import asyncio

import pytest

from sparklog.client.admin.admin import AsyncAdmin
from sparklog.errors import ApiError, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DeleteRecordsResponse
from sparklog.structs import NO_LEADER, TopicPartition
from sparklog.testing.scripted import HangUp, ScriptedCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def hang_up(asked):
    raise HangUp


async def never(asked):
    await asyncio.Event().wait()


class Deletions:
    """What brokers were told to delete; ``came`` is set with the first."""

    def __init__(self):
        self.partitions = set()
        self.came = asyncio.Event()

    def __call__(self, asked):
        form = DeleteRecordsResponse.DeleteRecordsTopicResult
        told = []
        for topic in asked.message.topics:
            self.partitions |= {TopicPartition(topic.name, each.partition_index) for each in topic.partitions}
            results = [
                form.DeleteRecordsPartitionResult(
                    partition_index=each.partition_index, low_watermark=each.offset, error_code=0
                )
                for each in topic.partitions
            ]
            told.append(form(name=topic.name, partitions=results))
        self.came.set()
        return DeleteRecordsResponse(throttle_time_ms=0, topics=told)


async def deleting(scene, leaders=(0, 1), timeout_ms=500):
    """The outcome of deleting records of both partitions, and of which they were deleted."""
    deletions = Deletions()
    async with ScriptedCluster(brokers=2) as cluster:
        cluster.topics["t"] = list(leaders)
        cluster.on[ApiKey.DELETE_RECORDS] = deletions
        if scene is not None:
            cluster.brokers[0].on[ApiKey.DELETE_RECORDS] = scene
        settings = {"default_api_timeout_ms": timeout_ms, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5}
        async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers, **settings) as admin:
            task = asyncio.create_task(admin.delete_records({T0: 3, T1: 4}))
            async with asyncio.timeout(20):
                await asyncio.wait([task, asyncio.create_task(deletions.came.wait())], return_when="FIRST_COMPLETED")
                return (await asyncio.gather(task, return_exceptions=True))[0], deletions.partitions


def test_every_leader_is_asked_about_its_own():
    outcome, deleted = asyncio.run(deleting(None, timeout_ms=20_000))
    assert outcome == {T0: 3, T1: 4}
    assert deleted == {T0, T1}


@pytest.mark.parametrize("scene", [hang_up, never])
def test_a_leader_that_does_not_answer_keeps_no_other_from_being_asked(scene):
    outcome, deleted = asyncio.run(deleting(scene))
    assert isinstance(outcome, SparklogError)
    assert deleted == {T1}


def test_a_partition_without_a_leader_keeps_no_other_from_being_asked():
    outcome, deleted = asyncio.run(deleting(None, leaders=(NO_LEADER, 1)))
    assert isinstance(outcome, ApiError)
    assert "no broker leads partition t-0" in str(outcome)
    assert deleted == {T1}
