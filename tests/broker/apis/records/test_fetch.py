"""Fetch: how long a step is, what a long poll waits for, and what happens where a request is given up."""

import asyncio
import random
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest
from log.samples import marker_of, read_bytes, transactional

from sparklog.broker.apis.records import fetch
from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.context import ApiRequest
from sparklog.broker.fetch_sessions import FetchAnswer, FetchSessions
from sparklog.config.broker import BrokerConfig
from sparklog.config.topic import TopicConfig
from sparklog.errors import ErrorCode
from sparklog.log.directories.manager import LogManager
from sparklog.log.origin import AppendOrigin
from sparklog.net.throttle import throttle_seconds
from sparklog.net.turns import Turns
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot.fetch import FetchedPartition, FetchPartition, FetchRequest, ForgottenPartition
from sparklog.protocol.slices import LARGE_ANSWER, SLICE
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.control import ControlType
from sparklog.record.records import iter_batches
from sparklog.replica.manager import ReplicaManager
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.authorizer import ListedRights
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import counted, finish
from sparklog.zk.znodes import PartitionState

pytestmark = pytest.mark.source

ME = 1
MANY = 20 * SLICE
PATIENT_MS = 3_600_000
"""Longer than a test may take: an answer was not waited for."""
ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(size=100):
    builder = RecordBatchBuilder()
    builder.append(0, b"k", b"v" * size)
    return memoryview(bytearray(builder.build()))


def asked(partition=0, offset=0, max_bytes=1 << 20):
    return FetchPartition("t", ZERO_UUID, partition, offset, max_bytes)


class Broker:
    """What Fetch needs of one, on real files; counts what is read of partitions."""

    authorizer = AllowEverything()

    def __init__(self, home, disk, config):
        loop = asyncio.get_running_loop()
        self.logs = LogManager([home], config, ManualClock(), disk)
        self.clock = ManualClock()
        self.replicas = ReplicaManager(ME, self.logs, loop, clock=self.clock, max_lag_ms=1000 * LAG_S)
        self.turns = Turns(loop, ManualClock())
        self.config = SimpleNamespace(fetch_max_bytes=55 << 20, selects_by_rack=False)
        self.quotas = ClientQuotas(BrokerConfig(), self.clock)
        self.fetch_sessions = FetchSessions(10, 1000, random.Random(1).randrange)
        self.metadata = SimpleNamespace(knows=lambda tp: False, name_of=lambda topic_id: None)
        self.leader_hint = lambda tp, listener: None
        self.reads = 0
        self._read, self._read_as_follower = self.replicas.read, self.replicas.read_as_follower
        self.replicas.read, self.replicas.read_as_follower = self.read, self.read_as_follower
        for tp in (ONE, TWO):
            self.replicas.apply(tp, PartitionState(ME, 0, (ME,), 1), config, None)

    def read(self, *args, **kwargs):
        self.reads += 1
        return self._read(*args, **kwargs)

    def read_as_follower(self, *args, **kwargs):
        self.reads += 1
        return self._read_as_follower(*args, **kwargs)

    def write(self, *sizes, tp=ONE):
        for size in sizes:
            self.replicas.append(tp, batch(size), 1)

    def ask(
        self, *partitions, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session=0, epoch=-1, forgotten=(),
        isolation=IsolationLevel.READ_UNCOMMITTED, replica=-1, replica_epoch=-1, version=12,
    ):  # fmt: skip
        message = FetchRequest(
            max_wait_ms, min_bytes, max_bytes, list(partitions), isolation, session_id=session, session_epoch=epoch,
            forgotten=list(forgotten), replica_id=replica, replica_epoch=replica_epoch,
        )  # fmt: skip
        return fetch.handle(self, ApiRequest(ApiKey.FETCH, version, "c", Caller("h"), message))

    async def answer(self, *partitions, **how):
        """The answer, whenever it comes."""
        given = self.ask(*partitions, **how)
        if isinstance(given, Generator):
            _, given = counted(given)
        return given if isinstance(given, FetchAnswer) else await given

    def counted(self, steps):
        """The most that was read in one step, and the result."""
        most, before = 0, self.reads
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return max(most, self.reads - before), end.value
            most, before = max(most, self.reads - before), self.reads


