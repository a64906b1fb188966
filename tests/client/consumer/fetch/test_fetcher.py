"""What is asked of which broker, and what is made of its answers, with a broker in memory."""

import asyncio
import random
from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest

from sparklog.client.cluster.obstacles import PATIENCE, Obstacles
from sparklog.client.cluster.session import DATA
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.fetch.buffer import RecordBuffer
from sparklog.client.consumer.fetch.fetcher import Fetcher
from sparklog.client.consumer.subscription import Position, SubscriptionState
from sparklog.cluster.info import ClusterInfo, PartitionInfo, TopicInfo
from sparklog.cluster.leaders import Leaders
from sparklog.errors import ApiError, ConnectionFailed, CorruptRecord, ErrorCode, RemoteProtocolError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch
from sparklog.protocol.hot.fetch import FetchedPartition
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import Endpoint, IsolationLevel, TopicPartition
from sparklog.testing.clock import ManualClock

A, B, C = (TopicPartition("t", number) for number in range(3))
ID = UUID(int=7)
EPOCH = 4
_NONE = ErrorCode.NONE


def batch(base, count=2, *, size=1):
    builder = RecordBatchBuilder(base_offset=base, partition_leader_epoch=EPOCH)
    for _ in range(count):
        builder.append(1, b"k", b"v" * size)
    return builder.build()


class Rig:
    """A consumer's half of fetching. The broker's answers are laid down; without one it keeps silent."""

    def __init__(self, leaders=(1, 1, 2), topic_id=ID, **settings):
        self.asked = []  # (broker, version, request)
        self.answers = []
        self.refusal = None
        self.local_start = 0
        self.asked_for_start = []  # brokers
        self.refreshed = []
        self.lost = []
        self.clock = ManualClock()
        self.leaders = Leaders()
        self.describe(leaders, topic_id)
        self.obstacles = Obstacles(self.clock)
        self.config = ConsumerConfig.from_properties(
            {
                "bootstrap.servers": "one:1",
                "retry.backoff.ms": "0",
                "client.rack": "r1",
                **{name.replace("_", "."): v for name, v in settings.items()},
            }
        )
        self.subscription = SubscriptionState()
        self.buffer = RecordBuffer(self.subscription)
        self.news = asyncio.Event()
        self.fetching = Fetcher(
            self,
            self.config,
            self.subscription,
            self.buffer,
            self.news,
            lambda tp, error: self.lost.append((tp, error)),
        )

    def describe(self, leaders, topic_id=ID):
        partitions = tuple(PartitionInfo(number, each, EPOCH, (), ()) for number, each in enumerate(leaders))
        topic = TopicInfo("t", topic_id, False, partitions)
        brokers = {1: Endpoint("one", 1), 2: Endpoint("two", 2)}
        self.info = ClusterInfo("c", 1, brokers, {"t": topic}, {})
        self.leaders.apply(self.info)

    def read(self, *tps, at=0):
        self.subscription.assign(tps)
        for tp in tps:
            self.subscription.seek(tp, Position(at))

    # What a Session does.

    async def refresh(self, topics, *, create=False):
        self.refreshed.append(tuple(topics))
        self.leaders.apply(self.info)
        return self.info

    async def connection(self, broker, purpose):
        assert purpose is DATA
        return SimpleNamespace(versions=self._versions, submit=lambda *args, **how: self._submit(broker, *args, **how))

    async def _versions(self):
        return SimpleNamespace(
            best=lambda api, ceiling: (api is ApiKey.FETCH and ceiling) or fetch.MAX_VERSION, highest=lambda api: 8
        )

    async def request(self, broker, api, build):
        (topic,) = build(8).topics
        assert (api, [each.timestamp for each in topic.partitions]) == (ApiKey.LIST_OFFSETS, [-4])
        self.asked_for_start.append(broker)
        found = SimpleNamespace(
            partition_index=topic.partitions[0].partition_index,
            error_code=0,
            timestamp=-1,
            offset=self.local_start,
            leader_epoch=0,
        )
        return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[found])])

    async def _submit(self, broker, api, version, body, *, timeout):
        assert api is ApiKey.FETCH
        request = fetch.decode_request(memoryview(b"".join(map(bytes, body))), version)
        self.asked.append((broker, version, request))
        assert timeout == (self.config.request_timeout_ms + request.max_wait_ms) / 1000
        if self.refusal is not None:
            raise self.refusal
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if answer is None:
            raise ConnectionFailed("it has just died")
        error, session_id, partitions = await answer if isinstance(answer, asyncio.Future) else answer
        return memoryview(
            b"".join(map(bytes, fetch.encode_response(partitions, version, error=error, session_id=session_id)))
        )

    # What a test does.

    def answer(self, *partitions, error=_NONE, session=0):
        self.answers.append((error, session, list(partitions)))

    def answer_later(self):
        """An answer that is laid down later: call what this returns with it."""
        coming = asyncio.get_running_loop().create_future()
        self.answers.append(coming)
        return lambda *partitions: coming.set_result((_NONE, 0, list(partitions)))

    async def settle(self):
        for _ in range(30):
            await asyncio.sleep(0)

    async def ask(self):
        """Send, and see what came; the next fetch is left without an answer."""
        self.fetching.send()
        await self.settle()

    def wanted_of(self, number):
        """(partition, offset) as one request named them."""
        return [(each.partition, each.offset) for each in self.asked[number][2].partitions]

    def offsets(self, tp=A):
        return [each.base_offset for each in self.buffer.buffer(tp).batches]


