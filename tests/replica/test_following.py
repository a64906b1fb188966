"""A leader and a follower, each with its files: what is copied, what is dropped, and what is told."""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

import pytest

from sparklog import rate_limit
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, LogClosed
from sparklog.log.directories.manager import LogManager
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.rebuilding import empty_header
from sparklog.replica.manager import Follower, ReplicaFetch, ReplicaManager
from sparklog.structs import IsolationLevel, OffsetAndEpoch, TopicPartition
from sparklog.testing.clock import ManualClock, jump
from sparklog.zk.znodes import PartitionState

TP, ID = TopicPartition("t", 0), UUID(int=1)
LEADER, FOLLOWER = 1, 2
BOTH = (LEADER, FOLLOWER)
LARGE = 1 << 20


def batch(value=b"v", count=1):
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(1, None, value)
    return memoryview(bytearray(builder.build()))


def decision(leader, epoch, isr=BOTH, version=0):
    return PartitionState(leader, epoch, isr, 1, version)


class Pair:
    def __init__(self, home, disk, loop, **settings):
        self.config = parse(TopicConfig, settings)
        self.run = loop.run_until_complete
        self.clock = ManualClock()
        self.managers, self.logs, self.proposals = {}, {}, []
        for number in BOTH:
            logs = LogManager([home / str(number)], TopicConfig(), self.clock, disk)
            logs.load({})
            manager = ReplicaManager(number, logs, loop, clock=self.clock, max_lag_ms=10_000)
            manager.on_proposal = lambda _, proposal: self.proposals.append(proposal)
            self.managers[number], self.logs[number] = manager, logs

    def __getitem__(self, number):
        return self.managers[number]

    def decide(self, state, *brokers):
        for number in brokers or BOTH:
            assert self[number].apply(TP, state, self.config, ID, replicas=BOTH) is ErrorCode.NONE

    def fetch(self, of=LEADER, to=FOLLOWER, max_bytes=LARGE):
        """One fetch and what comes of it; the answer."""
        epoch = self[to].partition(TP).leader_epoch
        standing = self[to].following.standing(TP, epoch)
        asked = ReplicaFetch(standing.offset, standing.latest_epoch, epoch, max_bytes, standing.log_start_offset)
        read = self.ask(asked, of=of, to=to)
        if read.diverging is not None:
            self.run(self[to].following.drop_diverged(TP, epoch, read.diverging))
        else:
            self[to].following.append_from_leader(TP, epoch, bytes_of(read), read.high_watermark, read.log_start_offset)
        return read

    def ask(self, asked, of=LEADER, to=FOLLOWER, broker_epoch=7):
        return self[of].read_as_follower(TP, ID, Follower(to, broker_epoch), asked, min_one_batch=True, is_news=True)

    def committed(self, number):
        return self[number].partition(TP).high_watermark.offset

    def end(self, number):
        return self[number].partition(TP).log_end_offset

    def close(self):
        for logs in self.logs.values():
            logs.close()

    def consume(self, offset=0, of=FOLLOWER, isolation=IsolationLevel.READ_UNCOMMITTED, **how):
        """What a consumer is given that may ask any replica."""
        return self[of].read(TP, ID, offset, LARGE, isolation, of_leader=False, min_one_batch=True, **how)


def bytes_of(read):
    piece = read.records
    return None if piece is None else memoryview(piece.file.read(piece.position, piece.size))


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def disk():
    with ThreadPoolExecutor(1) as thread:
        yield thread


@pytest.fixture
def pair(tmp_path, loop, disk):
    pair = Pair(tmp_path, disk, loop)
    yield pair
    pair.close()


def refusal(call, *arguments, **how):
    with pytest.raises(ApiError) as caught:
        call(*arguments, **how)
    return caught.value.code


def test_a_record_is_committed_when_the_follower_asks_for_what_is_behind_it(pair):
    pair.decide(decision(LEADER, 0))
    pair[LEADER].append(TP, batch(count=3), -1)
    assert pair.committed(LEADER) == 0
    pair.fetch()
    assert (pair.committed(LEADER), pair.end(FOLLOWER)) == (0, 3), "it was given, but not seen to be taken"
    pair.fetch()
    assert (pair.committed(LEADER), pair.committed(FOLLOWER)) == (3, 3)


