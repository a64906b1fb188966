"""Where a consumer begins and goes on: what its group committed, what the policy says, what a new leader still has."""

import asyncio
import logging
from types import SimpleNamespace
from uuid import UUID

import pytest

from sparklog.client.cluster.obstacles import PATIENCE, Obstacles
from sparklog.client.cluster.retry import Backoff
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.group.committed import OffsetAndMetadata
from sparklog.client.consumer.offset_reset import EARLIEST_RESET, LATEST_RESET
from sparklog.client.consumer.positions import Positions
from sparklog.client.consumer.subscription import Position, SubscriptionState
from sparklog.cluster.info import ClusterInfo, PartitionInfo, TopicInfo
from sparklog.cluster.leaders import Leaders
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.structs import Endpoint, IsolationLevel, TopicPartition
from sparklog.testing.clock import ManualClock

A, B, C = (TopicPartition("t", number) for number in range(3))
EPOCH = 6
_E = ErrorCode


class Rig:
    """A consumer's positions. ``log`` is what each leader says: offsets by timestamp, and where epochs ended."""

    def __init__(self, leaders=(1, 1, 2), policy="earliest", group=True, **settings):
        self.clock = ManualClock()
        self.leaders = Leaders()
        self.obstacles = Obstacles(self.clock)
        self.committed = {}
        self.asked = []
        self.offsets = {-2: 10, -1: 90}
        self.ends = {}
        self.errors = []
        self.refreshed = []
        self.config = ConsumerConfig.from_properties(
            {
                "bootstrap.servers": "one:1",
                "group.id": "g",
                "auto.offset.reset": policy,
                "retry.backoff.ms": "0",
                "retry.backoff.max.ms": "0",
                **settings,
            }
        )
        self.describe(leaders)
        self.subscription = SubscriptionState()
        self.news = asyncio.Event()
        committed = self._committed if group else None
        self.positions = Positions(self, self.config, self.subscription, committed, self.news)

    def describe(self, leaders, epoch=EPOCH):
        partitions = tuple(PartitionInfo(number, each, epoch, (), ()) for number, each in enumerate(leaders))
        brokers = {1: Endpoint("one", 1), 2: Endpoint("two", 2)}
        self.info = ClusterInfo("c", 1, brokers, {"t": TopicInfo("t", UUID(int=7), False, partitions)}, {})
        self.leaders.apply(self.info)

    async def _committed(self, partitions):
        self.asked.append(("committed", tuple(partitions)))
        self._fail()
        return {tp: self.committed.get(tp) for tp in partitions}

    def _fail(self):
        if self.errors:
            raise self.errors.pop(0)

    # What a Session does.

    def backoff(self, *, patience):
        return Backoff(self.config, self.clock, self.config.api_timeout_ms, patience)

    async def refresh(self, topics, *, create=False):
        self.refreshed.append(tuple(topics))
        self.leaders.apply(self.info)
        return self.info

    async def request(self, broker, api, build):
        request = build(5 if api is ApiKey.LIST_OFFSETS else 4)
        if api is ApiKey.LIST_OFFSETS:
            (topic,) = request.topics
            self.asked.append((broker, {each.partition_index: each.timestamp for each in topic.partitions}))
            self.isolation, self.timeout_ms = request.isolation_level, request.timeout_ms
            self._fail()
            found = [self._listed(each) for each in topic.partitions]
        else:
            assert api is ApiKey.OFFSET_FOR_LEADER_EPOCH
            (topic,) = request.topics
            asked = {each.partition: (each.current_leader_epoch, each.leader_epoch) for each in topic.partitions}
            self.asked.append((broker, asked))
            self._fail()
            found = [self._ended(each) for each in topic.partitions]
        return SimpleNamespace(topics=[SimpleNamespace(name="t", topic="t", partitions=found)])

    def _listed(self, asked):
        at = self.offsets.get(asked.timestamp, -1)
        code = at if isinstance(at, _E) else _E.NONE
        offset = -1 if code else at
        return SimpleNamespace(
            partition_index=asked.partition_index, error_code=code, offset=offset, timestamp=5, leader_epoch=3
        )

    def _ended(self, asked):
        code, epoch, end = self.ends.get(asked.partition, (_E.NONE, asked.leader_epoch, 1 << 40))
        return SimpleNamespace(partition=asked.partition, error_code=code, leader_epoch=epoch, end_offset=end)

    # What a test does.

    async def settled(self):
        self.positions.settle()
        for _ in range(60):
            await asyncio.sleep(0)
        self.positions.raise_failure()
        return {tp: at.offset for tp, at in self.subscription.positions().items()}

    def stands(self, tp, offset, epoch):
        """A reader that comes from a record of this leader epoch."""
        self.subscription.seek(tp, Position(offset, epoch))


