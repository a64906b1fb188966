"""What cannot be made to happen with real brokers: a consumer against brokers that answer as they are told."""

import asyncio
import time
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from sparklog.client.cluster import obstacles as obstacles
from sparklog.client.consumer.async_consumer import AsyncConsumer
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, LocalProtocolError, RemoteProtocolError
from sparklog.local.ports import free_port
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch
from sparklog.protocol.hot.fetch import FetchedPartition
from sparklog.protocol.messages import (
    ListOffsetsResponse,
    OffsetCommitResponse,
    OffsetForLeaderEpochResponse,
)
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock, jump
from sparklog.testing.scripted import HangUp, ScriptedCluster

T0 = TopicPartition("t", 0)
EMPTY = object()


def batch(base, *values, epoch=0):
    builder = RecordBatchBuilder(base_offset=base, partition_leader_epoch=epoch)
    for value in values:
        builder.append(1, None, value)
    return builder.build()


class Log:
    """A partition on a scripted broker: batches by base offset, and what goes wrong before they are given."""

    def __init__(self, *batches, end, obstacles=()):
        self.batches = list(batches)
        self.end = end
        self.obstacles = list(obstacles)
        self.asked = []

    async def __call__(self, asked):
        (wanted,) = asked.message.partitions
        self.asked.append(wanted.offset)
        answer = FetchedPartition("t", ZERO_UUID, 0, ErrorCode.NONE, self.end, self.end, 0)
        if self.obstacles:
            trouble = self.obstacles.pop(0)
            if isinstance(trouble, Exception):
                raise trouble
            answer.error = trouble
        elif wanted.offset > self.end:
            answer.error = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            held = [each for base, count, each in self.batches if base + count > wanted.offset]
            answer.records = held[:1]
            await asyncio.sleep(0 if held else 0.01)
        return fetch.encode_response([answer], asked.version)


@asynccontextmanager
async def consuming(log, brokers=1, **settings):
    async with ScriptedCluster(brokers) as cluster:
        cluster.topics["t"] = [0]
        cluster.on[ApiKey.FETCH] = log
        quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "auto_offset_reset": "earliest", **settings}
        async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, **quick) as consumer:
            consumer.assign([T0])
            yield consumer, cluster


def run(test):
    async def limited():
        async with asyncio.timeout(60):
            await test()

    asyncio.run(limited())


async def read(consumer, count):
    found = []
    while len(found) < count:
        found += [(record.offset, record.value) for record in await consumer.poll(1.0)]
    return found


TWO = [(0, 2, batch(0, b"a", b"b")), (2, 1, batch(2, b"c"))]


@pytest.mark.parametrize(
    "trouble",
    [
        HangUp(),
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    ],
    ids=str,
)
def test_what_passes_is_waited_out(trouble):
    async def test():
        log = Log(*TWO, end=3, obstacles=[trouble, trouble])
        async with consuming(log) as (consumer, _):
            consumer.seek(T0, 0)
            assert await read(consumer, 3) == [(0, b"a"), (1, b"b"), (2, b"c")]

    run(test)


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_what_does_not_pass_is_raised_and_nothing_is_skipped(code):
    async def test():
        async with consuming(Log(*TWO, end=3, obstacles=[code])) as (consumer, _):
            consumer.seek(T0, 1)
            with pytest.raises(ApiError, match="partition t-0 at offset 1") as raised:
                await consumer.poll(20.0)
            assert raised.value.code is code
            assert await read(consumer, 2) == [(1, b"b"), (2, b"c")]

    run(test)


def test_an_answer_that_cannot_be_read_is_raised():
    async def test():
        async with consuming(lambda _asked: [b"garbage"]) as (consumer, _):
            consumer.seek(T0, 0)
            with pytest.raises(RemoteProtocolError):
                await consumer.poll(20.0)

    run(test)


def test_damage_is_raised_and_not_passed_over():
    async def test():
        damaged = bytearray(TWO[0][2])
        damaged[-1] ^= 0xFF
        log = Log((0, 2, damaged), TWO[1], end=3)
        async with consuming(log) as (consumer, _):
            consumer.seek(T0, 0)
            for _ in range(2):
                with pytest.raises(CorruptRecord, match="partition t-0 at offset 0"):
                    await consumer.poll(20.0)
            assert await consumer.position(T0) == 0

    run(test)


