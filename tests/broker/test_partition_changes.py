"""Partitions made and taken away: off the loop, and each under the fence of its own turn."""

import asyncio
import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from uuid import UUID

import pytest
from broker.apis.replicas.test_leader_and_isr import Fence

from sparklog.broker.apis.replicas import leader_and_isr, stop_replica
from sparklog.broker.context import ApiRequest
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.checkpoints import read_topic_id
from sparklog.log.directories.manager import LogManager
from sparklog.net.turns import Turns
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import LeaderAndIsrRequest, StopReplicaRequest
from sparklog.replica.manager import ReplicaManager
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles

ME, ID, OTHER_ID = 2, UUID(int=5), UUID(int=6)
INCREMENTAL = 1
MANY = 70
"""More than two slices."""


class Broker:
    """The parts that take partitions over and let them go, on real files."""

    authorizer = AllowEverything()

    def __init__(self, home, disk, loop):
        self.home = home
        self.logs = LogManager([home], TopicConfig(), ManualClock(), disk)
        self.replicas = ReplicaManager(ME, self.logs, loop)
        self.fence = Fence()
        self.turns = Turns(loop)
        self.settings = SimpleNamespace(changes_taken_over=0)
        self.fetchers = SimpleNamespace(look_at=lambda _: None, leave=lambda _: None)
        self.kept: frozenset[int] = frozenset()
        self.zk = SimpleNamespace(topics=SimpleNamespace(kept_by=lambda broker_id, topic: self.kept))
        self.on_disk = lambda: None
        self._disk, self._loop = disk, loop

    async def topic_config(self, topic):
        return TopicConfig()

    async def run_zk(self, call, *args):
        return call(*args)

    def run_disk(self, call, *args):
        def run():
            done = call(*args)
            self.on_disk()
            return done

        return self._loop.run_in_executor(self._disk, run)

    def stop_coordinating(self, tp):
        raise AssertionError(tp)

    coordinate = staticmethod(lambda tp: None)

    async def lead(self, count, topic_id=ID, is_new=True):
        topic = LeaderAndIsrRequest.LeaderAndIsrTopicState
        states = [
            topic.LeaderAndIsrPartitionState(
                partition_index=number,
                controller_epoch=1,
                leader=ME,
                leader_epoch=3,
                isr=[ME],
                replicas=[ME],
                is_new=is_new,
            )
            for number in range(count)
        ]
        message = LeaderAndIsrRequest(
            type=INCREMENTAL, topic_states=[topic(topic_name="t", topic_id=topic_id, partition_states=states)]
        )
        answer = await leader_and_isr.handle(self, ApiRequest(ApiKey.LEADER_AND_ISR, 6, "c", Caller("h"), message))
        return [each.error_code for each in answer.topics[0].partition_errors]

    def doomed(self, count):
        topic = StopReplicaRequest.StopReplicaTopicState
        states = [
            topic.StopReplicaPartitionState(partition_index=number, leader_epoch=3, delete_partition=True)
            for number in range(count)
        ]
        return topic(topic_name="t", partition_states=states)

    async def stop(self, count):
        message = StopReplicaRequest(topic_states=[self.doomed(count)])
        answer = await stop_replica.handle(self, ApiRequest(ApiKey.STOP_REPLICA, 3, "c", Caller("h"), message))
        return [each.error_code for each in answer.partition_errors]

    def directories(self):
        return sorted(path.name for path in self.home.iterdir() if path.is_dir())


def with_broker(home, scenario):
    async def run():
        with ThreadPoolExecutor(1) as disk:
            broker = Broker(home, disk, asyncio.get_running_loop())
            broker.stop_coordinating = lambda tp: None
            await scenario(broker)
            await asyncio.get_running_loop().run_in_executor(disk, lambda: None)  # what was left to be removed is
            found = broker.directories()
            broker.logs.close()
            return found

    return asyncio.run(run())