def run(test, **settings):
    async def limited():
        rig = Rig(**settings)
        async with asyncio.timeout(60):
            await test(rig)
            await rig.positions.close()

    asyncio.run(limited())


def test_a_group_goes_on_where_it_left_off_and_elsewhere_as_the_policy_says():
    async def test(rig):
        rig.subscription.subscribe(["t"])
        rig.subscription.assigned_by_group([A, B, C])
        rig.committed = {A: OffsetAndMetadata(33, 4, "")}
        assert await rig.settled() == {A: 33, B: 10, C: 10}
        assert rig.subscription.state(A).position == Position(33, 4)
        assert rig.asked[0] == ("committed", (A, B, C))
        assert (1, {1: -2}) in rig.asked
        assert (2, {2: -2}) in rig.asked
        assert rig.news.is_set()
        assert (rig.isolation, rig.timeout_ms) == (1, 1234)

    run(test, **{"isolation.level": "read_committed", "request.timeout.ms": "1234"})


def test_without_a_group_the_policy_decides_at_once():
    async def test(rig):
        rig.subscription.assign([A])
        assert await rig.settled() == {A: 90}
        assert rig.asked == [(1, {0: -1})]
        assert await rig.settled() == {A: 90}
        assert len(rig.asked) == 1, "nothing is missing"

    run(test, policy="latest", group=False)


def test_a_time_that_no_record_has_reached_is_the_end():
    async def test(rig):
        rig.subscription.assign([A])
        assert await rig.settled() == {A: 90}
        assert rig.asked == [(1, {0: rig.clock.now_ms() - 60_000}), (1, {0: -1})]

    run(test, policy="by_duration:PT1M", group=False)


def test_without_a_policy_a_partition_without_a_commit_is_refused():
    async def test(rig):
        rig.subscription.assign([A])
        with pytest.raises(ApiError, match=r"partition t-0 has no committed offset in group 'g'.*seek to where") as no:
            await rig.settled()
        assert no.value.code is _E.OFFSET_OUT_OF_RANGE
        rig.positions.raise_failure()

    run(test, policy="none")


def test_a_place_that_was_chosen_meanwhile_stays():
    async def test(rig):
        rig.subscription.assign([A, B])
        plain = rig._committed

        async def meanwhile(partitions):
            found = await plain(partitions)
            rig.subscription.seek(A, Position(5))
            return found

        rig.positions._committed = meanwhile
        rig.committed = {A: OffsetAndMetadata(33, 4, "")}
        assert await rig.settled() == {A: 5, B: 10}

    run(test)


def test_what_passes_is_tried_again_with_new_leaders_and_what_does_not_is_raised(caplog):
    async def test(rig):
        rig.subscription.assign([A])
        rig.errors = [ApiError(_E.COORDINATOR_NOT_AVAILABLE, "a moment"), ApiError(_E.NOT_LEADER_OR_FOLLOWER, "moved")]
        assert await rig.settled() == {A: 10}
        assert rig.refreshed
        assert rig.obstacles._obstacles == {}
        rig.subscription.request_reset(A, LATEST_RESET)
        rig.errors = [ApiError(_E.TOPIC_AUTHORIZATION_FAILED, "no")]
        with pytest.raises(ApiError, match="no"):
            await rig.settled()
        assert await rig.settled() == {A: 90}

    run(test)