def test_a_consumer_is_shown_what_is_committed_and_a_follower_all(pair):
    pair.decide(decision(LEADER, 0))
    pair[LEADER].append(TP, batch(count=3), 1)
    shown = pair[LEADER].read(TP, ID, 0, LARGE, IsolationLevel.READ_UNCOMMITTED, min_one_batch=True)
    assert shown.records is None
    assert pair.fetch().records is not None


def test_batches_without_records_are_for_followers_alone(pair):
    pair.decide(decision(LEADER, 0, (LEADER,)))
    erased = RecordBatch(memoryview(batch(count=3)))
    pair[LEADER].partition(TP).log.append_as_follower(memoryview(empty_header(erased)))
    pair[LEADER].append(TP, batch(b"left"), 1)
    asked = ReplicaFetch(0, -1, 0, LARGE)
    assert RecordBatch(bytes_of(pair.ask(asked))).record_count == 0
    for isolation in IsolationLevel:
        shown = RecordBatch(bytes_of(pair.consume(of=LEADER, isolation=isolation)))
        assert (shown.base_offset, shown.record_count) == (3, 1)


def test_the_copy_is_equal_byte_for_byte(pair, tmp_path):
    pair.decide(decision(LEADER, 3))
    for size in (1, 5, 2):
        pair[LEADER].append(TP, batch(count=size), -1)
    while pair.end(FOLLOWER) < 8:
        pair.fetch(max_bytes=100)
    logs = [(tmp_path / str(number) / "t-0" / "00000000000000000000.log").read_bytes() for number in BOTH]
    assert logs[0] == logs[1]
    assert pair[FOLLOWER].partition(TP).latest_epoch == 3


def test_what_the_next_leader_does_not_have_is_dropped(pair):
    pair.decide(decision(LEADER, 0))
    pair[LEADER].append(TP, batch(b"kept"), -1)
    pair.fetch()
    pair.fetch()
    pair[LEADER].append(TP, batch(b"lost", 2), 1)
    pair.decide(decision(FOLLOWER, 1))
    pair[FOLLOWER].append(TP, batch(b"new"), 1)
    told = pair.fetch(of=FOLLOWER, to=LEADER)
    assert told.diverging == OffsetAndEpoch(1, 0)
    assert pair.end(LEADER) == 1
    pair.fetch(of=FOLLOWER, to=LEADER)
    assert pair.end(LEADER) == 2
    assert pair[LEADER].partition(TP).epoch_at(1) == 1


def test_a_follower_says_what_it_drops_and_no_more_often_than_its_lines_may_come(pair, caplog, monkeypatch):
    monkeypatch.setattr(rate_limit, "_IN_AN_INTERVAL", 2)
    caplog.set_level(logging.INFO, "sparklog.replica.following")
    pair.decide(decision(LEADER, 0))
    for _ in range(3):
        pair[LEADER].append(TP, batch(), 1)
    pair.fetch()
    for end in (3, 2, 1, 0):
        pair.run(pair[FOLLOWER].following.drop_beyond(TP, 0, end))
    text = "t-0 drops what its leader does not have: it ended at {}, and ends at {} now"
    assert caplog.messages == [text.format(3, 2), text.format(2, 1)]
    pair.clock.advance(10)
    pair.fetch()
    pair.run(pair[FOLLOWER].following.drop_beyond(TP, 0, 2))
    assert caplog.messages[2:] == [f"{text.format(3, 2)} (and 1 more of this kind before)"]


def test_an_epoch_in_which_nothing_was_written_is_forgotten_where_the_leader_had_none(pair):
    pair.decide(decision(LEADER, 0))
    pair[LEADER].append(TP, batch(), -1)
    pair.fetch()
    pair.decide(decision(LEADER, 4), LEADER)
    pair.decide(decision(FOLLOWER, 5))
    assert pair[LEADER].partition(TP).latest_epoch == 4
    pair.fetch(of=FOLLOWER, to=LEADER)
    assert pair.fetch(of=FOLLOWER, to=LEADER).diverging is None
    assert pair[LEADER].partition(TP).latest_epoch == 0
    assert pair.end(LEADER) == 1