@pytest.fixture
def syncs(monkeypatch):
    """The threads that waited for the disk, and for what."""
    found, fsync = [], os.fsync

    def sync(fd):
        found.append((threading.get_ident(), os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", sync)
    return found


def test_partitions_that_are_here_are_taken_over_without_the_disk_or_zookeeper(tmp_path):
    async def scenario(broker):
        assert await broker.lead(MANY) == [ErrorCode.NONE] * MANY

        async def topic_config(topic):
            raise AssertionError(f"the settings of {topic} are known")

        def on_disk():
            raise AssertionError("nothing is to be made")

        broker.topic_config, broker.on_disk = topic_config, on_disk
        assert await broker.lead(MANY) == [ErrorCode.NONE] * MANY

    with_broker(tmp_path, scenario)


def test_the_loop_never_waits_for_the_disk_while_partitions_come_and_go(tmp_path, syncs):
    async def scenario(broker):
        assert await broker.lead(MANY) == [ErrorCode.NONE] * MANY
        of_home = [path for _, path in syncs if path == str(tmp_path)]
        assert len(of_home) == 3  # one a slice
        assert all(broker.logs.logs[TopicPartition("t", n)].epochs.latest == (3, 0) for n in range(MANY))
        assert all(read_topic_id(tmp_path / f"t-{n}") == ID for n in range(MANY))
        syncs_before = len(syncs)
        assert await broker.stop(MANY) == [ErrorCode.NONE] * MANY
        assert [path for _, path in syncs[syncs_before:]] == [str(tmp_path)] * 3
        assert threading.get_ident() not in {thread for thread, _ in syncs}

    assert with_broker(tmp_path, scenario) == []


def test_what_was_made_for_a_controller_that_is_replaced_meanwhile_is_removed(tmp_path):
    async def scenario(broker):
        def replaced():
            broker.fence.code = ErrorCode.STALE_CONTROLLER_EPOCH

        broker.on_disk = replaced
        assert await broker.lead(3) == [ErrorCode.STALE_CONTROLLER_EPOCH] * 3
        assert (broker.logs.logs, broker.directories()) == ({}, [])
        broker.fence.code, broker.on_disk = ErrorCode.NONE, lambda: None
        assert await broker.lead(2, OTHER_ID) == [ErrorCode.NONE] * 2
        assert {log.topic_id for log in broker.logs.logs.values()} == {OTHER_ID}

    assert with_broker(tmp_path, scenario) == ["t-0", "t-1"]


def test_what_is_this_brokers_in_zookeeper_is_not_deleted(tmp_path):
    async def scenario(broker):
        await broker.lead(3)
        broker.kept = frozenset({0, 2})
        assert await broker.stop(3) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
        assert sorted(broker.logs.logs) == [TopicPartition("t", 0), TopicPartition("t", 2)]

    assert with_broker(tmp_path, scenario) == ["t-0", "t-2"]


def test_nothing_is_deleted_while_zookeeper_does_not_answer(tmp_path):
    async def scenario(broker):
        async def run_zk(call, *args):
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)

        await broker.lead(1)
        broker.run_zk = run_zk
        message = StopReplicaRequest(topic_states=[broker.doomed(1)])
        answer = await stop_replica.handle(broker, ApiRequest(ApiKey.STOP_REPLICA, 3, "c", Caller("h"), message))
        assert (answer.error_code, answer.partition_errors) == (ErrorCode.REQUEST_TIMED_OUT, [])

    assert with_broker(tmp_path, scenario) == ["t-0"]


def test_partitions_are_deleted_after_they_were_made_and_made_after_they_were_deleted(tmp_path):
    async def scenario(broker):
        answers = await asyncio.gather(broker.lead(2), broker.stop(2), broker.lead(1, OTHER_ID))
        assert answers == [[ErrorCode.NONE] * 2, [ErrorCode.NONE] * 2, [ErrorCode.NONE]]
        assert {tp: log.topic_id for tp, log in broker.logs.logs.items()} == {TopicPartition("t", 0): OTHER_ID}

    assert with_broker(tmp_path, scenario) == ["t-0"]


def test_a_request_whose_sender_has_gone_leaves_nothing_half_done(tmp_path):
    async def scenario(broker):
        on_disk = asyncio.Event()
        loop = asyncio.get_running_loop()
        broker.on_disk = lambda: loop.call_soon_threadsafe(on_disk.set)
        request = asyncio.ensure_future(broker.lead(2))
        await asyncio.sleep(0)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        assert await broker.stop(2) == [ErrorCode.NONE] * 2
        assert (broker.logs.logs, broker.logs.unusable) == ({}, {})

    assert with_broker(tmp_path, scenario) == []


def test_a_partition_that_was_made_on_a_disk_that_fails_then_is_not_made_elsewhere(tmp_path):
    async def scenario(broker):
        def fail():
            broker.logs.fail(tmp_path, "a test")

        broker.on_disk = fail
        assert await broker.lead(1) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert list(broker.logs.unusable) == [TopicPartition("t", 0)]

    with_broker(tmp_path, scenario)


def test_partitions_that_the_disk_does_not_let_go_are_deleted_by_the_next_request(tmp_path):
    async def scenario(broker):
        await broker.lead(3)
        with FaultyFiles(tmp_path, fail_at=1, error=errno.ENOSPC, steps=["rename"]):
            codes = await broker.stop(3)
            await broker.run_disk(lambda: None)  # what was let go has been removed
        assert codes.count(ErrorCode.KAFKA_STORAGE_ERROR) >= 1
        assert codes[0] == ErrorCode.NONE
        assert ErrorCode.KAFKA_STORAGE_ERROR in await broker.lead(3)
        assert await broker.stop(3) == [ErrorCode.NONE] * 3
        assert await broker.lead(1, OTHER_ID) == [ErrorCode.NONE]

    assert with_broker(tmp_path, scenario) == ["t-0"]


def test_who_waits_for_a_partition_or_asks_for_it_while_it_is_deleted_is_told_that_there_is_none(tmp_path):
    async def scenario(broker):
        tp, renamed, go_on = TopicPartition("t", 0), asyncio.Event(), threading.Event()
        await broker.lead(1)
        waiting = broker.replicas.fetch_purgatory.wait(
            [tp], lambda _: tp not in {*broker.logs.logs, *broker.logs.unusable}, 60_000
        )
        waiter = asyncio.ensure_future(waiting)
        loop = asyncio.get_running_loop()

        def pause():
            loop.call_soon_threadsafe(renamed.set)
            go_on.wait()

        broker.on_disk = pause
        stopped = asyncio.ensure_future(broker.stop(1))
        await renamed.wait()
        with pytest.raises(ApiError) as asked:
            broker.replicas.partition(tp)
        assert asked.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        go_on.set()
        assert (await stopped, await waiter) == ([ErrorCode.NONE], True)

    assert with_broker(tmp_path, scenario) == []