def test_an_error_of_one_partition_keeps_what_was_found_of_others():
    async def test(rig):
        rig.subscription.assign([A, C])
        plain = rig.request

        async def second_refuses(broker, api, build):
            if broker == 2:
                raise ApiError(_E.TOPIC_AUTHORIZATION_FAILED, "no")
            return await plain(broker, api, build)

        rig.request = second_refuses
        with pytest.raises(ApiError):
            await rig.settled()
        assert rig.subscription.positions() == {A: Position(10)}

    run(test, group=False)


def test_an_answer_that_is_an_error_names_the_partition_and_makes_its_leader_doubtful():
    async def test(rig):
        rig.subscription.assign([A])
        rig.offsets[-2] = _E.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(ApiError, match="offsets of partition t-0: TOPIC_AUTHORIZATION_FAILED"):
            await rig.settled()
        assert rig.leaders.leader(A) is None

    run(test, group=False)


def test_offsets_are_found_as_far_as_there_are_leaders():
    async def test(rig):
        found = {}
        with pytest.raises(ApiError, match="no broker leads partition t-1") as caught:
            await rig.positions.list_offsets({A: -1, B: -1}, found, IsolationLevel.READ_UNCOMMITTED)
        assert caught.value.code is _E.LEADER_NOT_AVAILABLE
        assert ({tp: at.offset for tp, at in found.items()}, rig.isolation) == ({A: 90}, 0)
        assert rig.refreshed == [("t",)]
        with pytest.raises(ApiError, match="topic 't' has no partition 9") as caught:
            await rig.positions.list_offsets({TopicPartition("t", 9): -1}, found)
        assert caught.value.code is _E.UNKNOWN_TOPIC_OR_PARTITION

    run(test, leaders=(1, -1), **{"isolation.level": "read_committed"})


def test_a_topic_that_may_not_be_read_is_refused():
    async def test(rig):
        rig.subscription.assign([A])
        rig.info = rig.info._replace(topics={}, errors={"t": _E.TOPIC_AUTHORIZATION_FAILED})
        rig.leaders.apply(rig.info)
        with pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED"):
            await rig.settled()

    run(test, group=False)


# Leaders that do not answer


def first_leader_is_away(rig):
    plain = rig.request

    async def request(broker, api, build):
        if broker == 1:
            raise ConnectionFailed("away")
        return await plain(broker, api, build)

    rig.request = request


def first_leader_is_silent(rig):
    plain = rig.request

    async def request(broker, api, build):
        if broker == 1:
            await asyncio.Event().wait()
        return await plain(broker, api, build)

    rig.request = request


@pytest.mark.parametrize("suffer", [first_leader_is_away, first_leader_is_silent])
def test_a_leader_that_does_not_answer_keeps_no_other_from_being_asked_for_offsets(suffer):
    async def test(rig):
        rig.subscription.assign([A, C])
        suffer(rig)
        assert await rig.settled() == {C: 10}

    run(test, group=False)


@pytest.mark.parametrize("suffer", [first_leader_is_away, first_leader_is_silent])
def test_a_leader_that_does_not_answer_keeps_no_other_from_being_asked_for_the_end(suffer):
    async def test(rig):
        rig.subscription.assign([A, C])
        suffer(rig)
        assert await rig.settled() == {C: 90}

    run(test, policy="by_duration:PT1M", group=False)


@pytest.mark.parametrize("suffer", [first_leader_is_away, first_leader_is_silent])
def test_a_leader_that_does_not_answer_keeps_no_position_at_others_from_being_validated(suffer):
    async def test(rig):
        rig.subscription.assign([A, C])
        rig.stands(A, 50, 4)
        rig.stands(C, 7, 5)
        suffer(rig)
        await rig.settled()
        assert rig.subscription.fetchable() == [C]

    run(test)