def test_damage_in_one_partition_keeps_no_other_from_being_read():
    damaged = bytearray(TWO[0][2])
    damaged[-1] ^= 0xFF

    async def both(asked):
        answers = []
        for wanted in asked.message.partitions:
            answer = FetchedPartition("t", ZERO_UUID, wanted.partition, ErrorCode.NONE, 2, 2, 0)
            if wanted.offset < 2:
                answer.records = [damaged if wanted.partition == 0 else TWO[0][2]]
            answers.append(answer)
        await asyncio.sleep(0)
        return fetch.encode_response(answers, asked.version)

    async def test():
        async with consuming(both) as (consumer, cluster):
            cluster.topics["t"] = [0, 0]
            consumer.assign([T0, TopicPartition("t", 1)])
            consumer.seek(T0, 0)
            consumer.seek(TopicPartition("t", 1), 0)
            found, raised = [], []
            while not (found and raised):
                try:
                    found += [(record.partition, record.value) for record in await consumer.poll(20.0)]
                except CorruptRecord as error:
                    raised.append(str(error))
            assert found == [(1, b"a"), (1, b"b")]
            assert {each.partition(":")[0] for each in raised} == {"partition t-0 at offset 0"}

    run(test)


def test_what_was_asked_before_a_seek_is_not_given_after_it():
    async def test():
        log, arrived, answer = Log(*TWO, end=3), asyncio.Event(), asyncio.Event()

        async def held(asked):
            body = await log(asked)
            arrived.set()
            await answer.wait()
            return body

        async with consuming(held) as (consumer, _):
            consumer.seek(T0, 2)
            await consumer.poll(0.0)
            await arrived.wait()
            consumer.seek(T0, 0)
            answer.set()
            assert await read(consumer, 3) == [(0, b"a"), (1, b"b"), (2, b"c")]

    run(test)


def test_a_leader_that_moves_is_followed():
    async def test():
        log = Log(*TWO, end=3)
        async with consuming(log, brokers=2) as (consumer, cluster):
            cluster.brokers[0].on[ApiKey.FETCH] = Log(end=0, obstacles=[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000)
            consumer.seek(T0, 0)
            assert await consumer.poll(0.05) == []
            cluster.topics["t"] = [1]
            assert len(await read(consumer, 3)) == 3

    run(test)


def test_offsets_of_a_leader_that_has_died_are_asked_of_the_next():
    async def test():
        async with consuming(Log(*TWO, end=3), brokers=2) as (consumer, cluster):
            cluster.on[ApiKey.LIST_OFFSETS] = lambda _asked: _listed(3)
            assert await consumer.end_offsets([T0]) == {T0: 3}
            await cluster.brokers[0].stop()
            cluster.topics["t"] = [1]
            assert await consumer.end_offsets([T0]) == {T0: 3}
            assert cluster.brokers[1].asked[-1].api is ApiKey.LIST_OFFSETS

    run(test)


def _epoch_end(epoch, end, code=ErrorCode.NONE):
    form = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    each = form.EpochEndOffset(error_code=int(code), partition=0, leader_epoch=epoch, end_offset=end)
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=[form(topic="t", partitions=[each])])


@asynccontextmanager
async def after_an_election(end, **settings):
    """A consumer that has read three records of epoch 4, when a leader of epoch 5 is found."""
    log = Log((0, 3, batch(0, b"a", b"b", b"c", epoch=4)), end=3)
    async with consuming(log, **settings) as (consumer, cluster):
        cluster.leader_epoch = 4
        cluster.on[ApiKey.OFFSET_FOR_LEADER_EPOCH] = lambda _asked: end
        consumer.seek(T0, 0)
        assert len(await read(consumer, 3)) == 3
        cluster.leader_epoch = 5
        log.batches = [(2, 2, batch(2, b"C", b"D", epoch=5))]
        log.end = 4
        log.obstacles = [ErrorCode.FENCED_LEADER_EPOCH]
        yield consumer, cluster


def test_what_a_new_leader_does_not_have_is_read_anew():
    async def test():
        async with after_an_election(_epoch_end(4, 2)) as (consumer, cluster):
            assert await read(consumer, 2) == [(2, b"C"), (3, b"D")]
            (asked, *_) = cluster.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)
            (partition,) = asked.message.topics[0].partitions
            assert (partition.current_leader_epoch, partition.leader_epoch) == (5, 4)

    run(test)


