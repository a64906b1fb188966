"""What the controller says of a partition, handed on to its replica."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from sparklog.broker.apis.replicas import leader_and_isr
from sparklog.broker.context import ApiRequest
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.net.turns import Turns
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import LeaderAndIsrRequest
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import TopicPartition
from sparklog.zk.znodes import PartitionState

_Topic = LeaderAndIsrRequest.LeaderAndIsrTopicState


class Fence:
    """Obeys everybody, until it is told to refuse."""

    code = ErrorCode.NONE

    async def admit(self, message):
        return self.code

    def check(self, message):
        return self.code


async def topic_config(topic):
    return TopicConfig()


def partition(number=0, leader=2):
    return _Topic.LeaderAndIsrPartitionState(
        partition_index=number,
        controller_epoch=1,
        leader=leader,
        leader_epoch=3,
        isr=[2],
        replicas=[2, 5, 7],
        is_new=True,
    )


def handle(broker, *topics):
    request = ApiRequest(ApiKey.LEADER_AND_ISR, 6, "c", Caller("h"), LeaderAndIsrRequest(topic_states=list(topics)))

    async def handled():
        broker.turns = Turns(asyncio.get_running_loop())
        return await leader_and_isr.handle(broker, request)

    return asyncio.run(handled())


async def run_disk(call, *args):
    return call(*args)


def broker_of(apply, *, fence=None, settings=topic_config):
    """A broker on which every log is there already."""
    replicas = SimpleNamespace(
        apply=lambda *args, made, **how: apply(*args, **how),
        leads=lambda tp: False,
        holds=lambda tp: False,
        topic_id=lambda tp: None,
        plan=lambda new: dict,
        changing=asyncio.Lock(),
        broker_id=2,
    )
    followed = Followed()
    return SimpleNamespace(
        authorizer=AllowEverything(),
        fence=fence or Fence(),
        settings=followed,
        topic_config=settings,
        replicas=replicas,
        run_disk=run_disk,
        fetchers=SimpleNamespace(look_at=lambda tp: None),
    )


class Followed:
    """The settings that the broker follows: how often some were taken over, and which are to be read again."""

    def __init__(self):
        self.changes_taken_over = 0
        self.again = set()

    def look_again_at(self, topics):
        self.again.update(topics)


def test_a_replica_is_told_how_many_there_are():
    applied = {}

    def apply(tp, state, config, topic_id, **how):
        applied[tp] = (state, how)
        return ErrorCode.NONE

    broker = broker_of(apply)
    assert handle(broker, _Topic(topic_name="t", partition_states=[partition()])).error_code == ErrorCode.NONE
    state = PartitionState(2, 3, (2,), 1, version=0)
    assert applied == {TopicPartition("t", 0): (state, {"replicas": [2, 5, 7], "is_new": True})}


@pytest.mark.parametrize(("said", "known"), [(UUID(int=7), UUID(int=7)), (UUID(int=0), None), (None, None)])
def test_the_zero_id_says_nothing_of_the_topic(said, known):
    told = []

    def apply(tp, state, config, topic_id, **how):
        told.append(topic_id)
        return ErrorCode.NONE

    handle(broker_of(apply), _Topic(topic_name="t", topic_id=said, partition_states=[partition()]))
    assert told == [known]


def test_a_controller_that_is_replaced_meanwhile_changes_nothing_more():
    fence, applied = Fence(), []

    def apply(tp, *_, **__):
        applied.append(tp.partition)
        if tp.partition == 1:
            fence.code = ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    broker = broker_of(apply, fence=fence)
    answer = handle(broker, _Topic(topic_name="t", partition_states=[partition(number) for number in range(4)]))
    codes = [each.error_code for each in answer.topics[0].partition_errors]
    assert codes == [0, 0, ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_CONTROLLER_EPOCH]
    assert applied == [0, 1]


def test_a_controller_that_is_replaced_while_settings_are_fetched_changes_nothing():
    fence, applied = Fence(), []

    async def slow(topic):
        fence.code = ErrorCode.STALE_CONTROLLER_EPOCH
        return TopicConfig()

    broker = broker_of(lambda tp, *_, **__: applied.append(tp), fence=fence, settings=slow)
    answer = handle(broker, _Topic(topic_name="t", partition_states=[partition()]))
    assert answer.topics[0].partition_errors[0].error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert applied == []


@pytest.mark.parametrize("change", [0, 1], ids=["nothing changes", "a change goes round"])
def test_settings_that_were_read_before_a_change_are_read_again(change):
    def apply(tp, *_, **__):
        broker.settings.changes_taken_over += change
        return ErrorCode.NONE

    broker = broker_of(apply)
    handle(broker, _Topic(topic_name="t", partition_states=[partition()]))
    assert broker.settings.again == ({"t"} if change else set())


def test_settings_are_read_again_though_the_controller_hung_up_before_the_logs_were_made():
    """It tells of the partition again, which is here then with the settings that it has."""
    broker = broker_of(lambda *_, **__: ErrorCode.NONE)
    topic = _Topic(topic_name="t", partition_states=[partition()])
    request = ApiRequest(ApiKey.LEADER_AND_ISR, 6, "c", Caller("h"), LeaderAndIsrRequest(topic_states=[topic]))

    async def scenario():
        begun, made = asyncio.Event(), asyncio.Event()

        async def slow_disk(call, *args):
            begun.set()
            await made.wait()
            return call(*args)

        broker.run_disk, broker.turns = slow_disk, Turns(asyncio.get_running_loop())
        serving = asyncio.ensure_future(leader_and_isr.handle(broker, request))
        await begun.wait()
        serving.cancel()
        await asyncio.wait([serving])
        broker.settings.changes_taken_over += 1
        made.set()
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert broker.settings.again == {"t"}


def test_settings_are_asked_for_until_zookeeper_gives_them(monkeypatch, caplog):
    monkeypatch.setattr(leader_and_isr, "_ASK_AGAIN_S", 0)
    asked, applied = [], []

    async def lost_twice(topic):
        asked.append(topic)
        if len(asked) in (2, 3):
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper: ConnectionLoss")
        return TopicConfig()

    def apply(tp, *_, **__):
        applied.append(tp.topic)
        return ErrorCode.NONE

    topics = [_Topic(topic_name=name, partition_states=[partition()]) for name in "ab"]
    answer = handle(broker_of(apply, settings=lost_twice), *topics)
    assert [each.partition_errors[0].error_code for each in answer.topics] == [0, 0]
    assert applied == ["a", "b"]
    assert asked == ["a", "b", "b", "b"]
    (line,) = caplog.records
    assert (line.levelname, line.exc_info) == ("WARNING", None)
    assert "topic b: REQUEST_TIMED_OUT: ZooKeeper: ConnectionLoss" in caplog.text


def test_a_topic_whose_settings_cannot_be_read_is_refused_and_the_others_are_taken(caplog):
    applied = []

    async def of_a_malformed_znode(topic):
        if topic == "a":
            raise ApiError(ErrorCode.INVALID_CONFIG, "/config/topics/a is not JSON")
        return TopicConfig()

    def apply(tp, *_, **__):
        applied.append(tp.topic)
        return ErrorCode.NONE

    topics = [_Topic(topic_name=name, partition_states=[partition()]) for name in "ab"]
    answer = handle(broker_of(apply, settings=of_a_malformed_znode), *topics)
    assert [each.partition_errors[0].error_code for each in answer.topics] == [ErrorCode.INVALID_CONFIG, 0]
    assert applied == ["b"]
    assert "/config/topics/a is not JSON" in caplog.text


def test_a_controller_that_is_replaced_while_zookeeper_is_away_is_told_so(monkeypatch):
    monkeypatch.setattr(leader_and_isr, "_ASK_AGAIN_S", 0)
    fence, applied = Fence(), []

    async def away(topic):
        fence.code = ErrorCode.STALE_BROKER_EPOCH
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper: ConnectionLoss")

    broker = broker_of(lambda tp, *_, **__: applied.append(tp), fence=fence, settings=away)
    answer = handle(broker, _Topic(topic_name="t", partition_states=[partition()]))
    assert (answer.error_code, answer.topics, applied) == (ErrorCode.STALE_BROKER_EPOCH, [], [])


@pytest.mark.parametrize(("name", "number"), [("../../etc", 0), ("/tmp/x", 0), ("", 0), ("a" * 250, 0), ("t", -1)])
def test_what_cannot_be_a_partition_is_refused_and_the_others_are_taken(name, number):
    applied = []

    def apply(tp, *_, **__):
        applied.append(tp)
        return ErrorCode.NONE

    broker = broker_of(apply)
    forged = _Topic(topic_name=name, partition_states=[partition(number)])
    answer = handle(broker, forged, _Topic(topic_name="good", partition_states=[partition()]))
    codes = [each.partition_errors[0].error_code for each in answer.topics]
    expected = ErrorCode.INVALID_PARTITIONS if number < 0 else ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes == [expected, ErrorCode.NONE]
    assert applied == [TopicPartition("good", 0)]