def fetched(tp, *batches, error=_NONE, high_watermark=100, stable=100, topic_id=ID):
    found = FetchedPartition("t", topic_id, tp.partition, error, high_watermark, stable, 0)
    found.records.append(memoryview(b"".join(batches)))
    return found


def run(test, **settings):
    async def limited():
        rig = Rig(**settings)
        async with asyncio.timeout(60):
            await test(rig)
            await rig.fetching.close()
        rig.fetching.send()
        assert len(asyncio.all_tasks()) == 1, "nothing goes on after close"

    asyncio.run(limited())


def test_each_broker_is_asked_once_for_all_that_it_leads():
    async def test(rig):
        rig.read(A, B, C, at=5)
        await rig.ask()
        await rig.ask()
        assert [each[0] for each in rig.asked] == [1, 2]
        assert [rig.wanted_of(0), rig.wanted_of(1)] == [[(0, 5), (1, 5)], [(2, 5)]]
        _, version, request = rig.asked[0]
        assert version == fetch.MAX_VERSION
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (77, 3, 9000)
        assert (request.isolation, request.rack_id) == (IsolationLevel.READ_COMMITTED, "r1")
        (first, _) = request.partitions
        assert (first.topic_id, first.max_bytes, first.current_leader_epoch) == (ID, 4000, EPOCH)

    run(
        test,
        fetch_max_wait_ms="77",
        fetch_min_bytes="3",
        fetch_max_bytes="9000",
        max_partition_fetch_bytes="4000",
        isolation_level="read_committed",
    )


def test_what_is_paused_keeps_no_other_from_being_asked_for():
    async def test(rig):
        rig.read(A, B)
        rig.answer(fetched(A, batch(0, size=600)))  # more than fetch.max.bytes
        await rig.ask()
        rig.subscription.pause([A])
        await rig.ask()
        assert rig.wanted_of(1) == [(1, 0)]

    run(test, fetch_max_bytes="1000")


def test_what_is_paused_and_not_too_much_is_kept():
    async def test(rig):
        rig.read(A, B)
        rig.answer(fetched(A, batch(0, size=400)))
        await rig.ask()
        rig.subscription.pause([A])
        await rig.ask()
        assert rig.offsets(A) == [0]

    run(test, fetch_max_bytes="1000")


def test_of_what_is_paused_no_more_is_held_than_a_fetch_may_bring():
    async def test(rig):
        rig.read(A, B, C)
        rig.answer(fetched(A, batch(0, size=300)), fetched(B, batch(0, size=400)))
        answer_rest = rig.answer_later()
        await rig.ask()
        rig.subscription.pause([A, B])
        await rig.ask()
        assert (rig.offsets(A), rig.offsets(B)) == ([0], []), "the larger goes"
        rig.subscription.resume([A, B])
        answer_rest(fetched(C))
        await rig.settle()
        assert set(rig.wanted_of(2)) == {(0, 2), (1, 0), (2, 0)}

    run(test, leaders=(1, 1, 1), fetch_max_bytes="1000")