def test_a_position_that_the_new_leader_has_is_kept():
    async def test():
        async with after_an_election(_epoch_end(4, 3)) as (consumer, _):
            assert await read(consumer, 1) == [(3, b"D")]

    run(test)


def test_without_a_policy_a_truncation_is_raised():
    async def test():
        async with after_an_election(_epoch_end(4, 2), auto_offset_reset="none") as (consumer, _):
            with pytest.raises(ApiError, match="cut off below the position 3, at 2"):
                await read(consumer, 1)

    run(test)


def _listed(offset, code=ErrorCode.NONE):
    form = ListOffsetsResponse.ListOffsetsTopicResponse
    each = form.ListOffsetsPartitionResponse(
        partition_index=0, error_code=int(code), timestamp=-1, offset=offset, leader_epoch=0
    )
    return ListOffsetsResponse(throttle_time_ms=0, topics=[form(name="t", partitions=[each])])


def test_looking_up_a_beginning_is_retried():
    async def test():
        answers = [
            _listed(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            _listed(-1, ErrorCode.LEADER_NOT_AVAILABLE),
            _listed(1),
        ]
        async with consuming(Log(*TWO, end=3)) as (consumer, cluster):
            cluster.on[ApiKey.LIST_OFFSETS] = lambda _asked: answers.pop(0)
            assert await read(consumer, 2) == [(1, b"b"), (2, b"c")]

    run(test)


def _commit_answer(code):
    form = OffsetCommitResponse.OffsetCommitResponseTopic
    each = form.OffsetCommitResponsePartition(partition_index=0, error_code=int(code))
    return OffsetCommitResponse(throttle_time_ms=0, topics=[form(name="t", partitions=[each])])


def test_a_commit_is_retried_while_its_coordinator_moves_or_loads():
    async def test():
        codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
        async with consuming(Log(end=0), group_id="g", enable_auto_commit=False) as (consumer, cluster):
            cluster.ceilings[ApiKey.OFFSET_COMMIT] = 9
            cluster.on[ApiKey.OFFSET_COMMIT] = lambda _asked: _commit_answer(codes.pop(0))
            await consumer.commit({T0: 5})
            assert codes == []
            assert len(cluster.asked(ApiKey.FIND_COORDINATOR)) == 2

    run(test)


def test_offsets_of_a_topic_whose_id_is_not_known_go_by_its_name():
    async def test():
        async with consuming(Log(end=0), group_id="g", enable_auto_commit=False) as (consumer, cluster):
            cluster.on[ApiKey.OFFSET_COMMIT] = lambda asked: _commit_answer(
                ErrorCode.NONE if asked.version < 10 else ErrorCode.UNKNOWN_TOPIC_ID
            )
            await consumer.commit({T0: 5})
            (asked,) = cluster.asked(ApiKey.OFFSET_COMMIT)
            assert [topic.name for topic in asked.message.topics] == ["t"]

    run(test)


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_a_commit_that_is_refused_says_so(code):
    async def test():
        async with consuming(Log(end=0), group_id="g", enable_auto_commit=False) as (consumer, cluster):
            cluster.ceilings[ApiKey.OFFSET_COMMIT] = 9
            cluster.on[ApiKey.OFFSET_COMMIT] = lambda _asked: _commit_answer(code)
            with pytest.raises(ApiError, match="offset of partition t-0 for group 'g'") as raised:
                await consumer.commit({T0: 5})
            assert raised.value.code is code

    run(test)


class Offsets:
    """What a coordinator stored, in order; one offset it refuses once, for a reason that passes."""

    def __init__(self, refused=None):
        self.stored = []
        self.refused = refused

    def __call__(self, asked):
        if _offset(asked) == self.refused:
            self.refused = None
            return _commit_answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self.stored.append(_offset(asked))
        return _commit_answer(ErrorCode.NONE)


def _offset(asked):
    return asked.message.topics[0].partitions[0].committed_offset


@asynccontextmanager
async def committing(coordinator, **settings):
    given = {"group_id": "g", "enable_auto_commit": False, **settings}
    async with consuming(Log(*TWO, end=3), **given) as (consumer, cluster):
        cluster.ceilings[ApiKey.OFFSET_COMMIT] = 9
        cluster.on[ApiKey.OFFSET_COMMIT] = coordinator
        yield consumer, cluster


def test_a_commit_that_is_retried_undoes_no_later_one():
    async def test():
        coordinator, told = Offsets(refused=100), []
        async with committing(coordinator) as (consumer, _):
            for offset in (100, 105):
                consumer.commit_async(lambda offsets, error: told.append((offsets[T0].offset, error)), {T0: offset})
            await consumer.commit({T0: 50})
            assert coordinator.stored == [100, 105, 50]
        assert coordinator.stored == [100, 105, 50]
        assert told == [(100, None), (105, None)]

    run(test)


def test_an_auto_commit_is_of_what_earlier_polls_gave_and_undoes_no_later_commit():
    async def test():
        coordinator, clock = Offsets(refused=1), ManualClock()
        async with committing(coordinator, clock=clock, enable_auto_commit=True) as (consumer, _):
            consumer.seek(T0, 0)
            assert [record.offset for record in await consumer.poll(20.0, max_records=1)] == [0]
            clock.advance(6)
            assert [record.offset for record in await consumer.poll(20.0, max_records=1)] == [1]
            await consumer.commit({T0: 500})
            assert coordinator.stored == [1, 500]
        assert coordinator.stored == [1, 500, 2]

    run(test)


def test_a_commit_whose_time_is_over_before_its_turn_is_not_sent():
    async def test():
        asked, told = asyncio.Event(), []

        async def never(_asked):
            asked.set()
            await asyncio.Event().wait()

        patient = {"default_api_timeout_ms": 10_000, "request_timeout_ms": 100_000}
        clock = ManualClock()
        async with committing(never, clock=clock, **patient) as (consumer, cluster):
            consumer.commit_async(lambda _, error: told.append(error.code), {T0: 1})
            later = asyncio.create_task(consumer.commit({T0: 2}))
            await asked.wait()
            clock.advance(11)
            jump(asyncio.get_running_loop(), 11)
            with pytest.raises(ApiError, match="not sent in time: commits before them are under way") as raised:
                await later
            assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert [_offset(each) for each in cluster.asked(ApiKey.OFFSET_COMMIT)] == [1]
        assert told == [ErrorCode.REQUEST_TIMED_OUT]

    run(test)


def test_close_does_not_wait_for_a_broker_that_is_silent():
    async def test():
        async def never(_asked):
            await asyncio.Event().wait()

        async with consuming(Log(end=0), group_id="g") as (consumer, cluster):
            cluster.ceilings[ApiKey.OFFSET_COMMIT] = 9
            cluster.on[ApiKey.OFFSET_COMMIT] = never
            consumer.seek(T0, 0)
            await consumer.poll(0.01)
            await consumer.close(timeout=0.2)

    run(test)


async def never(*_):
    await asyncio.Event().wait()


def committed(asked):
    form = OffsetCommitResponse.OffsetCommitResponseTopic
    topics = [
        form(name=each.name, partitions=[form.OffsetCommitResponsePartition(partition_index=0, error_code=0)])
        for each in asked.message.topics
    ]
    return OffsetCommitResponse(throttle_time_ms=0, topics=topics)


@pytest.mark.parametrize(("answer", "interval_ms"), [(never, 10), (committed, 0)])
def test_a_poll_that_gets_nothing_rests_however_often_an_auto_commit_is_due(answer, interval_ms):
    async def test():
        async with consuming(never, group_id="g", auto_commit_interval_ms=interval_ms) as (consumer, cluster):
            cluster.ceilings[ApiKey.OFFSET_COMMIT] = 9
            cluster.on[ApiKey.OFFSET_COMMIT] = answer
            consumer.seek(T0, 0)
            await consumer.poll(0.1)
            steps, plain = [], consumer._step

            async def counted():
                steps.append(1)
                await plain()

            consumer._step = counted
            await consumer.poll(0.5)
            assert len(steps) < 50
            await consumer.close(timeout=0.1)

    run(test)


def test_a_first_poll_of_a_pattern_ends_in_time_where_no_broker_answers():
    async def test():
        settings = {"bootstrap_servers": f"127.0.0.1:{free_port()}", "group_id": "g", "default_api_timeout_ms": 3000}
        async with AsyncConsumer(**settings) as consumer:
            consumer.subscribe(pattern="clicks.*")
            for _ in range(2):
                began = time.monotonic()
                assert await consumer.poll(0.1) == []
                assert time.monotonic() - began < 2

    run(test)


@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("blocked", ["commits", "leave"])
def test_a_close_that_is_cut_leaves_nothing_running(blocked, is_cancelled):
    async def test():
        async with ScriptedCluster() as cluster:
            cluster.topics["t"] = [0]
            cluster.on[ApiKey.JOIN_GROUP] = never
            before = asyncio.all_tasks()
            consumer = AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g")
            consumer.subscribe(["t"])
            await consumer.poll(0.05)
            if blocked == "commits":
                consumer._coordinator.commits.finish = never
            else:
                consumer._coordinator._send_leave = never
            if is_cancelled:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await consumer.close()
            else:
                await consumer.close(timeout=0.1)
            left = {each.get_name() for each in asyncio.all_tasks() - before}
            assert not {name for name in left if name.startswith("sparklog")}

    run(test)


@pytest.fixture
def impatient(monkeypatch):
    """Tell of a trouble the first time."""
    monkeypatch.setattr(obstacles, "PATIENCE", 0.0)


async def poll_until_told(consumer, caplog, text):
    while text not in caplog.text:
        assert await consumer.poll(0.05) == []


def test_a_consumer_without_any_broker_tells_the_log(impatient, caplog):
    async def test():
        port = free_port("127.0.0.1")
        async with AsyncConsumer(bootstrap_servers=f"127.0.0.1:{port}", retry_backoff_ms=1) as consumer:
            consumer.assign([T0])
            await poll_until_told(consumer, caplog, f"no broker can be reached; tried 127.0.0.1:{port}")
            assert len(caplog.messages) == 1

    run(test)


def test_a_partition_that_does_not_exist_is_told_once(caplog):
    async def test():
        async with consuming(Log(end=0)) as (consumer, cluster):
            consumer.assign([TopicPartition("t", 77)])
            await poll_until_told(consumer, caplog, "topic 't' has no partition 77, only 0 to 0")
            await poll_until_asked_again(consumer, cluster)
            (said,) = caplog.messages
            assert "UNKNOWN_TOPIC_OR_PARTITION" in said

    run(test)


async def poll_until_asked_again(consumer, cluster):
    before = len(cluster.asked(ApiKey.METADATA))
    while len(cluster.asked(ApiKey.METADATA)) < before + 3:
        assert await consumer.poll(0.05) == []


def test_a_topic_that_does_not_exist_is_told_once_and_read_when_it_does(caplog):
    async def test():
        async with consuming(Log(*TWO, end=3), allow_auto_create_topics=False) as (consumer, cluster):
            cluster.on[ApiKey.LIST_OFFSETS] = lambda _asked: _listed(0)
            leaders = cluster.topics.pop("t")
            await poll_until_told(consumer, caplog, "UNKNOWN_TOPIC_OR_PARTITION: topic 't' does not exist; create it")
            await poll_until_asked_again(consumer, cluster)
            cluster.topics["t"] = leaders
            assert await read(consumer, 3) == [(0, b"a"), (1, b"b"), (2, b"c")]
            assert len(caplog.messages) == 1

    run(test)


def test_a_topic_that_is_deleted_while_it_is_read_is_told(impatient, caplog):
    async def test():
        log = Log(*TWO, end=3)
        async with consuming(log) as (consumer, cluster):
            consumer.seek(T0, 0)
            assert len(await read(consumer, 3)) == 3
            del cluster.topics["t"]
            log.obstacles = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1000
            await poll_until_told(consumer, caplog, "topic 't' does not exist")

    run(test)


@pytest.mark.parametrize("choose", ["nothing", "unsubscribe"])
def test_polling_before_it_was_said_what_to_read_is_refused(choose):
    async def test():
        async with AsyncConsumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
            if choose == "unsubscribe":
                consumer.assign([T0])
                await consumer.unsubscribe()
            with pytest.raises(LocalProtocolError, match=r"call subscribe\(topics\) or assign\(partitions\) first"):
                await consumer.poll(0)

    run(test)


def test_a_name_that_no_topic_can_have_is_raised():
    async def test():
        async with consuming(Log(end=0)) as (consumer, cluster):
            describe = cluster.on[ApiKey.METADATA]

            def refuse(asked):
                answer = describe(asked)
                for topic in answer.topics:
                    topic.error_code = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
                return answer

            cluster.on[ApiKey.METADATA] = refuse
            consumer.assign([TopicPartition("a b", 0)])
            with pytest.raises(ApiError, match="topic 'a b'") as raised:
                await consumer.poll(20.0)
            assert raised.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION

    run(test)


@pytest.mark.parametrize(
    ("api", "call"),
    [
        (ApiKey.OFFSET_COMMIT, lambda consumer: consumer.commit({T0: 1})),
        (ApiKey.OFFSET_FETCH, lambda consumer: consumer.committed(T0)),
        (ApiKey.OFFSET_FETCH, lambda consumer: consumer.position(T0)),
        (ApiKey.LIST_OFFSETS, lambda consumer: consumer.offsets_for_times({T0: 1})),
        (ApiKey.LIST_OFFSETS, lambda consumer: consumer.end_offsets([T0])),
        (ApiKey.METADATA, lambda consumer: consumer.partitions_for("t")),
    ],
)
def test_a_call_ends_in_its_time_though_its_broker_is_silent(api, call):
    async def test():
        asked = asyncio.Event()

        async def never(_asked):
            asked.set()
            await asyncio.Event().wait()

        patient = {"default_api_timeout_ms": 10_000, "request_timeout_ms": 100_000}
        clock = ManualClock()
        async with consuming(Log(end=0), group_id="g", clock=clock, **patient) as (consumer, cluster):
            cluster.ceilings[ApiKey.OFFSET_COMMIT] = cluster.ceilings[ApiKey.OFFSET_FETCH] = 9
            cluster.on[api] = never
            task = asyncio.create_task(call(consumer))
            await asked.wait()
            clock.advance(11)
            jump(asyncio.get_running_loop(), 11)
            with pytest.raises(ApiError, match="REQUEST_TIMED_OUT"):
                await task
            await consumer.close(timeout=0)

    run(test)


class Renewed(Log):
    """A topic that was deleted and created again: fetches of the one before are refused, and the new one is longer."""

    def __init__(self):
        super().__init__(*TWO, end=3)
        self.topic_id = UUID(int=1)

    async def __call__(self, asked):
        (wanted,) = asked.message.partitions
        answer = FetchedPartition("t", wanted.topic_id, 0, ErrorCode.NONE, self.end, self.end, 0)
        if wanted.topic_id != self.topic_id:
            answer.error = ErrorCode.UNKNOWN_TOPIC_ID
        elif wanted.offset < self.end:
            answer.records = [each for base, count, each in self.batches if base + count > wanted.offset][:1]
        else:
            await asyncio.sleep(0.01)
        return fetch.encode_response([answer], asked.version)

    def metadata(self, cluster, asked):
        answer = cluster._metadata(asked)
        for topic in answer.topics:
            topic.topic_id = self.topic_id
        return answer


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_topic_that_was_made_anew_is_not_read_on_at_the_offset_of_the_one_before(reset):
    async def test():
        log = Renewed()
        async with consuming(log, auto_offset_reset=reset) as (consumer, cluster):
            cluster.on[ApiKey.METADATA] = lambda asked: log.metadata(cluster, asked)
            cluster.on[ApiKey.LIST_OFFSETS] = lambda _asked: _listed(0)
            consumer.seek(T0, 0)
            assert await read(consumer, 3) == [(0, b"a"), (1, b"b"), (2, b"c")]
            log.topic_id, log.end = UUID(int=2), 5
            log.batches = [(0, 2, batch(0, b"d", b"e")), (2, 3, batch(2, b"f", b"g", b"h"))]
            if reset == "none":
                for _ in range(2):
                    with pytest.raises(ApiError, match="'t' was deleted and created again") as raised:
                        await read(consumer, 1)
                    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
                consumer.seek(T0, 0)
            assert [value for _, value in await read(consumer, 5)] == [b"d", b"e", b"f", b"g", b"h"]

    run(test)