def test_a_follower_below_the_leaders_start_begins_again_there(pair):
    pair.decide(decision(LEADER, 0, (LEADER,)))
    pair[LEADER].append(TP, batch(count=9), 1)
    partition = pair[LEADER].partition(TP)
    partition.log.advance_start(9)
    epoch = 0
    assert refusal(pair.fetch) is ErrorCode.OFFSET_OUT_OF_RANGE
    pair.run(pair[FOLLOWER].following.begin_again_at(TP, epoch, 9))
    assert pair[FOLLOWER].following.standing(TP, epoch).offset == 9
    pair[LEADER].append(TP, batch(b"next"), 1)
    pair.fetch()
    assert (pair[FOLLOWER].partition(TP).log_start_offset, pair.end(FOLLOWER)) == (9, 10)


def test_the_start_of_the_leaders_log_is_taken_over(pair):
    pair.decide(decision(LEADER, 0))
    pair[LEADER].append(TP, batch(count=4), -1)
    pair.fetch()
    pair.fetch()
    assert pair[LEADER].delete_records(TP, 3) == 3
    pair.fetch()
    assert pair[FOLLOWER].partition(TP).log_start_offset == 3


def test_nobody_copies_from_a_leader_of_another_epoch(pair):
    pair.decide(decision(LEADER, 2))
    past, future = ReplicaFetch(0, -1, 1, LARGE), ReplicaFetch(0, -1, 3, LARGE)
    assert refusal(pair.ask, past) is ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(pair.ask, future) is ErrorCode.UNKNOWN_LEADER_EPOCH
    pair.decide(decision(FOLLOWER, 3))
    assert refusal(pair.ask, future) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(pair[LEADER].following.append_from_leader, TP, 2, None, 0, 0) is ErrorCode.FENCED_LEADER_EPOCH


def test_a_stranger_is_no_follower(pair):
    pair.decide(decision(LEADER, 0))
    pair[LEADER].append(TP, batch(), -1)
    assert refusal(pair.ask, ReplicaFetch(1, 0, -1, LARGE), to=9) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(pair.ask, ReplicaFetch(1, 0, 0, LARGE), to=9) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert pair.committed(LEADER) == 0


def test_a_fetch_of_a_former_life_of_the_broker_counts_for_nothing(pair):
    pair.decide(decision(LEADER, 0))
    pair.ask(ReplicaFetch(0, -1, 0, LARGE), broker_epoch=8)
    pair[LEADER].append(TP, batch(), -1)
    late = ReplicaFetch(1, 0, 0, LARGE)
    assert refusal(pair.ask, late, broker_epoch=7) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert pair.committed(LEADER) == 0