def test_no_record_is_lost_or_given_twice_for_a_pause_that_lets_go_of_what_was_fetched():
    """Half of a batch was given, the other half waits, and an answer with what follows is under way."""

    async def test(rig):
        rig.read(A, B, C)
        rig.answer(fetched(A, batch(0, 4, size=200)))
        answer_second, answer_late = rig.answer_later(), rig.answer_later()
        await rig.ask()
        assert [each.offset for each in rig.buffer.take(2)] == [0, 1]
        answer_second(fetched(B, batch(0, size=150)))
        rig.subscription.pause([A, B])
        rig.answer_later()
        await rig.ask()
        assert (rig.offsets(A), rig.offsets(B)) == ([], [0])
        rig.subscription.resume([A, B])
        assert (rig.wanted_of(2), rig.buffer.buffer(A).fetch_position) == ([(0, 4)], 2)
        rig.answer(fetched(A, batch(0, 4, size=100)))
        rig.answer(fetched(A, batch(4)))
        answer_late(fetched(A, batch(4)))
        await rig.settle()
        assert [(each.partition, each.offset) for each in rig.buffer.take(10) if each.partition == 0] == [
            (0, 2),
            (0, 3),
            (0, 4),
            (0, 5),
        ]
        assert rig.buffer.take(10) == []

    run(test, leaders=(1, 2, 2), fetch_max_bytes="1000")