def with_broker(home, scenario, **config):
    async def run():
        with ThreadPoolExecutor(1) as disk:
            broker = Broker(home, disk, TopicConfig(**config))
            await asyncio.wait_for(scenario(broker), 60)
            assert len(broker.replicas.fetch_purgatory) == 0
        broker.logs.close()

    asyncio.run(run())


def records_of(answer):
    return {each.partition: sum(piece.size for piece in each.records) for each in answer.partitions}


def test_many_partitions_are_read_a_slice_a_step(tmp_path):
    async def scenario(broker):
        broker.write(100)
        most, answer = broker.counted(broker.ask(*map(asked, range(MANY))))
        assert most <= SLICE
        assert broker.reads == MANY
        assert records_of(answer)[0] > 0
        assert {each.error for each in answer.partitions[2:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        steps, body = counted(fetch.encode(answer, 12))
        assert steps >= 2 * MANY / SLICE
        assert b"".join(body[:1])

    with_broker(tmp_path, scenario)


def test_one_partition_that_is_named_many_times_is_read_once(tmp_path):
    async def scenario(broker):
        broker.write(100, 100)
        steps, answer = counted(broker.ask(*[asked(0, 99)] * MANY, asked(0, 1)))
        assert broker.reads == 1
        assert steps >= MANY / SLICE
        assert [each.error for each in answer.partitions] == [ErrorCode.NONE], "as it was named last"

    with_broker(tmp_path, scenario)


def test_a_request_of_few_is_served_at_once(tmp_path):
    async def scenario(broker):
        assert isinstance(broker.ask(*map(asked, range(SLICE))), FetchAnswer)

    with_broker(tmp_path, scenario)


def test_a_large_session_is_served_in_steps_whatever_the_request_names(tmp_path):
    async def scenario(broker):
        most, full = broker.counted(broker.ask(*map(asked, range(MANY)), epoch=0))
        assert most <= SLICE
        gone = [ForgottenPartition("t", ZERO_UUID, number) for number in range(2, MANY // 2)]
        _, rest = broker.counted(broker.ask(session=full.session_id, epoch=1, forgotten=gone))
        assert len(rest.partitions) == MANY - MANY // 2
        broker.reads = 0
        most, again = broker.counted(broker.ask(session=full.session_id, epoch=2))
        assert 0 < most <= SLICE
        assert broker.reads == MANY - MANY // 2, "but for the two that are there, of which all was told"
        assert len(again.partitions) == MANY - MANY // 2

    with_broker(tmp_path, scenario)


def test_a_session_is_over_where_its_request_is_given_up_between_two_steps(tmp_path):
    async def scenario(broker):
        _, full = counted(broker.ask(*map(asked, range(MANY)), epoch=0))
        for stop in (1, MANY // SLICE // 2, MANY // SLICE + 3):
            steps = broker.ask(session=full.session_id, epoch=1)
            for _ in range(stop):
                next(steps)
            steps.close()
            late = broker.ask(session=full.session_id, epoch=2)
            assert late.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            _, full = counted(broker.ask(*map(asked, range(MANY)), epoch=0))

    with_broker(tmp_path, scenario)


def test_two_requests_of_one_session_do_not_mix(tmp_path):
    async def scenario(broker):
        _, full = counted(broker.ask(*map(asked, range(MANY)), epoch=0))
        first = broker.ask(session=full.session_id, epoch=1)
        for _ in range(MANY // SLICE):
            next(first)
            other = await broker.answer(session=full.session_id, epoch=2)
            assert other.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert counted(first)[1].error is ErrorCode.NONE
        assert counted(broker.ask(session=full.session_id, epoch=2))[1].error is ErrorCode.NONE

    with_broker(tmp_path, scenario)


def test_a_long_poll_of_a_large_session_waits_and_is_told_the_news(tmp_path):
    async def scenario(broker):
        for number in range(2, 2 * SLICE):
            tp = TopicPartition("t", number)
            broker.replicas.apply(tp, PartitionState(ME, 0, (ME,), 1), broker.logs.logs[ONE].config, None)
        full = await broker.answer(*map(asked, range(2 * SLICE)), epoch=0)
        waiting = asyncio.ensure_future(broker.answer(session=full.session_id, epoch=1, max_wait_ms=PATIENT_MS))
        while not len(broker.replicas.fetch_purgatory):
            await asyncio.sleep(0)
        broker.write(10, tp=TopicPartition("t", SLICE))
        assert list(records_of(await waiting)) == [SLICE]
        waiting = asyncio.ensure_future(
            broker.answer(asked(SLICE, 1), session=full.session_id, epoch=2, max_wait_ms=PATIENT_MS)
        )
        while not len(broker.replicas.fetch_purgatory):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])

    with_broker(tmp_path, scenario)


# What need not be read again


class Reader:
    """A client in a session over partitions 0 and 1, and what it knows of them."""

    def __init__(self, broker, **how):
        self.broker, self.how = broker, how
        self.session = self.epoch = 0
        self.offsets = {0: 0, 1: 0}
        self.pending = [0, 1]
        self.known = {}

    async def fetch(self, **how):
        """One fetch; which partitions it told of, and how many were read for it."""
        named = [asked(number, self.offsets[number]) for number in self.pending]
        before = self.broker.reads
        answer = await self.broker.answer(*named, session=self.session, epoch=self.epoch, **self.how | how)
        assert answer.error is ErrorCode.NONE
        self.session, self.epoch, self.pending = answer.session_id, self.epoch + 1, []
        for each in answer.partitions:
            self.known[each.partition] = (each.error, each.high_watermark, each.log_start_offset)
            ends = [batch.next_offset for piece in each.records for batch in iter_batches(read_bytes(piece))]
            if ends:
                self.offsets[each.partition] = ends[-1]
                self.pending.append(each.partition)
        return [each.partition for each in answer.partitions], self.broker.reads - before


def lead(broker, tp, epoch, leader=ME, isr=(ME,), topic_id=None, **how):
    broker.replicas.apply(tp, PartitionState(leader, epoch, isr, 1), broker.logs.logs[ONE].config, topic_id, **how)


def test_many_partitions_that_have_moved_meanwhile_are_read_a_slice_a_step_behind_the_wait(tmp_path):
    many = 3 * SLICE

    async def scenario(broker):
        for number in range(2, many):
            tp = TopicPartition("t", number)
            broker.replicas.apply(tp, PartitionState(ME, 0, (ME,), 1), broker.logs.logs[ONE].config, None)
        full = await broker.answer(*map(asked, range(many)), epoch=0)
        in_a_step = []

        async def drive(steps, _what):
            most, result = broker.counted(steps)
            in_a_step.append(most)
            return result

        broker.turns.drive, broker.reads = drive, 0
        enough = many * batch(10).nbytes
        given = broker.ask(session=full.session_id, epoch=1, max_wait_ms=PATIENT_MS, min_bytes=enough)
        assert broker.reads == 0, "all was told"
        waiting = asyncio.ensure_future(given)
        while not len(broker.replicas.fetch_purgatory):
            await asyncio.sleep(0)
        for number in range(many):
            broker.write(10, tp=TopicPartition("t", number))
        assert len(records_of(await waiting)) == broker.reads == many
        assert in_a_step == [SLICE]

    with_broker(tmp_path, scenario)


def test_what_was_told_whole_is_not_read_again_until_it_moves(tmp_path):
    async def scenario(broker):
        reader = Reader(broker)
        assert await reader.fetch() == ([0, 1], 2)
        assert await reader.fetch() == ([], 0)
        broker.write(10, tp=TWO)
        assert await reader.fetch() == ([1], 1)
        assert await reader.fetch() == ([], 1), "it asks from another offset"
        assert await reader.fetch() == ([], 0)

    with_broker(tmp_path, scenario)


def test_a_poll_is_woken_by_what_was_not_read_for_it(tmp_path):
    async def scenario(broker):
        reader = Reader(broker)
        for _ in range(2):
            await reader.fetch()
        for tp in (TWO, ONE):
            polling = asyncio.ensure_future(reader.fetch(max_wait_ms=PATIENT_MS))
            while not len(broker.replicas.fetch_purgatory):
                await asyncio.sleep(0)
            broker.write(10, tp=tp)
            assert (await polling)[0] == [tp.partition]
            await reader.fetch()

    with_broker(tmp_path, scenario)


def test_a_poll_is_woken_by_a_partition_that_was_added_by_its_topics_id(tmp_path):
    """Its name is found when it is read first: it is by name that it is waited for."""

    async def scenario(broker):
        topic_id = UUID(int=7)
        broker.metadata.name_of = {topic_id: "t"}.get
        lead(broker, ONE, 1, topic_id=topic_id)
        lead(broker, TWO, 1, topic_id=topic_id)
        first, added = (asked(number)._replace(topic="", topic_id=topic_id) for number in (0, 1))
        session = (await broker.answer(first, epoch=0, version=13)).session_id
        await broker.answer(added, session=session, epoch=1, version=13)
        polling = asyncio.ensure_future(broker.answer(session=session, epoch=2, version=13, max_wait_ms=PATIENT_MS))
        while not len(broker.replicas.fetch_purgatory):
            await asyncio.sleep(0)
        broker.write(10, tp=TWO)
        assert list(records_of(await polling)) == [1]

    with_broker(tmp_path, scenario)


CHANGES = {
    "the log": lambda broker: broker.write(10, tp=TWO),
    "the start": lambda broker: broker.replicas.delete_records(TWO, 1),
    "the epoch": lambda broker: lead(broker, TWO, 1),
    "the leader": lambda broker: lead(broker, TWO, 1, leader=ME + 1),
    "the broker": lambda broker: broker.replicas.stop(TWO, delete=False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_of_a_partition_has_it_read_again(tmp_path, change):
    async def scenario(broker):
        broker.write(10, tp=TWO)
        reader = Reader(broker)
        for _ in range(3):
            await reader.fetch()
        assert await reader.fetch() == ([], 0)
        CHANGES[change](broker)
        told, reads = await reader.fetch()
        assert (told, reads) == ([] if change in ("the epoch", "the leader") else [1], 1)

    with_broker(tmp_path, scenario)


def test_who_asks_for_more_than_before_has_all_read_again(tmp_path):
    async def scenario(broker):
        broker.replicas.append(TWO, transactional(7, 0), -1, AppendOrigin.COORDINATOR)
        reader = Reader(broker, isolation=IsolationLevel.READ_COMMITTED)
        for _ in range(2):
            assert (await reader.fetch())[0] in ([0, 1], [])
        assert await reader.fetch() == ([], 0), "the transaction is open"
        assert await reader.fetch(isolation=IsolationLevel.READ_UNCOMMITTED) == ([1], 2)

    with_broker(tmp_path, scenario)


def test_whatever_happens_a_session_tells_what_is_so(tmp_path):
    """Beside one client that has a session, each partition is read without one."""

    async def scenario(broker):
        chance, epochs, served = random.Random(5), {ONE: 0, TWO: 0}, {ONE: True, TWO: True}
        reader, others = Reader(broker), 0
        for _ in range(1500):
            tp = chance.choice((ONE, TWO))
            match chance.randrange(8):
                case 0 | 1 if served[tp]:
                    broker.write(*[10] * chance.randrange(1, 3), tp=tp)
                case 2 if served[tp]:
                    broker.replicas.delete_records(tp, -1)
                case 3:
                    epochs[tp] += 1
                    served[tp] = chance.random() < 0.7
                    lead(broker, tp, epochs[tp], leader=ME if served[tp] else ME + 1)
            start = min(reader.known.get(tp.partition, (0, 0, 0))[2], reader.offsets[tp.partition])
            told, reads = await reader.fetch()
            others += 2 - reads
            for number, each in enumerate((ONE, TWO)):
                now = (await broker.answer(asked(number, reader.offsets[number]))).partitions[0]
                assert reader.known[number] == (now.error, now.high_watermark, now.log_start_offset), (told, start)
                if now.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                    reader.offsets[number] = broker.replicas.partition(each).log_start_offset
                    reader.pending.append(number)
        assert others > 500, "most was not read"

    with_broker(tmp_path, scenario)


FOLLOWER = ME + 1
LAG_S = 30


def followed(broker, isr=(ME, FOLLOWER), **how):
    """Both partitions have a follower, which asks in a session."""
    for tp in (ONE, TWO):
        lead(broker, tp, 1, isr=isr, replicas=(ME, FOLLOWER))
    return Reader(broker, replica=FOLLOWER, replica_epoch=7, **how)


def proposed(broker):
    """The changes of the ISR that are due."""
    found = []
    broker.replicas.on_proposal = lambda tp, proposal: found.append((tp.partition, proposal.isr))
    for _ in broker.replicas.leave_out_lagging():
        pass
    return found


def test_a_follower_that_has_all_is_in_sync_though_nothing_is_read_for_it(tmp_path):
    async def scenario(broker):
        reader = followed(broker)
        for _ in range(3):
            assert (await reader.fetch())[0] in ([0, 1], [])
        for _ in range(10):
            broker.clock.advance(LAG_S - 1)
            assert await reader.fetch() == ([], 0)
        broker.write(10)
        broker.clock.advance(LAG_S - 1)
        assert proposed(broker) == [], "so long ago it had all"
        broker.clock.advance(2)
        assert proposed(broker) == [(0, (ME,))]

    with_broker(tmp_path, scenario)


def test_a_follower_that_asks_no_more_is_out_of_sync_as_soon_as_there_is_more(tmp_path):
    async def scenario(broker):
        reader = followed(broker)
        for _ in range(3):
            await reader.fetch()
        broker.clock.advance(LAG_S + 1)
        assert proposed(broker) == []
        broker.write(10)
        assert proposed(broker) == [(0, (ME,))]

    with_broker(tmp_path, scenario)


def test_a_follower_that_lags_has_not_caught_up_by_asking(tmp_path):
    async def scenario(broker):
        reader = followed(broker, max_bytes=0)
        for _ in range(3):
            await reader.fetch()
        broker.write(10, 10, 10)
        for _ in range(3):
            broker.clock.advance(LAG_S // 2)
            reader.pending, reader.offsets[0] = [0], 0
            await reader.fetch()
        assert proposed(broker) == [(0, (ME,))]

    with_broker(tmp_path, scenario)


def test_a_follower_that_is_not_in_sync_may_join_at_each_fetch(tmp_path):
    async def scenario(broker):
        reader = followed(broker, isr=(ME,))
        found = []
        broker.replicas.on_proposal = lambda tp, proposal: found.append((tp, proposal))
        for round_ in range(1, 4):
            await reader.fetch()
            assert [tp for tp, _ in found] == [ONE, TWO] * round_
            for tp, proposal in found[-2:]:
                broker.replicas.give_up(tp, proposal)
        await reader.fetch()
        for tp, proposal in found[-2:]:
            broker.replicas.settle(tp, proposal, proposal.isr, 1)
        assert await reader.fetch() == ([], 2)
        assert await reader.fetch() == ([], 0)

    with_broker(tmp_path, scenario)


def test_a_follower_that_has_all_joins_again_when_it_was_left_out(tmp_path):
    async def scenario(broker):
        reader, found = followed(broker), []
        for _ in range(3):
            await reader.fetch()
        broker.replicas.on_proposal = lambda tp, proposal: found.append((tp, proposal.isr))
        state = PartitionState(ME, 1, (ME,), 1, version=1)
        broker.replicas.apply(ONE, state, TopicConfig(), None, replicas=(ME, FOLLOWER))
        assert await reader.fetch() == ([], 1)
        assert found == [(ONE, (ME, FOLLOWER))]

    with_broker(tmp_path, scenario)


def test_a_follower_that_has_all_is_told_when_more_is_committed(tmp_path):
    async def scenario(broker):
        replicas = (ME, FOLLOWER, FOLLOWER + 1)
        for tp in (ONE, TWO):
            lead(broker, tp, 1, isr=replicas, replicas=replicas)
        broker.write(10)
        first, second = Reader(broker, replica=FOLLOWER), Reader(broker, replica=FOLLOWER + 1)
        for _ in range(4):
            await first.fetch()
        assert (first.known[0][1], await first.fetch()) == (0, ([], 0))
        for _ in range(2):
            await second.fetch()
        assert await first.fetch() == ([0], 1)
        assert first.known[0][1] == 1

    with_broker(tmp_path, scenario)


def test_a_follower_that_has_registered_anew_is_looked_at_anew(tmp_path):
    async def scenario(broker):
        reader = followed(broker)
        for _ in range(3):
            await reader.fetch()
        reader.how["replica_epoch"] = 8
        assert await reader.fetch() == ([], 2)
        assert await reader.fetch() == ([], 0)
        reader.how["replica_epoch"] = 7
        assert await reader.fetch() == ([0, 1], 2), "it is not the newest of that id"
        assert reader.known[0][0] is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_broker(tmp_path, scenario)


# How long a poll waits


def waits(broker, *partitions, **how):
    """Whether the request is still not answered when all that could answer it has had its turn."""

    async def ask():
        polling = asyncio.ensure_future(broker.answer(*partitions, max_wait_ms=PATIENT_MS, **how))
        for _ in range(20):
            await asyncio.sleep(0)
        if not polling.done():
            polling.cancel()
            await asyncio.wait([polling])
            return True
        assert sum(records_of(polling.result()).values()) > 0, "who asks again at once would never get on"
        return False

    return ask()


def test_a_first_batch_for_which_there_is_no_room_is_not_waited_for(tmp_path):
    async def scenario(broker):
        broker.write(600)
        broker.write(500, tp=TWO)
        both = asked(0), asked(1)
        assert not await waits(broker, *both, min_bytes=1000, max_bytes=1000)
        assert await waits(broker, *both, min_bytes=5000, max_bytes=5000), "there is room for more"

    with_broker(tmp_path, scenario)


def test_no_more_is_waited_for_than_the_partitions_may_give(tmp_path):
    async def scenario(broker):
        broker.write(*[100] * 10)
        assert not await waits(broker, asked(max_bytes=300), min_bytes=5000)
        assert not await waits(broker, asked(max_bytes=1), min_bytes=5000), "a first batch that is larger"
        assert not await waits(broker, asked(max_bytes=0), min_bytes=5000)
        assert await waits(broker, asked(max_bytes=300), asked(1, max_bytes=300), min_bytes=5000), "of the other"

    with_broker(tmp_path, scenario)


def test_an_earlier_segment_is_not_waited_for(tmp_path):
    async def scenario(broker):
        broker.write(*[500] * 20)
        assert len(list(tmp_path.glob("t-0/*.log"))) > 1
        assert not await waits(broker, asked(0), min_bytes=1 << 19)
        assert await waits(broker, asked(0, 19), min_bytes=1 << 19)

    with_broker(tmp_path, scenario, segment_bytes=2000)


@pytest.mark.parametrize("max_bytes", [1 << 20, 1, 0])
def test_the_end_of_a_log_is_waited_at(tmp_path, max_bytes):
    async def scenario(broker):
        assert await waits(broker, asked(max_bytes=max_bytes))
        broker.write(100)
        assert await waits(broker, asked(0, 1, max_bytes))

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize("min_bytes", [1, 1000])
def test_an_answer_tells_of_some_aborted_transactions_and_waits_for_no_more(tmp_path, monkeypatch, min_bytes):
    for module in ("sparklog.broker.apis.records.fetch", "sparklog.log.log"):
        monkeypatch.setattr(f"{module}.MOST_ABORTED", 3)

    async def scenario(broker):
        for tp in (ONE, TWO):
            for number in range(10):
                broker.replicas.append(tp, transactional(1, number), 1, AppendOrigin.COORDINATOR)
                broker.replicas.append(tp, marker_of(1, ControlType.ABORT), 1, AppendOrigin.COORDINATOR)
        offsets, answers = {0: 0, 1: 0}, 0
        while min(offsets.values()) < 20:
            left = [asked(number, offset) for number, offset in offsets.items() if offset < 20]
            wanted = 1 if answers else min_bytes
            answer = await broker.answer(
                *left, isolation=IsolationLevel.READ_COMMITTED, min_bytes=wanted, max_wait_ms=PATIENT_MS
            )
            answers += 1
            assert 0 < sum(len(each.aborted) for each in answer.partitions) <= 2 * (3 + 2)
            for each in answer.partitions:
                for piece in each.records:
                    (*_, last) = iter_batches(read_bytes(piece))
                    aborted = {first for _, first in each.aborted if first <= last.last_offset}
                    begun = offsets[each.partition] // 2 * 2
                    assert aborted == {*range(begun, last.last_offset + 1, 2)}
                    offsets[each.partition] = last.last_offset + 1
        assert answers > 5

    with_broker(tmp_path, scenario)


def test_a_throttled_follower_that_is_not_in_sync_waits_and_one_in_sync_does_not(tmp_path):
    async def scenario(broker):
        followed(broker, isr=(ME, FOLLOWER))
        lead(broker, TWO, 2, isr=(ME,), replicas=(ME, FOLLOWER))
        throttled = replace(TopicConfig(), leader_replication_throttled_replicas=(f"1:{ME}", "0:1"))
        broker.replicas.configure("t", throttled)
        broker.replicas.leader_throttle.limit = 100
        for tp in (ONE, TWO):
            broker.write(500, tp=tp)

        async def sizes():
            answer = await broker.answer(asked(0), asked(1), replica=FOLLOWER)
            return [sum(piece.size for piece in each.records) for each in answer.partitions]

        in_sync, lagging = await sizes()
        assert min(in_sync, lagging) > 500
        assert await sizes() == [in_sync, 0], "more than allowed was sent"
        broker.clock.advance(11)
        assert await sizes() == [in_sync, lagging]
        broker.clock.advance(2)
        broker.replicas.configure("t", TopicConfig())
        assert await sizes() == [in_sync, lagging], "it is throttled no more"

    with_broker(tmp_path, scenario)


def test_what_is_held_back_is_not_waited_for(tmp_path):
    async def scenario(broker):
        lead(broker, ONE, 1, isr=(ME,), replicas=(ME, FOLLOWER))
        broker.replicas.configure("t", replace(TopicConfig(), leader_replication_throttled_replicas=("*",)))
        broker.replicas.leader_throttle.limit = 0
        broker.replicas.leader_throttle.record(1)
        broker.write(500)
        waiting = asyncio.ensure_future(broker.answer(asked(0), max_wait_ms=PATIENT_MS, replica=FOLLOWER))
        await asyncio.sleep(0)
        broker.write(500)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done(), "or the follower would ask again and again"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    with_broker(tmp_path, scenario)


def test_a_topic_of_many_partitions_is_asked_for_once(tmp_path):
    async def scenario(broker):
        broker.write(100)
        broker.authorizer = ListedRights("READ topic t")
        other = FetchPartition("other", ZERO_UUID, 0, 0, 100)
        _, answer = broker.counted(broker.ask(*map(asked, range(MANY)), other))
        assert broker.authorizer.questions == ["READ topic t", "READ topic other"]
        assert answer.partitions[-1].error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert records_of(answer)[1] == 0
        assert broker.reads == MANY

    with_broker(tmp_path, scenario)


def test_a_right_that_is_taken_away_while_a_request_waits_counts_no_more(tmp_path):
    async def scenario(broker):
        broker.authorizer = ListedRights("READ topic t")
        waiting = asyncio.ensure_future(broker.answer(asked(), max_wait_ms=60_000))
        await asyncio.sleep(0)
        assert not waiting.done()
        broker.authorizer.allowed.clear()
        broker.write(100)
        told = (await waiting).partitions[0]
        assert (told.error, told.records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])

    with_broker(tmp_path, scenario)


def test_a_partition_of_a_session_is_refused_when_it_moves(tmp_path):
    async def scenario(broker):
        broker.write(100)
        broker.authorizer = ListedRights("READ topic t")
        full = await broker.answer(asked(offset=1), epoch=0)
        broker.authorizer.allowed.clear()
        broker.write(100)
        (told,) = (await broker.answer(session=full.session_id, epoch=1)).partitions
        assert (told.error, told.records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])

    with_broker(tmp_path, scenario)


def test_a_follower_needs_a_right_on_the_cluster_alone(tmp_path):
    async def scenario(broker):
        broker.write(100)
        broker.authorizer = ListedRights("CLUSTER_ACTION cluster kafka-cluster")
        (told,) = (await broker.answer(asked(), replica=2)).partitions
        assert told.error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert broker.authorizer.questions == ["CLUSTER_ACTION cluster kafka-cluster"]
        assert broker.reads == 1

    with_broker(tmp_path, scenario)


RATE = 1000  # bytes a second, and ten times as many at once


def with_quota(broker, **quotas):
    broker.quotas.take_over("clients/c", quotas or {"consumer_byte_rate": str(RATE)})


def test_a_consumer_over_its_quota_is_given_nothing_and_told_to_wait(tmp_path):
    async def scenario(broker):
        broker.write(*[1000] * 30)
        with_quota(broker)
        first = await broker.answer(asked())
        assert 9 * RATE < records_of(first)[0] <= 10 * RATE
        assert first.throttle_ms == 0
        late = await broker.answer(asked(offset=9), max_wait_ms=PATIENT_MS)
        assert late.partitions == []
        assert late.throttle_ms > 0
        body = b"".join(fetch.encode(late, 12, late.throttle_ms))
        assert throttle_seconds(ApiKey.FETCH, 12, memoryview(body)) == late.throttle_ms / 1000
        broker.clock.advance(11)
        assert records_of(await broker.answer(asked(offset=9)))[0] > 9 * RATE

    with_broker(tmp_path, scenario)


def test_a_session_goes_on_behind_a_throttled_answer(tmp_path):
    async def scenario(broker):
        broker.write(*[1000] * 9)
        full = await broker.answer(asked(), epoch=0)
        with_quota(broker)
        await broker.answer(asked(), max_bytes=1 << 20)
        throttled = await broker.answer(session=full.session_id, epoch=1)
        assert (throttled.session_id, throttled.error) == (full.session_id, ErrorCode.NONE)
        assert throttled.throttle_ms > 0
        broker.clock.advance(11)
        next_ = await broker.answer(session=full.session_id, epoch=2)
        assert records_of(next_)[0] > 8 * RATE

    with_broker(tmp_path, scenario)


def test_a_full_fetch_that_is_throttled_gets_no_session(tmp_path):
    async def scenario(broker):
        broker.write(*[1000] * 9)
        with_quota(broker)
        await broker.answer(asked())
        throttled = await broker.answer(asked(), epoch=0)
        assert (throttled.session_id, throttled.throttle_ms > 0) == (0, True)
        assert len(broker.fetch_sessions) == 0

    with_broker(tmp_path, scenario)


def test_a_follower_has_no_quota(tmp_path):
    async def scenario(broker):
        broker.write(*[1000] * 30)
        lead(broker, ONE, 1, isr=(ME, FOLLOWER), replicas=(ME, FOLLOWER))
        with_quota(broker)
        for _ in range(3):
            given = await broker.answer(asked(), replica=FOLLOWER)
            assert records_of(given)[0] > 30 * RATE
            assert given.throttle_ms == 0

    with_broker(tmp_path, scenario)


def test_a_large_fetch_is_throttled_too(tmp_path):
    async def scenario(broker):
        broker.write(*[1000] * 9)
        with_quota(broker)
        assert records_of(await broker.answer(*map(asked, range(MANY))))[0] > 8 * RATE
        assert (await broker.answer(*map(asked, range(MANY)))).partitions == []

    with_broker(tmp_path, scenario)


def test_an_answer_of_many_partitions_tells_how_long_to_wait_too():
    """Over a quota of the loop's time, for that of bytes leaves none in the answer."""
    many = [FetchedPartition("t", ZERO_UUID, number, ErrorCode.NONE, 0) for number in range(LARGE_ANSWER + 1)]
    steps = fetch.encode(FetchAnswer(many), 12, 1500)
    assert not isinstance(steps, list)
    body = b"".join(finish(steps))
    assert throttle_seconds(ApiKey.FETCH, 12, memoryview(body)) == 1.5


def test_a_fetch_that_waits_is_throttled_when_there_is_something(tmp_path):
    async def scenario(broker):
        broker.write(*[1000] * 9)
        with_quota(broker)
        await broker.answer(asked())
        waiting = asyncio.ensure_future(broker.answer(asked(offset=9), max_wait_ms=PATIENT_MS))
        await asyncio.sleep(0)
        broker.write(1000)
        given = await waiting
        assert (given.partitions, given.throttle_ms > 0) == ([], True)

    with_broker(tmp_path, scenario)