def test_a_coordinator_that_is_silent_keeps_no_partition_waiting_that_does_not_need_it():
    async def test(rig):
        rig.subscription.assign([A, B, C])
        rig.subscription.request_reset(B, EARLIEST_RESET)
        rig.stands(C, 7, 5)

        async def never(partitions):
            await asyncio.Event().wait()

        rig.positions._committed = never
        await rig.settled()
        assert rig.subscription.fetchable() == [B, C]
        assert rig.subscription.positions() == {B: Position(10), C: Position(7, 5)}

    run(test)


def test_a_leader_that_is_silent_keeps_no_committed_offset_from_being_found():
    async def test(rig):
        rig.subscription.assign([A, B])
        rig.subscription.request_reset(A, EARLIEST_RESET)
        rig.committed = {B: OffsetAndMetadata(33)}
        first_leader_is_silent(rig)
        assert await rig.settled() == {B: 33}

    run(test)


def test_a_partition_that_is_refused_keeps_no_other_in_the_answer_from_its_place():
    async def test(rig):
        rig.subscription.assign([A, B])
        plain = rig._listed

        def refuse_first(asked):
            answer = plain(asked)
            if asked.partition_index == 0:
                answer.error_code = _E.KAFKA_STORAGE_ERROR
            return answer

        rig._listed = refuse_first
        assert await rig.settled() == {B: 10}
        rig.subscription.seek(A, Position(50, 4))
        rig.subscription.seek(B, Position(60, 4))
        rig.ends = {0: (_E.KAFKA_STORAGE_ERROR, -1, -1)}
        rig.describe((1, 1, 2), EPOCH + 1)
        await rig.settled()
        assert rig.subscription.fetchable() == [B]

    run(test, group=False)


def test_without_a_policy_what_the_group_has_committed_is_found_all_the_same():
    async def test(rig):
        rig.subscription.assign([A, B])
        rig.committed = {B: OffsetAndMetadata(33)}
        with pytest.raises(ApiError, match="partition t-0 has no committed offset"):
            await rig.settled()
        assert rig.subscription.positions() == {B: Position(33)}

    run(test, policy="none")


def test_what_does_not_pass_is_raised_although_another_leader_is_away():
    async def test(rig):
        rig.subscription.assign([A, C])
        rig.offsets[-2] = _E.TOPIC_AUTHORIZATION_FAILED
        first_leader_is_away(rig)
        with pytest.raises(ApiError, match="offsets of partition t-2: TOPIC_AUTHORIZATION_FAILED"):
            await rig.settled()

    run(test, group=False)


# A new leader


def test_a_position_that_the_new_leader_has_stays_and_is_asked_about_once():
    async def test(rig):
        rig.subscription.assign([A, C])
        rig.stands(A, 50, 4)
        rig.stands(C, 7, 5)
        rig.ends = {0: (_E.NONE, 4, 50)}
        assert await rig.settled() == {A: 50, C: 7}
        assert rig.asked == [(1, {0: (EPOCH, 4)}), (2, {2: (EPOCH, 5)})]
        assert await rig.settled() == {A: 50, C: 7}
        assert len(rig.asked) == 2
        rig.describe((1, 1, 2), EPOCH + 1)
        await rig.settled()
        assert len(rig.asked) == 4

    run(test)


def test_a_position_beyond_where_its_epoch_ended_goes_back_there(caplog):
    async def test(rig):
        rig.subscription.assign([A])
        rig.stands(A, 50, 4)
        rig.ends = {0: (_E.NONE, 3, 49)}
        assert await rig.settled() == {A: 49}
        assert rig.subscription.state(A).position == Position(49, 3)
        assert "partition t-0 was cut off below the position 50, at 49; it goes on there" in caplog.text

    run(test)