@pytest.mark.parametrize("seed", range(5))
def test_each_record_is_given_once_and_in_order_however_partitions_are_paused(seed):
    choose, end, dropped = random.Random(seed), 60, []

    async def test(rig):
        async def give_batches(broker, api, version, body, *, timeout):
            request = fetch.decode_request(memoryview(b"".join(map(bytes, body))), version)
            await asyncio.sleep(0)
            found = [_batch_at(each) for each in request.partitions if each.offset < end]
            return memoryview(b"".join(map(bytes, fetch.encode_response(found, version))))

        def _batch_at(wanted):
            tp = TopicPartition("t", wanted.partition)
            return fetched(tp, batch(wanted.offset // 3 * 3, 3, size=100), high_watermark=end, stable=end)

        plain = rig.buffer.drop_idle
        rig._submit = give_batches
        rig.buffer.drop_idle = lambda most: dropped.extend(found := plain(most)) or found
        rig.read(A, B, C)
        given = {A: [], B: [], C: []}
        while any(len(each) < end for each in given.values()):
            for tp in given:
                choose.choice([rig.subscription.pause, rig.subscription.resume])([tp])
            for record in rig.buffer.take(choose.randrange(1, 5)):
                given[TopicPartition(record.topic, record.partition)].append(record.offset)
            rig.fetching.send()
            for _ in range(choose.randrange(10)):
                await asyncio.sleep(0)
        assert dropped
        assert given == {tp: list(range(end)) for tp in (A, B, C)}

    run(test, fetch_max_bytes="1000", max_partition_fetch_bytes="900")


def test_a_pause_that_lets_go_of_what_was_fetched_has_what_went_wrong_behind_it_met_again():
    async def test(rig):
        rig.read(A, B, C)
        rig.answer(fetched(A, batch(0, size=300)), fetched(B, batch(0, size=100)))
        rig.answer(fetched(A, error=ErrorCode.OFFSET_OUT_OF_RANGE), fetched(B, batch(2, size=150)))
        answer_rest = rig.answer_later()
        await rig.ask()
        rig.subscription.pause([A, B])
        await rig.ask()
        rig.fetching.raise_failure()
        assert (rig.offsets(A), rig.lost) == ([], []), "its records were not handed over yet"
        rig.subscription.resume([A])
        answer_rest(fetched(C))
        await rig.settle()
        assert (0, 0) in rig.wanted_of(3)

    run(test, leaders=(1, 1, 1), fetch_max_bytes="1000")


def test_a_topic_without_an_id_is_asked_for_by_name():
    async def test(rig):
        rig.read(A)
        rig.answer(fetched(A, batch(0), topic_id=ZERO_UUID))
        await rig.ask()
        assert rig.asked[0][1] == fetch.TOPIC_ID_VERSION - 1
        assert rig.offsets() == [0]

    run(test, topic_id=ZERO_UUID)


def test_the_next_fetch_goes_on_behind_what_came():
    async def test(rig):
        rig.read(A, B)
        rig.answer(fetched(A, batch(0), batch(2), stable=99), fetched(B, batch(0, 1)))
        await rig.ask()
        assert rig.news.is_set()
        assert (rig.offsets(A), rig.offsets(B)) == ([0, 2], [0])
        assert rig.wanted_of(1) == [(0, 4), (1, 1)]
        state = rig.subscription.state(A)
        assert (state.high_watermark, state.last_stable_offset, state.log_start_offset) == (100, 99, 0)

    run(test)


def test_a_session_names_only_what_has_changed():
    async def test(rig):
        rig.read(A, B)
        rig.answer(fetched(A, batch(0)), fetched(B), session=55)
        rig.answer(fetched(B, batch(0)), session=55)
        await rig.ask()
        assert [each[2].session_epoch for each in rig.asked] == [0, 1, 2]
        assert [rig.wanted_of(each) for each in range(3)] == [[(0, 0), (1, 0)], [(0, 2)], [(1, 2)]]

    run(test)


def test_each_broker_has_a_session_of_its_own():
    async def test(rig):
        rig.read(A, C)
        rig.answer(fetched(A, batch(0)), session=55)
        rig.answer(fetched(C, batch(0)), session=66)
        await rig.ask()
        found = [(broker, request.session_id, request.session_epoch) for broker, _, request in rig.asked]
        assert found == [(1, 0, 0), (2, 0, 0), (1, 55, 1), (2, 66, 1)]

    run(test)


def test_a_session_that_is_lost_begins_anew():
    async def test(rig):
        rig.read(A, B)
        rig.answer(fetched(A, batch(0)), session=55)
        rig.answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        await rig.ask()
        assert [each[2].session_epoch for each in rig.asked] == [0, 1, 0]
        assert rig.wanted_of(2) == [(1, 0), (0, 2)]
        rig.fetching.raise_failure()

    run(test)


def test_a_partition_that_has_enough_is_not_asked_for_and_its_broker_does_not_wait_long():
    async def test(rig):
        rig.read(A, B, C)
        rig.answer(fetched(A, batch(0, size=500)))
        await rig.ask()
        first, _, last = rig.asked
        assert (first[2].max_wait_ms, rig.wanted_of(2), last[2].max_wait_ms) == (500, [(1, 0)], 50)

    run(test, max_partition_fetch_bytes="500")


def test_nothing_is_asked_for_while_enough_waits():
    async def test(rig):
        rig.read(A, B)
        rig.answer(fetched(A, batch(0, size=600)))
        await rig.ask()
        assert len(rig.asked) == 1
        rig.buffer.buffer(A).drop_first()
        await rig.ask()
        assert rig.wanted_of(1) == [(1, 0), (0, 2)]

    run(test, fetch_max_bytes="1000")


def test_an_answer_for_another_position_is_not_taken():
    async def test(rig):
        rig.read(A, B)
        gate = asyncio.Event()
        plain = rig._submit

        async def held(*args, **how):
            await gate.wait()
            return await plain(*args, **how)

        rig._submit = held
        rig.answer(fetched(A, batch(0)), fetched(B, batch(0)), fetched(C, batch(0)))
        await rig.ask()
        rig.subscription.seek(A, Position(50))
        gate.set()
        await rig.settle()
        assert (rig.offsets(A), rig.offsets(B)) == ([], [0])
        assert rig.wanted_of(1) == [(0, 50), (1, 2)]

    run(test)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_leader_that_moved_is_looked_for_and_asked(code):
    async def test(rig):
        rig.read(A)
        rig.answer(fetched(A, error=code))
        rig.info = rig.info._replace(topics={"t": TopicInfo("t", ID, False, (PartitionInfo(0, 2, EPOCH + 1, (), ()),))})
        await rig.ask()
        rig.fetching.raise_failure()
        assert rig.refreshed == [("t",)]
        assert [each[0] for each in rig.asked] == [1, 2]

    run(test)


@pytest.mark.parametrize(
    ("leader", "refusal"),
    [(-1, None), (1, ApiError(ErrorCode.NOT_CONTROLLER, "a moment"))],
    ids=["no leader", "refused"],
)
def test_a_broker_is_looked_for_and_asked_after_the_pause_that_is_set(monkeypatch, leader, refusal):
    pauses, sleep = [], asyncio.sleep

    async def at_once(seconds):
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    async def test(rig):
        rig.read(A)
        rig.refusal = refusal
        await rig.ask()
        assert rig.refreshed
        assert set(pauses) == {0.25}

    monkeypatch.setattr(asyncio, "sleep", at_once)
    run(test, leaders=(leader,), retry_backoff_ms="250")


def test_a_partition_without_a_leader_is_waited_for_and_told_of(caplog):
    async def test(rig):
        rig.read(A, B)
        await rig.ask()
        assert rig.wanted_of(0) == [(0, 0)]
        assert rig.refreshed
        rig.clock.advance(PATIENCE)
        rig.fetching._refresh()
        await rig.settle()
        assert "no broker leads partition t-1" in caplog.text
        rig.describe((1, 1))
        rig.fetching._refresh()
        await rig.settle()
        assert rig.obstacles._obstacles == {}

    run(test, leaders=(1, -1))


def test_what_went_wrong_is_raised_once_what_came_before_was_handed_over():
    async def test(rig):
        rig.read(A, B)
        rig.answer(fetched(A, batch(0)), fetched(B, batch(0)))
        rig.answer(fetched(A, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        await rig.ask()
        rig.fetching.raise_failure()
        assert rig.wanted_of(2) == [(1, 2)], "what failed is not asked for again"
        rig.buffer.buffer(A).drop_first()
        with pytest.raises(ApiError, match="partition t-0 at offset 2: TOPIC_AUTHORIZATION_FAILED") as caught:
            rig.fetching.raise_failure()
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        rig.fetching.raise_failure()

    run(test)


def test_what_went_wrong_at_another_position_is_forgotten():
    async def test(rig):
        rig.read(A)
        rig.answer(fetched(A, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        await rig.ask()
        rig.subscription.seek(A, Position(9))
        rig.fetching.raise_failure()
        await rig.ask()
        assert rig.wanted_of(1) == [(0, 9)]

    run(test)


def test_an_offset_out_of_range_is_told_and_not_raised():
    async def test(rig):
        rig.read(A)
        rig.answer(fetched(A, error=ErrorCode.OFFSET_OUT_OF_RANGE))
        await rig.ask()
        rig.fetching.raise_failure()
        ((tp, error),) = rig.lost
        assert (tp, error.code) == (A, ErrorCode.OFFSET_OUT_OF_RANGE)

    run(test)


def test_damage_is_its_own_partitions_alone():
    async def test(rig):
        rig.read(A, B)
        damaged = bytearray(batch(0))
        damaged[-1] ^= 1
        rig.answer(fetched(A, damaged), fetched(B, batch(0)))
        await rig.ask()
        assert rig.offsets(B) == [0]
        with pytest.raises(CorruptRecord, match="t-0"):
            rig.fetching.raise_failure()

    run(test)


def test_crcs_are_not_checked_where_that_is_not_wanted():
    async def test(rig):
        rig.read(A)
        damaged = bytearray(batch(0))
        damaged[-1] ^= 1
        rig.answer(fetched(A, damaged))
        await rig.ask()
        assert rig.offsets() == [0]

    run(test, check_crcs="false")


def test_a_broker_that_refuses_for_good_fails_what_was_asked_of_it():
    async def test(rig):
        rig.read(A)
        rig.refusal = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
        await rig.ask()
        with pytest.raises(ApiError, match="no"):
            rig.fetching.raise_failure()

    run(test)


def test_an_error_of_the_whole_answer_names_the_broker():
    async def test(rig):
        rig.read(A)
        rig.answer(error=ErrorCode.INVALID_REQUEST)
        await rig.ask()
        with pytest.raises(ApiError, match="fetch from broker 1: INVALID_REQUEST"):
            rig.fetching.raise_failure()

    run(test)


def test_a_broker_that_is_gone_for_a_moment_is_asked_again_from_new_metadata():
    async def test(rig):
        rig.read(A)
        rig.refusal = ApiError(ErrorCode.NOT_CONTROLLER, "a moment")
        await rig.ask()
        rig.refusal = None
        rig.answer(fetched(A, batch(0)))
        await rig.settle()
        rig.fetching.raise_failure()
        assert rig.refreshed
        assert rig.offsets() == [0]

    run(test)


def test_offsets_that_compaction_took_below_the_end_are_passed_over_when_told_twice():
    async def test(rig):
        rig.read(A)
        for _ in range(2):
            rig.answer(fetched(A, high_watermark=10))
        await rig.ask()
        assert [rig.wanted_of(each) for each in range(3)] == [[(0, 0)], [(0, 0)], [(0, 10)]]

    run(test)


def test_what_is_in_remote_storage_is_waited_for():
    async def test(rig):
        rig.read(A)
        rig.local_start = 5
        for _ in range(3):
            rig.answer(fetched(A, high_watermark=10))
        rig.answer(fetched(A, batch(0)))
        await rig.ask()
        assert [rig.wanted_of(each) for each in range(5)] == [[(0, 0)]] * 4 + [[(0, 2)]]
        assert rig.offsets() == [0]
        assert rig.asked_for_start == [1, 1, 1]

    run(test)


def test_a_partition_that_found_no_room_beside_others_loses_nothing():
    async def test(rig):
        rig.read(A, B)
        for base in range(0, 6, 2):
            rig.answer(fetched(A, batch(base)), fetched(B, *[batch(0)[:-1]] * (base % 4 // 2)))
        await rig.ask()
        assert [rig.wanted_of(each) for each in range(4)] == [
            [(0, 0), (1, 0)], [(1, 0), (0, 2)], [(1, 0), (0, 4)], [(1, 0), (0, 6)]
        ]  # fmt: skip

    run(test)


def test_records_that_are_no_whole_batch_are_told_of():
    async def test(rig):
        rig.read(A, B)
        rig.answer(fetched(A, batch(0)[:-1]), fetched(B))
        await rig.ask()
        with pytest.raises(RemoteProtocolError, match="t-0"):
            rig.fetching.raise_failure()

    run(test)


def test_nothing_at_the_end_is_no_hole():
    async def test(rig):
        rig.read(A, at=10)
        for _ in range(3):
            rig.answer(fetched(A, high_watermark=10))
        await rig.ask()
        assert [rig.wanted_of(each) for each in range(4)] == [[(0, 10)]] * 4

    run(test)


def sent_to(tp, broker):
    return replace(fetched(tp), records=[], preferred_read_replica=broker)


def test_the_replica_that_the_leader_names_is_asked_instead():
    async def test(rig):
        rig.read(A, B)
        rig.answer(sent_to(A, 2), fetched(B, batch(0)))
        rig.answer(fetched(A, batch(0)))
        await rig.ask()
        asked = [(broker, [each.partition for each in request.partitions]) for broker, _, request in rig.asked[1:3]]
        assert sorted(asked) == [(1, [1]), (2, [0])]
        assert rig.offsets() == [0]
        assert not rig.refreshed

    run(test)


def test_after_metadata_has_aged_the_leader_is_asked_again():
    async def test(rig):
        rig.read(A)
        rig.answer(sent_to(A, 2))
        rig.answer(fetched(A, batch(0)))
        await rig.ask()
        assert [broker for broker, *_ in rig.asked] == [1, 2, 2]
        rig.clock.advance(2)
        rig.fetching.send()
        await rig.settle()
        assert [broker for broker, *_ in rig.asked] == [1, 2, 2, 1]

    run(test, metadata_max_age_ms="1000")


def test_what_a_follower_has_not_is_asked_of_the_leader_before_it_is_told():
    async def test(rig):
        rig.read(A)
        rig.answer(sent_to(A, 2))
        rig.answer(fetched(A, error=ErrorCode.OFFSET_OUT_OF_RANGE))
        rig.answer(fetched(A, error=ErrorCode.OFFSET_OUT_OF_RANGE))
        await rig.ask()
        assert [broker for broker, *_ in rig.asked] == [1, 2, 1]
        rig.fetching.raise_failure()
        assert [tp for tp, _ in rig.lost] == [A], "the leader's word counts"

    run(test)


def test_a_follower_that_cannot_be_reached_is_left_to_the_leader():
    async def test(rig):
        rig.read(A)
        rig.answer(sent_to(A, 2))
        rig.answers.append(None)
        rig.answer(fetched(A, batch(0)))
        await rig.ask()
        await asyncio.sleep(0.01)  # the backoff of 0 s
        await rig.ask()
        assert [(broker, request.rack_id) for broker, _, request in rig.asked][:3] == [(1, "r1"), (2, "r1"), (1, "")]
        assert rig.offsets() == [0]

    run(test)


def test_what_two_brokers_give_of_one_offset_is_kept_once():
    async def test(rig):
        rig.read(A)
        late = asyncio.get_running_loop().create_future()
        rig.answers.append(late)
        await rig.ask()
        rig.describe((2, 1, 2))
        rig.answer(fetched(A, batch(0)))
        await rig.ask()
        assert rig.offsets() == [0]
        late.set_result((_NONE, 0, [fetched(A, batch(0))]))
        await rig.settle()
        assert rig.offsets() == [0]

    run(test)
