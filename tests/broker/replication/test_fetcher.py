"""Copying from one leader, a scripted one: what is asked, what is done with each answer, and what a failure costs."""

import asyncio
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.broker.replication import fetcher as fetcher_module
from sparklog.broker.replication.fetcher import Leader, ReplicaFetcher, Ways
from sparklog.config.broker import BrokerConfig, parse_broker_config
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.directories.manager import LogManager
from sparklog.net.turns import Turns
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as wire
from sparklog.protocol.hot.fetch import FetchedPartition
from sparklog.protocol.messages import ListOffsetsResponse
from sparklog.record.builder import RecordBatchBuilder
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import OffsetAndEpoch, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.scripted import HangUp, ScriptedCluster
from sparklog.zk.znodes import PartitionState

T0, T1, ID = TopicPartition("t", 0), TopicPartition("t", 1), UUID(int=1)
LEADER, US, EPOCH, OUR_EPOCH = 0, 5, 3, 77
LATEST, EARLIEST = -1, -2
DEFAULTS = BrokerConfig()


def records(first=0, count=1, epoch=EPOCH):
    """A batch as the leader's log has it."""
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(1, None, b"v")
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, first)
    struct.pack_into(">i", batch, 12, epoch)
    return bytes(batch)


def given(tp=T0, batches=(), high_watermark=0, **told):
    """What the leader says of a partition; ``batches`` are its records."""
    chunks = [b"".join(batches)] if batches else []
    told = {"last_stable_offset": high_watermark, "log_start_offset": 0} | told
    return FetchedPartition(tp.topic, ID, tp.partition, high_watermark=high_watermark, records=chunks, **told)


class Stage:
    """A follower with real logs, and its leader, which answers each fetch as the test says."""

    def __init__(self, home, disk, cluster, topic_id, config):
        self.peer = cluster.brokers[0]
        self.peer.on[ApiKey.FETCH] = self._answer
        self.peer.on[ApiKey.LIST_OFFSETS] = self._offsets
        self._topic_id = topic_id
        self._fetches, self._answers = asyncio.Queue(), asyncio.Queue()
        self.offsets = {}
        self.clock = ManualClock()
        self.logs = LogManager([home], TopicConfig(), self.clock, disk)
        self.logs.load({})
        self.replicas = ReplicaManager(US, self.logs, asyncio.get_running_loop(), clock=self.clock)
        self.where = {LEADER: self.peer.endpoint}
        self.looked = 0
        self.broker_epoch = OUR_EPOCH
        self.contacts = []
        self.fetcher = ReplicaFetcher(
            Leader(LEADER, 0),
            config,
            self.replicas,
            Turns(asyncio.get_running_loop()),
            self.clock,
            ways=Ways(self._find),
            broker_epoch=lambda: self.broker_epoch,
            on_contact=self._hear,
        )

    async def _hear(self, leader_id, is_reached):
        assert leader_id == LEADER
        self.contacts.append(is_reached)

    def _find(self, broker_id):
        self.looked += 1
        return self.where.get(broker_id)

    async def _answer(self, asked):
        self._fetches.put_nowait(asked.message)
        partitions, error, session = await self._answers.get()
        if error is HangUp:
            raise HangUp
        return wire.encode_response(partitions, asked.version, error=error, session_id=session)

    def _offsets(self, asked):
        (topic,) = asked.message.topics
        (partition,) = topic.partitions
        assert (partition.current_leader_epoch, asked.message.replica_id) == (EPOCH, US)
        found = self.offsets[partition.timestamp]
        error = found if isinstance(found, ErrorCode) else ErrorCode.NONE
        form = ListOffsetsResponse.ListOffsetsTopicResponse
        told = form.ListOffsetsPartitionResponse(
            partition_index=partition.partition_index,
            error_code=error,
            timestamp=-1,
            offset=-1 if error else found,
            leader_epoch=EPOCH,
        )
        return ListOffsetsResponse(throttle_time_ms=0, topics=[form(name=topic.name, partitions=[told])])

    def follow(self, *partitions, epoch=EPOCH, leader=LEADER, topic_id=None):
        for tp in partitions:
            state = PartitionState(leader, epoch, (LEADER, US), 1, version=epoch)
            code = self.replicas.apply(tp, state, TopicConfig(), topic_id or self._topic_id, replicas=(LEADER, US))
            assert code is ErrorCode.NONE
            self.fetcher.follow(tp, epoch)

    async def asked(self):
        """The next fetch that comes."""
        return await self._fetches.get()

    def tell(self, *partitions, error=ErrorCode.NONE, session=9):
        self._answers.put_nowait((list(partitions), error, session))

    async def after(self, *partitions, **how):
        """The fetch that follows this answer."""
        self.tell(*partitions, **how)
        return await self.asked()

    def end(self, tp=T0):
        return self.replicas.partition(tp).log_end_offset