def test_a_position_that_moves_while_it_is_asked_about_is_asked_about_again():
    """Records that were taken before are given one by one. Where an earlier epoch ended says nothing of later ones."""

    async def test(rig):
        rig.subscription.assign([A])
        rig.stands(A, 40, 4)
        ends, ended = {4: 45, 5: 60}, rig._ended

        def give_meanwhile(asked):
            if asked.leader_epoch == 4:
                rig.subscription.consumed(A, Position(50, 5))
            rig.ends = {0: (_E.NONE, asked.leader_epoch, ends[asked.leader_epoch])}
            return ended(asked)

        rig._ended = give_meanwhile
        assert await rig.settled() == {A: 50}
        assert rig.asked == [(1, {0: (EPOCH, 4)}), (1, {0: (EPOCH, 5)})]
        assert not rig.subscription.to_validate()

    run(test)


@pytest.mark.parametrize("end", [(-1, -1), (3, -1), (-1, 20)])
def test_a_position_of_which_the_new_leader_knows_nothing_is_reset(caplog, end):
    async def test(rig):
        rig.subscription.assign([A])
        rig.stands(A, 50, 4)
        rig.ends = {0: (_E.NONE, *end)}
        assert await rig.settled() == {A: 90}
        assert f"at {end[1]}; it goes on at the latest offset" in caplog.text

    run(test, policy="latest")


def test_without_a_policy_a_position_that_was_cut_off_is_refused():
    async def test(rig):
        rig.subscription.assign([A])
        rig.stands(A, 50, 4)
        rig.ends = {0: (_E.NONE, 3, 49)}
        with pytest.raises(ApiError, match="cut off below the position 50, at 49; seek to where it should go on"):
            await rig.settled()

    run(test, policy="none")


def test_an_error_about_epochs_names_the_partition():
    async def test(rig):
        rig.subscription.assign([A])
        rig.stands(A, 50, 4)
        rig.ends = {0: (_E.TOPIC_AUTHORIZATION_FAILED, -1, -1)}
        with pytest.raises(ApiError, match="the leader epochs of partition t-0: TOPIC_AUTHORIZATION_FAILED"):
            await rig.settled()

    run(test)


# Out of range


def test_a_position_that_is_gone_is_reset_as_the_policy_says(caplog):
    async def test(rig):
        rig.subscription.assign([A])
        rig.subscription.seek(A, Position(5))
        with caplog.at_level(logging.WARNING):
            rig.positions.out_of_range(A, ApiError(_E.OFFSET_OUT_OF_RANGE, "gone"))
        assert rig.subscription.to_reset() == {A: EARLIEST_RESET}
        assert "gone; it goes on at the earliest offset, as auto.offset.reset says" in caplog.text

    run(test)


def test_without_a_policy_a_position_that_is_gone_is_refused():
    async def test(rig):
        rig.subscription.assign([A])
        rig.subscription.seek(A, Position(5))
        error = ApiError(_E.OFFSET_OUT_OF_RANGE, "gone")
        with pytest.raises(ApiError) as caught:
            rig.positions.out_of_range(A, error)
        assert caught.value is error
        assert await rig.settled() == {A: 5}

    run(test, policy="none")


# What is told


def told(caplog, code, *, is_known=True, wait=0.0):
    async def test(rig):
        if is_known:
            rig.subscription.assign([A])
        else:
            rig.subscription.assign([A, TopicPartition("unheard", 0)])
        for passed in (0.0, wait):
            rig.clock.advance(passed)
            rig.positions._tell("offsets", ApiError(code, "the reason"))

    run(test)
    return "the reason" in caplog.text


def test_what_lasts_is_told_and_a_partition_that_does_not_exist_at_once(caplog):
    assert told(caplog, _E.UNKNOWN_TOPIC_OR_PARTITION)
    caplog.clear()
    assert not told(caplog, _E.UNKNOWN_TOPIC_OR_PARTITION, is_known=False, wait=PATIENCE)
    assert not told(caplog, _E.LEADER_NOT_AVAILABLE)
    assert told(caplog, _E.LEADER_NOT_AVAILABLE, wait=PATIENCE)