def test_an_offset_beyond_the_end_counts_for_nothing(pair):
    pair.decide(decision(LEADER, 0))
    pair[LEADER].append(TP, batch(), -1)
    assert refusal(pair.ask, ReplicaFetch(5, -1, 0, LARGE)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert pair.committed(LEADER) == 0


def test_what_does_not_follow_the_end_is_refused_and_nothing_is_written(pair):
    pair.decide(decision(LEADER, 0))
    for _ in range(2):
        pair[LEADER].append(TP, batch(), -1)
    gone = pair.ask(ReplicaFetch(0, -1, 0, LARGE))
    pair.fetch()
    again = refusal(pair[FOLLOWER].following.append_from_leader, TP, 0, bytes_of(gone), 0, 0)
    assert again is ErrorCode.CORRUPT_MESSAGE
    assert pair.end(FOLLOWER) == 2


def test_a_follower_that_has_caught_up_is_proposed_once(pair):
    pair.decide(decision(LEADER, 0, (LEADER,)))
    pair[LEADER].append(TP, batch(), 1)
    pair.fetch()
    assert pair.proposals == []
    pair.fetch()
    pair.fetch()
    (proposal,) = pair.proposals
    assert proposal.isr == BOTH
    assert proposal.broker_epochs == (-1, 7)
    pair[LEADER].settle(TP, proposal, BOTH, 1)
    assert pair[LEADER].partition(TP).isr == BOTH
    assert not pair[LEADER].proposes(TP, proposal)


def test_a_follower_that_lags_is_left_out_and_then_nobody_waits_for_it(pair):
    pair.decide(decision(LEADER, 0))
    pair.fetch()
    pair[LEADER].append(TP, batch(), -1)
    list(pair[LEADER].leave_out_lagging())
    assert pair.proposals == []
    pair.clock.advance(11)
    list(pair[LEADER].leave_out_lagging())
    (proposal,) = pair.proposals
    assert pair.committed(LEADER) == 0, "until the controller has written it"
    pair[LEADER].settle(TP, proposal, (LEADER,), 1)
    assert pair.committed(LEADER) == 1


@pytest.mark.parametrize("why", ["it is gone", "it lags by now"])
def test_one_that_was_about_to_join_and_will_not_is_waited_for_no_longer(pair, why):
    """Without another append too: a producer may wait for the last one."""
    pair.decide(decision(LEADER, 0, (LEADER,)))
    pair.fetch()
    pair[LEADER].give_up(TP, pair.proposals.pop())
    pair[LEADER].append(TP, batch(), -1)
    list(pair[LEADER].leave_out_lagging())
    assert pair.committed(LEADER) == 0, "it had all a moment ago, and may have it again"
    if why == "it is gone":
        pair[LEADER].lives = lambda broker_id: broker_id != FOLLOWER
    else:
        pair.clock.advance(11)
    list(pair[LEADER].leave_out_lagging())
    assert pair.committed(LEADER) == 1


def test_the_low_watermark_is_where_the_last_replica_that_lives_begins(pair):
    pair.decide(decision(LEADER, 0))
    for _ in range(3):
        pair[LEADER].append(TP, batch(), -1)
    assert pair[LEADER].low_watermark(TP) == -1, "the follower has not said where it begins"
    pair.fetch()
    pair.fetch()  # the leader knows that it has all
    assert pair[LEADER].delete_records(TP, 2) == 2
    waiting = pair[LEADER].deletion_purgatory.wait([TP], lambda tp: pair[LEADER].low_watermark(tp) == 2, 60_000)
    pair.fetch()  # it hears of it
    assert (pair[LEADER].low_watermark(TP), pair[FOLLOWER].partition(TP).log_start_offset) == (0, 2)
    assert not waiting.done()
    pair.fetch()
    assert pair[LEADER].low_watermark(TP) == 2
    assert waiting.done()


def test_the_low_watermark_does_not_wait_for_a_broker_that_is_gone(pair):
    pair.decide(decision(LEADER, 0))
    pair[LEADER].append(TP, batch(), -1)
    pair.fetch()
    pair.fetch()
    assert pair[LEADER].delete_records(TP, 1) == 1
    waiting = pair[LEADER].deletion_purgatory.wait([TP], lambda tp: pair[LEADER].low_watermark(tp) == 1, 60_000)
    pair[LEADER].lives = lambda broker_id: broker_id != FOLLOWER
    list(pair[LEADER].leave_out_lagging())
    assert waiting.done()


def test_who_waits_for_the_low_watermark_hears_of_another_leader(pair):
    pair.decide(decision(LEADER, 0))
    waiting = pair[LEADER].deletion_purgatory.wait([TP], lambda tp: not pair[LEADER].leads(tp), 60_000)
    pair.decide(decision(FOLLOWER, 1))
    assert waiting.done()
    with pytest.raises(ApiError) as caught:
        pair[LEADER].low_watermark(TP)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_end_is_not_told_until_it_is_known_under_a_new_leader(pair):
    pair.decide(decision(LEADER, 0))
    pair[LEADER].append(TP, batch(), -1)
    pair.fetch()
    pair.fetch()
    pair[LEADER].append(TP, batch(), -1)
    pair.fetch()  # the follower has both, and has heard that one is committed
    pair.decide(decision(FOLLOWER, 1))
    assert not pair[FOLLOWER].partition(TP).knows_end
    pair.fetch(of=FOLLOWER, to=LEADER)
    pair.fetch(of=FOLLOWER, to=LEADER)
    assert pair[FOLLOWER].partition(TP).knows_end
    assert pair.committed(FOLLOWER) == 2


def test_what_is_to_be_flushed_is_flushed_before_the_leader_is_told(tmp_path, loop):
    with ThreadPoolExecutor(1) as disk:
        pair = Pair(tmp_path, disk, loop, **{"flush.messages": "1"})
        pair.decide(decision(LEADER, 0))

        async def copy():
            pair[LEADER].append(TP, batch(), -1)
            pair.fetch()
            flush = pair[FOLLOWER].following.awaited_flush(TP)
            assert flush is not None
            assert pair.logs[FOLLOWER].logs[TP].recovery_point == 0
            await flush
            assert pair.logs[FOLLOWER].logs[TP].recovery_point == 1
            assert pair[FOLLOWER].following.awaited_flush(TP) is None
            await pair[LEADER].flushed(TP, 1)
            assert pair.committed(LEADER) == 0, "the leader has it on its disk, but nobody else"
            pair.fetch()
            assert pair.committed(LEADER) == 1

        loop.run_until_complete(copy())
        pair.close()


def test_a_follower_takes_nothing_back_that_it_has_shown(pair):
    """A new leader may not have heard how far the last one was."""
    pair.decide(decision(LEADER, 0))
    pair[LEADER].append(TP, batch(count=4), -1)
    pair.fetch()
    pair.fetch()
    assert pair.committed(FOLLOWER) == 4
    pair.decide(decision(LEADER, 1, version=1))
    pair[FOLLOWER].following.append_from_leader(TP, 1, None, 2, 0)
    assert pair.committed(FOLLOWER) == 4


def test_what_is_committed_is_known_after_a_restart(tmp_path, loop):
    with ThreadPoolExecutor(1) as disk:
        pair = Pair(tmp_path, disk, loop)
        pair.decide(decision(LEADER, 0))
        pair[LEADER].append(TP, batch(count=4), -1)
        pair.fetch()
        pair.fetch()
        pair.close()
        logs = LogManager([tmp_path / str(FOLLOWER)], TopicConfig(), pair.clock, disk)
        logs.load({"t": TopicConfig()})
        assert logs.logs[TP].high_watermark == 4
        logs.close()


@pytest.mark.parametrize(("epoch", "committed"), [(1, 3), (2, 0)], ids=["the next", "one was not heard of"])
def test_what_followers_had_counts_under_the_next_epoch_and_under_no_later_one(pair, epoch, committed):
    """In an epoch between, another may have led, and a follower may have dropped what it had from here."""
    third, replicas = 3, (LEADER, FOLLOWER, 3)
    state = decision(LEADER, 0, replicas)
    pair[LEADER].apply(TP, state, pair.config, ID, replicas=replicas)
    pair[LEADER].append(TP, batch(count=3), -1)
    pair.ask(ReplicaFetch(3, 0, 0, LARGE))
    state = decision(LEADER, epoch, replicas, version=epoch)
    pair[LEADER].apply(TP, state, pair.config, ID, replicas=replicas)
    pair.ask(ReplicaFetch(3, 0, epoch, LARGE), to=third)
    assert pair.committed(LEADER) == committed
    assert pair[LEADER].partition(TP).still_leads(0) is (epoch == 1)
    pair.ask(ReplicaFetch(3, 0, epoch, LARGE))
    assert pair.committed(LEADER) == 3


@pytest.mark.parametrize("error", [CorruptRecord("damaged"), LogClosed("closed"), OSError(5, "no")])
def test_a_log_that_cannot_be_cut_is_an_error_of_its_partition(pair, monkeypatch, error):
    """Any other would end the connection by which others are copied, each time anew."""
    pair.decide(decision(LEADER, 0))

    def refuse(*_):
        raise error

    monkeypatch.setattr(pair.logs[FOLLOWER], "truncate_to", refuse)
    monkeypatch.setattr(pair.logs[FOLLOWER], "restart_at", refuse)
    following = pair[FOLLOWER].following
    for cut in (following.drop_beyond(TP, 0, 0), following.begin_again_at(TP, 0, 0)):
        assert refusal(pair.run, cut) is ErrorCode.KAFKA_STORAGE_ERROR
    diverging = OffsetAndEpoch(0, 0)
    assert refusal(pair.run, following.drop_diverged(TP, 0, diverging)) is ErrorCode.KAFKA_STORAGE_ERROR


def test_waiting_producers_hear_that_another_leads(pair, loop):
    pair.decide(decision(LEADER, 0))

    async def lose():
        waiting = asyncio.ensure_future(pair[LEADER].append_replicated(TP, bytes(batch()), 60_000))
        await asyncio.sleep(0)
        pair.decide(decision(FOLLOWER, 1))
        with pytest.raises(ApiError) as caught:
            await waiting
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    loop.run_until_complete(lose())


def test_the_time_of_a_coordinators_batch_begins_when_it_is_appended(pair, loop):
    """Of several that are appended at once the last has no more time than the first."""
    pair.decide(decision(LEADER, 0))

    async def wait_for_each():
        waiting = [pair[LEADER].append_replicated(TP, bytes(batch()), 60_000) for _ in range(3)]
        jump(loop, 61.0)
        async with asyncio.timeout(30):
            for each in waiting:
                with pytest.raises(ApiError) as caught:
                    await each
                assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT

    loop.run_until_complete(wait_for_each())


def test_waiting_producers_hear_that_the_controller_has_left_out_who_they_wait_for(pair, loop):
    """Under the same leader epoch: as the leader hears it whose request for that was answered by nobody."""
    pair.decide(decision(LEADER, 0, version=1))

    async def shrink():
        waiting = asyncio.ensure_future(pair[LEADER].append_replicated(TP, bytes(batch()), 60_000))
        await asyncio.sleep(0)
        assert not waiting.done()
        pair.decide(decision(LEADER, 0, (LEADER,), version=2), LEADER)
        async with asyncio.timeout(30):
            await waiting
        assert pair.committed(LEADER) == 1

    loop.run_until_complete(shrink())


@pytest.mark.parametrize("delete", [True, False])
def test_waiting_producers_hear_that_the_replica_is_served_no_longer(pair, loop, delete):
    pair.decide(decision(LEADER, 0))

    async def stop():
        waiting = asyncio.ensure_future(pair[LEADER].append_replicated(TP, bytes(batch()), 60_000))
        await asyncio.sleep(0)
        assert pair[LEADER].stop(TP, delete=delete) is ErrorCode.NONE
        async with asyncio.timeout(30):
            with pytest.raises(ApiError) as caught:
                await waiting
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    loop.run_until_complete(stop())


def test_a_coordinator_waits_until_enough_have_its_batch_though_readers_see_it_before(tmp_path, disk, loop):
    """What one replica alone has is lost with it, and with it the end of a transaction."""
    visible = {"sparklog.min.isr.visibility": "immediate"}
    pair = Pair(tmp_path, disk, loop, **{"min.insync.replicas": "2", **visible})
    pair.decide(decision(LEADER, 0))

    async def leave_and_return():
        waiting = asyncio.ensure_future(pair[LEADER].append_replicated(TP, bytes(batch()), 60_000))
        await asyncio.sleep(0)
        pair.clock.advance(11)
        list(pair[LEADER].leave_out_lagging())
        pair[LEADER].settle(TP, pair.proposals.pop(), (LEADER,), 1)
        assert pair.committed(LEADER) == 1, "readers see it"
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        pair.ask(ReplicaFetch(1, 0, 0, LARGE))
        pair[LEADER].settle(TP, pair.proposals.pop(), BOTH, 2)
        async with asyncio.timeout(30):
            await waiting

    loop.run_until_complete(leave_and_return())
    pair.close()


class SlowDisk:
    """Holds up the disk thread until it is let go."""

    def __init__(self, disk):
        self._gate, self._reached = threading.Event(), threading.Event()
        disk.submit(self._hold)

    def _hold(self):
        self._reached.set()
        assert self._gate.wait(60)

    def let_go(self):
        self._gate.set()


@pytest.fixture
def diverged(pair):
    """A follower that has three records, of which its leader has the first alone."""
    pair.decide(decision(LEADER, 0))
    for _ in range(3):
        pair[LEADER].append(TP, batch(), 1)
    pair.fetch()
    pair.decide(decision(LEADER, 1))
    return pair


async def turns(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_copy_is_not_read_and_not_deleted_from_while_it_is_cut(diverged, disk):
    follower = diverged[FOLLOWER]
    read = partial(follower._read, follower.partition(TP), 0, LARGE, None, min_one_batch=True)

    async def cut():
        slow = SlowDisk(disk)
        work = asyncio.ensure_future(follower.following.drop_beyond(TP, 1, 1))
        await turns()
        assert refusal(read) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [*follower.apply_retention()] == []
        slow.let_go()
        await work

    diverged.run(cut())
    assert diverged.end(FOLLOWER) == 1
    assert read().records.size > 0


def test_the_loop_goes_on_while_the_disk_cuts(diverged, disk):
    async def cut():
        slow = SlowDisk(disk)
        work = asyncio.ensure_future(diverged[FOLLOWER].following.drop_beyond(TP, 1, 1))
        await turns()
        assert not work.done()
        slow.let_go()
        await work

    diverged.run(cut())


def test_a_decision_of_the_controller_waits_for_the_cut(diverged, disk):
    """LeaderAndIsr is applied under ``changing``."""
    follower = diverged[FOLLOWER]

    async def decide():
        async with follower.changing:
            ends.append(diverged.end(FOLLOWER))

    async def cut():
        slow = SlowDisk(disk)
        work = asyncio.ensure_future(follower.following.drop_beyond(TP, 1, 1))
        await turns()
        decided = asyncio.ensure_future(decide())
        await turns()
        assert not ends
        slow.let_go()
        await asyncio.gather(work, decided)

    ends = []
    diverged.run(cut())
    assert ends == [1]


def test_a_cut_whose_turn_comes_after_another_decision_is_not_made(diverged):
    """What the fetcher was told is of a leader of the past."""
    follower = diverged[FOLLOWER]

    async def cut():
        async with follower.changing:
            work = asyncio.ensure_future(follower.following.drop_beyond(TP, 1, 1))
            await turns()
            diverged.decide(decision(LEADER, 2), FOLLOWER)
        await work

    assert refusal(diverged.run, cut()) is ErrorCode.FENCED_LEADER_EPOCH
    assert diverged.end(FOLLOWER) == 3


def test_a_cut_whose_turn_comes_when_the_topic_was_made_anew_is_not_made(diverged):
    """Under the same leader epoch."""
    follower = diverged[FOLLOWER]

    async def cut():
        async with follower.changing:
            work = asyncio.ensure_future(follower.following.begin_again_at(TP, 1, 9))
            await turns()
            assert follower.stop(TP, delete=True) is ErrorCode.NONE
            follower.apply(TP, decision(LEADER, 1), diverged.config, UUID(int=2), replicas=BOTH)
        await work

    assert refusal(diverged.run, cut()) is ErrorCode.FENCED_LEADER_EPOCH
    assert diverged.end(FOLLOWER) == 0


def test_a_cut_that_was_begun_is_finished_though_its_fetcher_is_closed(diverged, disk):
    follower = diverged[FOLLOWER]

    async def cut():
        slow = SlowDisk(disk)
        work = asyncio.ensure_future(follower.following.drop_beyond(TP, 1, 1))
        await turns()
        work.cancel()
        await asyncio.wait((work,))
        assert follower.changing.locked()
        slow.let_go()
        async with follower.changing:
            assert diverged.end(FOLLOWER) == 1

    diverged.run(cut())
    assert diverged[FOLLOWER].following.standing(TP, 1).offset == 1


def test_a_copy_whose_disk_fails_while_it_is_cut_is_served_no_more(diverged, disk):
    follower, logs = diverged[FOLLOWER], diverged.logs[FOLLOWER]

    async def cut():
        slow = SlowDisk(disk)
        work = asyncio.ensure_future(follower.following.drop_beyond(TP, 1, 1))
        await turns()
        logs.fail(logs.logs[TP].directory.parent, "it is broken")
        assert follower.forget_unusable() == [TP]
        slow.let_go()
        await work

    assert refusal(diverged.run, cut()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert refusal(follower.partition, TP) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_follower_shows_consumers_what_it_knows_to_be_committed(pair):
    pair.decide(decision(LEADER, 4))
    pair[LEADER].append(TP, batch(count=3), -1)
    pair.fetch()
    assert pair.consume().records is None, "it has them, and does not know yet that the leader shows them"
    assert pair.consume(2).records is None, "an offset between what is shown and the end is waited for"
    pair.fetch()
    shown = pair.consume()
    assert bytes_of(shown) == bytes_of(pair.consume(of=LEADER))
    assert (shown.high_watermark, shown.last_stable_offset) == (3, 3)
    assert refusal(pair.consume, 4) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_serves_under_the_current_epoch_and_no_reader_that_wants_the_leader(pair):
    pair.decide(decision(LEADER, 4))
    pair.consume(leader_epoch=4)
    assert refusal(pair.consume, leader_epoch=3) is ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(pair.consume, leader_epoch=5) is ErrorCode.UNKNOWN_LEADER_EPOCH
    read = pair[FOLLOWER].read
    code = refusal(read, TP, ID, 0, LARGE, IsolationLevel.READ_UNCOMMITTED, min_one_batch=True)
    assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_consumer_that_waits_at_a_follower_is_woken_when_its_offset_is_shown(pair, loop):
    """It comes from a replica that showed more: it is not woken, to be given nothing, while this one catches up."""
    pair.decide(decision(LEADER, 0))
    for _ in range(2):
        pair[LEADER].append(TP, batch(count=3), -1)
        pair.fetch()
    follower, bound = pair[FOLLOWER], pair.consume(5).bound
    since = follower.start_of_readable(TP, 5, bound)
    uncommitted = IsolationLevel.READ_UNCOMMITTED

    def is_shown(_):
        return follower.available(TP, since, uncommitted, of_leader=False) > 0

    async def wait():
        waiting = follower.fetch_purgatory.wait([TP], is_shown, 60_000)
        follower.following.append_from_leader(TP, 0, None, 3, 0)
        await asyncio.sleep(0)
        assert not waiting.done()
        follower.following.append_from_leader(TP, 0, None, 6, 0)
        assert await asyncio.wait_for(waiting, 30)

    loop.run_until_complete(wait())
    assert pair.consume(5).records is not None


def test_a_consumer_that_waits_for_what_a_follower_dropped_is_told(pair, loop):
    pair.decide(decision(LEADER, 0))
    pair[LEADER].append(TP, batch(count=3), -1)
    pair.fetch()
    follower = pair[FOLLOWER]
    since = follower.start_of_readable(TP, 2, pair.consume(2).bound)

    def is_to_be_answered(_):
        return follower.available(TP, since, IsolationLevel.READ_UNCOMMITTED, of_leader=False) > 0

    async def wait():
        waiting = follower.fetch_purgatory.wait([TP], is_to_be_answered, 60_000)
        assert not waiting.done()
        await follower.following.drop_beyond(TP, 0, 1)
        assert await asyncio.wait_for(waiting, 30)

    loop.run_until_complete(wait())
    assert refusal(pair.consume, 2) is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("racks", "sent"),
    [
        ({LEADER: "a", FOLLOWER: "b"}, FOLLOWER),
        ({LEADER: "b", FOLLOWER: "b"}, None),
        ({LEADER: "a", FOLLOWER: "a"}, None),
        ({LEADER: "a"}, None),
    ],
    ids=["the follower's rack", "the leader's rack too", "nobody's rack", "a follower that is away"],
)
def test_a_leader_sends_a_consumer_to_the_follower_in_its_rack(pair, racks, sent):
    pair.decide(decision(LEADER, 0))
    pair[LEADER].append(TP, batch(count=3), -1)
    pair.fetch()
    pair.fetch()

    def sent_away(number, offset=1):
        read = pair[number].sent_away(TP, ID, offset, "b", racks.get, leader_epoch=0)
        return None if read is None else (read.preferred, read.records, read.high_watermark)

    assert sent_away(LEADER) == (None if sent is None else (sent, None, 3))
    assert sent_away(FOLLOWER) is None, "it serves whoever comes"
    assert sent_away(LEADER, 4) is None, "the offset is nobody's"