@asynccontextmanager
async def stage_at(home, *partitions, topic_id=ID, fetch_ceiling=None, config=DEFAULTS):
    with ThreadPoolExecutor(1) as disk:
        async with asyncio.timeout(60), ScriptedCluster() as cluster:
            if fetch_ceiling is not None:
                cluster.ceilings[ApiKey.FETCH] = fetch_ceiling
            stage = Stage(home, disk, cluster, topic_id, config)
            stage.follow(*partitions)
            try:
                yield stage
            finally:
                await stage.fetcher.close()
                stage.logs.close()


@pytest.fixture(autouse=True)
def settled_s(monkeypatch):
    """A fetch that does not name all partitions is not given up, but where a test says so."""
    monkeypatch.setattr(fetcher_module, "_SETTLED_S", 3600)


def offsets(request):
    return {each.partition: each.offset for each in request.partitions}


async def until(condition):
    """Ends with the test's own deadline."""
    while not condition():
        await asyncio.sleep(0.005)


async def turns(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


def run(test):
    asyncio.run(test())


def test_each_fetch_asks_for_what_is_behind_the_copy(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0) as stage:
            first = await stage.asked()
            assert (first.replica_id, first.replica_epoch, first.session_epoch) == (US, OUR_EPOCH, 0)
            (asked,) = first.partitions
            assert (asked.offset, asked.current_leader_epoch, asked.last_fetched_epoch) == (0, EPOCH, -1)
            assert (asked.topic_id, asked.log_start_offset) == (ID, 0)
            second = await stage.after(given(batches=[records(0, 2, 1), records(2)], high_watermark=2))
            (asked,) = second.partitions
            assert (asked.offset, asked.last_fetched_epoch, second.session_epoch) == (3, EPOCH, 1)
            partition = stage.replicas.partition(T0)
            assert (partition.high_watermark.offset, partition.epoch_at(1)) == (2, 1)
            third = await stage.after(given(high_watermark=3))
            assert not third.partitions, "the session remembers what was asked"
            assert partition.high_watermark.offset == 3

    run(test)


def test_without_a_session_fetches_bear_the_epoch_that_there_was(tmp_path):
    """With none the leader would propose this broker for the ISR without one, after it has started again too."""

    async def test():
        async with stage_at(tmp_path, T0) as stage:
            epochs = [(await stage.asked()).replica_epoch]
            for now in (None, None, OUR_EPOCH + 1):
                stage.broker_epoch = now
                epochs.append((await stage.after(given())).replica_epoch)
            assert epochs == [OUR_EPOCH, OUR_EPOCH, OUR_EPOCH, OUR_EPOCH + 1]

    run(test)


def test_a_fetch_asks_for_no_more_and_no_less_than_the_settings_say(tmp_path):
    limits = {
        "replica.fetch.max.bytes": "3000",
        "replica.fetch.response.max.bytes": "7000",
        "replica.fetch.min.bytes": "5",
        "replica.fetch.wait.max.ms": "400",
    }

    async def test():
        async with stage_at(tmp_path, T0, T1, config=parse_broker_config({"broker.id": "5", **limits})) as stage:
            for request in (await stage.asked(), await stage.after(given(batches=[records()]))):
                assert (request.max_bytes, request.min_bytes, request.max_wait_ms) == (7000, 5, 400)
                assert {each.max_bytes for each in request.partitions} == {3000}

    run(test)


def test_a_lost_connection_costs_the_session_and_not_a_record(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0) as stage:
            await stage.asked()
            await stage.after(given(batches=[records()]))
            again = await stage.after(error=HangUp)
            assert (again.session_epoch, again.session_id, offsets(again)) == (0, 0, {0: 1})
            assert stage.peer.connections == 2
            assert stage.contacts == [True, False, True]
            assert offsets(await stage.after(given(batches=[records(1)]))) == {0: 2}

    run(test)


def test_a_partition_that_is_added_waits_for_no_fetch_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr(fetcher_module, "_SETTLED_S", 0.001)

    async def test():
        async with stage_at(tmp_path, T0) as stage:
            assert offsets(await stage.asked()) == {0: 0}
            stage.follow(T1)  # and the leader holds its answer
            again = await stage.asked()
            assert (again.session_epoch, offsets(again)) == (0, {0: 0, 1: 0})
            assert stage.peer.connections == 2

    run(test)


def test_an_answer_that_comes_meanwhile_is_taken(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0) as stage:
            await stage.asked()
            stage.follow(T1)
            again = await stage.after(given(batches=[records()]))
            assert (again.session_epoch, offsets(again)) == (1, {0: 1, 1: 0})
            assert stage.peer.connections == 1

    run(test)


@pytest.mark.parametrize("error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_after_a_lost_session_all_is_named_on_the_same_connection(tmp_path, error):
    async def test():
        async with stage_at(tmp_path, T0, T1) as stage:
            await stage.asked()
            await stage.after(given(batches=[records()]), given(T1))
            again = await stage.after(error=error, session=0)
            assert (again.session_epoch, offsets(again)) == (0, {0: 1, 1: 0})
            assert stage.peer.connections == 1

    run(test)


def test_a_fetch_that_is_refused_whole_is_asked_again_by_another_connection(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0) as stage:
            await stage.asked()
            again = await stage.after(error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, session=0)
            assert (again.session_epoch, offsets(again)) == (0, {0: 0})
            assert stage.peer.connections == 2

    run(test)


def test_what_was_decided_anew_meanwhile_is_not_appended(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0, T1) as stage:
            await stage.asked()
            stage.follow(T0, epoch=EPOCH + 1)
            again = await stage.after(given(batches=[records()]), given(T1, batches=[records()]))
            assert (stage.end(T0), stage.end(T1)) == (0, 1)
            epochs = {each.partition: each.current_leader_epoch for each in again.partitions}
            assert epochs == {0: EPOCH + 1, 1: EPOCH}

    run(test)


def test_what_is_decided_anew_without_the_fetcher_knowing_is_not_appended(tmp_path):
    """Between the decision and the word to the fetcher an answer may come: the partition refuses it."""

    async def test():
        async with stage_at(tmp_path, T0, T1) as stage:
            await stage.asked()
            state = PartitionState(US, EPOCH + 1, (LEADER, US), 1)
            stage.replicas.apply(T0, state, TopicConfig(), ID, replicas=(LEADER, US))
            again = await stage.after(given(batches=[records()]), given(T1, batches=[records()]))
            assert (stage.end(T0), offsets(again)) == (0, {1: 1})
            assert [each.partition for each in again.forgotten] == [0]
            stage.clock.advance(1)
            await stage.after()
            assert stage.fetcher.partitions == 1, "it leads: there is nothing to copy"

    run(test)


def test_what_is_left_meanwhile_is_not_appended_and_forgotten_by_the_session(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0, T1) as stage:
            await stage.asked()
            stage.fetcher.leave(T0)
            again = await stage.after(given(batches=[records()]), given(T1))
            assert [each.partition for each in again.forgotten] == [0]
            assert stage.end(T0) == 0

    run(test)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_an_error_of_one_partition_pauses_that_one_for_a_while(tmp_path, error):
    async def test():
        async with stage_at(tmp_path, T0, T1) as stage:
            await stage.asked()
            bad = given(error=error)
            again = await stage.after(bad, given(T1, batches=[records()]))
            assert (offsets(again), [each.partition for each in again.forgotten]) == ({1: 1}, [0])
            assert not offsets(await stage.after())
            stage.clock.advance(0.02)
            assert offsets(await stage.after()) == {0: 0}
            await stage.after(bad)
            stage.clock.advance(0.02)
            assert not offsets(await stage.after()), "the second pause is longer"
            stage.clock.advance(0.02)
            assert offsets(await stage.after()) == {0: 0}

    run(test)


def test_the_leader_is_not_to_hold_a_fetch_for_longer_than_a_pause(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0, T1) as stage:
            assert (await stage.asked()).max_wait_ms == DEFAULTS.replica_fetch_wait_max_ms
            paused = await stage.after(given(error=ErrorCode.UNKNOWN_LEADER_EPOCH), given(T1))
            assert (0 in offsets(paused), paused.max_wait_ms) == (False, 20)
            stage.clock.advance(0.02)
            again = await stage.after()
            assert (offsets(again), again.max_wait_ms) == ({0: 0}, DEFAULTS.replica_fetch_wait_max_ms)

    run(test)


@pytest.mark.parametrize("damage", [b"\x00" * 20, records()[:-1] + b"\xff", records(7)], ids=["none", "crc", "a hole"])
def test_records_that_do_not_hold_together_pause_the_partition_or_follow_a_hole(tmp_path, damage):
    async def test():
        async with stage_at(tmp_path, T0, T1) as stage:
            await stage.asked()
            again = await stage.after(given(batches=[damage]), given(T1, batches=[records()]))
            if damage == records(7):  # as a compacted log has them
                assert offsets(again) == {0: 8, 1: 1}
                return
            assert offsets(again) == {1: 1}
            stage.clock.advance(0.02)
            assert offsets(await stage.after()) == {0: 0}
            assert offsets(await stage.after(given(batches=[records()]))) == {0: 1}

    run(test)


@pytest.mark.source
@pytest.mark.parametrize("part", ["append_from_leader", "drop_diverged"])
def test_one_partition_that_cannot_be_written_holds_up_no_other(tmp_path, part, monkeypatch):
    async def test():
        async with stage_at(tmp_path, T0, T1) as stage:
            await stage.asked()

            async def refuse_cut(tp, *_):
                refuse(tp)

            def refuse(tp, *_):
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp}: no")

            with monkeypatch.context() as patched:
                following = stage.replicas.following
                if part == "append_from_leader":
                    patched.setattr(following, part, refusing_first(following, refuse))
                    first = given(batches=[records()])
                else:
                    patched.setattr(following, part, refuse_cut)
                    first = given(diverging=OffsetAndEpoch(0, 0))
                again = await stage.after(first, given(T1, batches=[records()]))
                assert offsets(again) == {1: 1}
            stage.clock.advance(0.02)
            assert offsets(await stage.after()) == {0: 0}

    def refusing_first(following, refuse):
        real = following.append_from_leader

        def append(tp, *arguments):
            return refuse(tp) if tp == T0 else real(tp, *arguments)

        return append

    run(test)


def test_what_the_leaders_history_does_not_have_is_dropped_before_the_next_fetch(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0) as stage:
            await stage.asked()
            await stage.after(given(batches=[records(0, 2, 1), records(2, 2, 2)]))
            again = await stage.after(given(diverging=OffsetAndEpoch(2, 1)))
            assert offsets(again) == {0: 2}
            assert again.partitions[0].last_fetched_epoch == 1
            assert offsets(await stage.after(given(batches=[records(2)]))) == {0: 3}

    run(test)


def test_a_history_that_left_in_an_epoch_that_is_not_known_here_is_looked_for_in_steps(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0) as stage:
            await stage.asked()
            await stage.after(given(batches=[records(0, 2, 0), records(2, 2, 2)]))
            again = await stage.after(given(diverging=OffsetAndEpoch(3, 1)))
            assert (offsets(again), again.partitions[0].last_fetched_epoch) == ({0: 2}, 0)
            again = await stage.after(given(diverging=OffsetAndEpoch(1, 0)))
            assert offsets(again) == {0: 0}, "the batch that holds the offset goes whole"

    run(test)


def test_a_leader_that_ends_before_has_what_is_beyond_dropped(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0) as stage:
            await stage.asked()
            await stage.after(given(batches=[records(0), records(1)]))
            stage.offsets = {LATEST: 1}
            assert offsets(await stage.after(given(error=ErrorCode.OFFSET_OUT_OF_RANGE))) == {0: 1}
            assert stage.end() == 1

    run(test)


def test_a_leader_that_begins_behind_has_the_copy_begin_again_there(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0) as stage:
            await stage.asked()
            await stage.after(given(batches=[records(0)]))
            stage.offsets = {LATEST: 9, EARLIEST: 5}
            again = await stage.after(given(error=ErrorCode.OFFSET_OUT_OF_RANGE))
            assert offsets(again) == {0: 5}
            assert again.partitions[0].log_start_offset == 5
            assert offsets(await stage.after(given(batches=[records(5)], log_start_offset=5))) == {0: 6}

    run(test)


def test_a_leader_that_begins_within_a_batch_has_the_copy_begin_with_that(tmp_path):
    """As records were deleted up to there: a leader sends batches whole, and this one begins before the copy does."""

    async def test():
        async with stage_at(tmp_path, T0) as stage:
            await stage.asked()
            stage.offsets = {LATEST: 9, EARLIEST: 5}
            assert offsets(await stage.after(given(error=ErrorCode.OFFSET_OUT_OF_RANGE))) == {0: 5}
            more = [records(3, count=4), records(7, count=2)]
            again = await stage.after(given(batches=more, log_start_offset=5, high_watermark=9))
            assert offsets(again) == {0: 9}
            assert again.partitions[0].log_start_offset == 5

    run(test)


@pytest.mark.parametrize("told", [{LATEST: 9, EARLIEST: 5}, {LATEST: 0}], ids=["begins behind", "ends before"])
def test_what_a_leader_tells_of_a_topic_that_was_made_anew_meanwhile_is_not_done_to_the_new_one(tmp_path, told):
    """Under the same leader epoch: every topic begins with the first one."""

    async def test():
        async with stage_at(tmp_path, T0, T1) as stage:
            await stage.asked()
            await stage.after(given(batches=[records(0), records(1)]))
            stage.offsets = told

            def made_anew(asked):
                if asked.message.topics[0].partitions[0].timestamp == [*told][-1]:
                    stage.fetcher.leave(T0)
                    assert stage.replicas.stop(T0, delete=True) is ErrorCode.NONE
                    stage.follow(T0, topic_id=UUID(int=2))
                    stage.replicas.following.append_from_leader(T0, EPOCH, memoryview(bytearray(records())), 0, 0)
                return stage._offsets(asked)

            stage.peer.on[ApiKey.LIST_OFFSETS] = made_anew
            again = await stage.after(given(error=ErrorCode.OFFSET_OUT_OF_RANGE))
            assert offsets(again) == {0: 1}
            assert again.partitions[0].log_start_offset == 0

    run(test)


def test_a_leader_that_calls_its_own_range_out_of_range_is_not_asked_in_a_tight_loop(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0, T1) as stage:
            await stage.asked()
            await stage.after(given(batches=[records(0)]), given(T1))
            stage.offsets = {LATEST: 9, EARLIEST: 0}
            again = await stage.after(given(error=ErrorCode.OFFSET_OUT_OF_RANGE))
            assert [each.partition for each in again.forgotten] == [0]
            assert stage.end() == 1
            stage.clock.advance(0.02)
            assert offsets(await stage.after()) == {0: 1}

    run(test)


def test_a_leader_that_cannot_tell_its_offsets_is_asked_again_after_a_pause(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0, T1) as stage:
            await stage.asked()
            stage.offsets = {LATEST: ErrorCode.UNKNOWN_LEADER_EPOCH}
            again = await stage.after(given(error=ErrorCode.OFFSET_OUT_OF_RANGE), given(T1))
            assert [each.partition for each in again.forgotten] == [0]
            stage.clock.advance(0.02)
            assert offsets(await stage.after()) == {0: 0}

    run(test)


def test_a_leader_that_is_gone_is_followed_again_when_it_is_back(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0) as stage:
            await stage.asked()
            stage.where.clear()
            stage.tell(error=HangUp)
            looked = stage.looked
            await until(lambda: stage.looked > looked + 1)
            assert stage.peer.connections == 1
            stage.where[LEADER] = stage.peer.endpoint
            assert offsets(await stage.asked()) == {0: 0}

    run(test)


def test_a_leader_at_another_address_is_asked_there(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0) as stage, ScriptedCluster() as other:
            other.brokers[0].on[ApiKey.FETCH] = stage._answer
            await stage.asked()
            stage.where[LEADER] = other.brokers[0].endpoint
            again = await stage.after(given(batches=[records()]))
            assert (again.session_epoch, offsets(again)) == (0, {0: 1})
            assert other.brokers[0].connections == 1

    run(test)


def test_a_leader_that_tells_of_no_diverging_epoch_is_not_followed(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0, fetch_ceiling=11) as stage:
            await until(lambda: stage.looked > 1)
            assert stage._fetches.empty()

    run(test)


def test_a_topic_without_an_id_is_asked_for_by_name(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0, topic_id=None) as stage:
            (asked,) = (await stage.asked()).partitions
            assert asked.topic == "t"
            assert offsets(await stage.after(given(batches=[records()]))) == {0: 1}

    run(test)


def test_what_comes_later_is_asked_for_with_the_next_fetch(tmp_path):
    async def test():
        async with stage_at(tmp_path) as stage:
            await turns()
            assert stage.looked == 0, "there is nothing to ask for"
            stage.follow(T0)
            await stage.asked()
            stage.follow(T1)
            assert offsets(await stage.after(given())) == {1: 0}

    run(test)


def test_what_must_be_flushed_is_flushed_before_the_next_fetch(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0) as stage:
            await stage.asked()
            partition = stage.replicas.partition(T0)
            partition.log.config = TopicConfig(flush_messages=1)
            await stage.after(given(batches=[records()]))
            assert partition.log.recovery_point == 1

    run(test)


def test_a_throttled_copy_waits_until_it_is_in_sync(tmp_path):
    async def test():
        async with stage_at(tmp_path, T0) as stage:
            stage.replicas.configure(T0.topic, replace(TopicConfig(), follower_replication_throttled_replicas=("*",)))
            stage.replicas.follower_throttle.limit = 10
            await stage.asked()
            stage.tell(given(batches=[records(0, 2)], high_watermark=5))
            await until(lambda: stage.end() == 2)
            await turns()
            assert stage.replicas.follower_throttle.is_exceeded()
            assert stage._fetches.empty(), "too much was copied"
            stage.clock.advance(12)
            stage.fetcher.follow(T0, EPOCH)
            again = await stage.asked()
            assert offsets(again) == {0: 2}
            assert await stage.after(given(batches=[records(2, 3)], high_watermark=5)), "what is in sync goes on"
            assert stage.replicas.follower_throttle.is_exceeded()

    run(test)


def test_what_another_leader_gave_is_flushed_before_this_one_is_told_of_it(tmp_path):
    async def test():
        async with stage_at(tmp_path) as stage:
            stage.follow(T0)
            partition = stage.replicas.partition(T0)
            partition.log.config = TopicConfig(flush_messages=1)
            stage.replicas.following.append_from_leader(T0, EPOCH, memoryview(bytearray(records())), 0, 0)
            assert partition.log.awaits_flush
            assert offsets(await stage.asked()) == {0: 1}
            assert partition.log.recovery_point == 1

    run(test)
