"""What one broker may say to another, said wrong: it is refused and told of in the log, and nothing is lost by it."""

from functools import partial
from uuid import UUID

import pytest
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as fetch_wire
from sparklog.protocol.hot.fetch import FetchPartition, FetchRequest
from sparklog.protocol.messages import (
    AlterPartitionRequest,
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    OffsetForLeaderEpochRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from sparklog.structs import OffsetAndEpoch, TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.zk.client import ZkClient

pytestmark = pytest.mark.integration

TP = TopicPartition("t", 0)
WITH_EPOCHS = 15
"""The version from which on a follower tells the epoch of its registration."""
CONSUMER, DEBUGGING = -1, -2
FAR = 1 << 40


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    with ClusterHarness(tmp_path_factory.mktemp("bad-input"), brokers=3) as harness:
        yield harness


@pytest.fixture(scope="module")
def zk(trio):
    """A session that looks on."""
    client = ZkClient(trio.zookeeper.connect_string, session_timeout=10.0, on_session=lambda _: None)
    yield client
    client.close()


class Scene:
    """A partition with a leader and followers, and a connection to the leader."""

    def __init__(self, trio, zk, connection, values):
        self.trio, self.zk, self.connection, self.values = trio, zk, connection, values
        self.topic_id = zk.topics.assignment(TP.topic).topic_id

    @property
    def state(self):
        return self.zk.states.read([TP])[TP]

    @property
    def leader(self):
        return self.trio.brokers[self.state.leader]

    @property
    def follower(self):
        return next(each for each in self.state.isr if each != self.state.leader)

    def epoch_of(self, broker_id):
        """Of its registration."""
        return self.zk.brokers.live()[broker_id].epoch

    @property
    def end(self):
        return len(self.values)

    def fetch(self, replica, offset, *, epoch=None, last_epoch=-1, leader_epoch=None):
        """As this replica; ``leader_epoch`` is the current one unless it is said."""
        said = self.state.leader_epoch if leader_epoch is None else leader_epoch
        asked = FetchPartition(TP.topic, self.topic_id, TP.partition, offset, 1 << 20, said, last_epoch)
        version = wire.BY_NAME if epoch is None else WITH_EPOCHS
        request = FetchRequest(0, 1, 1 << 20, [asked], replica_id=replica, replica_epoch=-1 if epoch is None else epoch)
        self.connection.send(ApiKey.FETCH, version, fetch_wire.encode_request(request, version))
        _, answered, body = self.connection.receive()
        error, (found,) = fetch_wire.decode_response(body, answered)
        assert error is ErrorCode.NONE
        return found

    def append(self, value):
        code, offset, _ = wire.produce(self.connection, TP, wire.batch_of(value))
        assert (code, offset) == (ErrorCode.NONE, self.end)
        self.values.append(value)


@pytest.fixture(scope="module")
def scenery(trio, zk):
    configs = {"min.insync.replicas": "3"}
    eventually(lambda: wire.topic_is_made(trio.brokers, TP.topic, configs, 3), 60, "the topic")
    state = partial(zk.states.read, [TP])
    first = trio.brokers[state()[TP].leader]
    with wire.connect(first.address) as connection:
        Scene(trio, zk, connection, values := []).append(b"of the first epoch")
    first.stop()
    first.start()
    eventually(lambda: len(state()[TP].isr) == 3, 60, "all replicas are in sync")
    with wire.connect(trio.brokers[state()[TP].leader].address) as connection:
        scene = Scene(trio, zk, connection, values)
        eventually(lambda: wire.fetch(connection, TP, 0).high_watermark == 1, 60, "the leader shows the log")
        scene.append(b"of a later epoch")
        yield scene


@pytest.fixture
def scene(scenery):
    """Afterwards nothing is lost, the state is what it was, and all three replicas take records."""
    before = scenery.state
    yield scenery
    assert scenery.state == before
    assert scenery.state.version == before.version
    scenery.append(b"more")
    assert wire.read_all(scenery.connection, TP) == scenery.values


@pytest.mark.parametrize("last_epoch", [-1, 0])
def test_who_is_no_follower_is_given_nothing(scene, last_epoch):
    for replica in (99, scene.state.leader, (1 << 31) - 1):
        for offset in (0, scene.end, FAR):
            found = scene.fetch(replica, offset, last_epoch=last_epoch)
            assert (found.error, found.records) == (ErrorCode.UNKNOWN_LEADER_EPOCH, [])
            found = scene.fetch(replica, offset, last_epoch=last_epoch, leader_epoch=-1)
            assert (found.error, found.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    assert "broker 99 is no follower of t-0" in scene.leader.output()


@pytest.mark.parametrize("replica", [DEBUGGING, -3, -(1 << 31)])
def test_a_negative_id_is_a_consumers(scene, replica):
    consumed, asked = scene.fetch(CONSUMER, 0), scene.fetch(replica, 0)
    assert (asked.error, asked.high_watermark) == (ErrorCode.NONE, scene.end)
    assert wire.offsets_in(asked) == wire.offsets_in(consumed)
    assert scene.fetch(replica, scene.end + 1).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_of_another_leader_epoch_is_refused(scene):
    current = scene.state.leader_epoch
    unknown, fenced = ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH
    codes = {current + 1: unknown, (1 << 31) - 1: unknown, current - 1: fenced, 0: fenced}
    for said, code in codes.items():
        found = scene.fetch(scene.follower, scene.end, leader_epoch=said)
        assert (found.error, found.records) == (code, [])


def test_a_follower_of_a_former_life_is_refused(scene):
    epoch = scene.epoch_of(scene.follower)
    eventually(lambda: scene.fetch(scene.follower, 0, epoch=epoch - 1).error is ErrorCode.NOT_LEADER_OR_FOLLOWER, 60)
    assert f"broker {scene.follower} has started again since" in scene.leader.output()


@pytest.mark.parametrize("offset", [-1, -(1 << 60), FAR, (1 << 63) - 1])
@pytest.mark.parametrize("last_epoch", [-1, 0])
def test_a_follower_out_of_range_is_told_so(scene, offset, last_epoch):
    found = scene.fetch(scene.follower, offset, last_epoch=last_epoch)
    if last_epoch >= 0 and offset > 0:
        assert found.diverging == OffsetAndEpoch(1, last_epoch)
    else:
        assert found.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert found.records == []
    assert scene.fetch(CONSUMER, 0).high_watermark == scene.end


@pytest.mark.parametrize("last_epoch", [77, (1 << 31) - 1])
def test_an_epoch_that_never_was_is_no_history(scene, last_epoch):
    for offset in (0, scene.end, FAR):
        found = scene.fetch(scene.follower, offset, last_epoch=last_epoch)
        assert (found.error, found.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, [])


def test_a_follower_that_never_gets_on_holds_nobody_up_for_good(scene):
    """It asks for what it has, again and again, while the real one goes on."""
    for _ in range(20):
        assert scene.fetch(scene.follower, 0).error is ErrorCode.NONE
        scene.append(b"meanwhile")


def test_an_epoch_ended_where_it_did_whoever_asks(scene):
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    current = scene.state.leader_epoch

    def asked(replica, epoch, said=current):
        part = kind.OffsetForLeaderPartition(partition=0, current_leader_epoch=said, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(replica_id=replica, topics=[kind(topic=TP.topic, partitions=[part])])
        answer = scene.connection.request(ApiKey.OFFSET_FOR_LEADER_EPOCH, lambda _: request)
        (found,) = answer.topics[0].partitions
        return ErrorCode(found.error_code), found.leader_epoch, found.end_offset

    for replica in (scene.follower, 99, CONSUMER, DEBUGGING):
        assert asked(replica, current) == (ErrorCode.NONE, current, scene.end)
        assert asked(replica, current + 1) == (ErrorCode.NONE, -1, -1)
        assert asked(replica, -1) == (ErrorCode.NONE, -1, -1)
        assert asked(replica, current, said=current + 1)[0] is ErrorCode.UNKNOWN_LEADER_EPOCH


class Office:
    """The controller, and who it is not."""

    def __init__(self, scene):
        self.holder, self.epoch = scene.zk.office.read()
        self.broker = scene.trio.brokers[self.holder]


def alter(
    scene, *isr, broker=None, broker_epoch=None, leader_epoch=None, version=None, epochs=None, number=0, topic=None
):
    """What the controller says to the leader's wish for this ISR: the whole code, and the partition's."""
    kind = AlterPartitionRequest.TopicData
    state, broker = scene.state, scene.state.leader if broker is None else broker
    known = {each: info.epoch for each, info in scene.zk.brokers.live().items()}
    member = kind.PartitionData.BrokerState
    said = epochs or [known.get(each, -1) for each in isr]
    part = kind.PartitionData(
        partition_index=number,
        leader_epoch=state.leader_epoch if leader_epoch is None else leader_epoch,
        new_isr_with_epochs=[member(broker_id=a, broker_epoch=b) for a, b in zip(isr, said, strict=True)],
        leader_recovery_state=0,
        partition_epoch=state.version if version is None else version,
    )
    request = AlterPartitionRequest(
        broker_id=broker,
        broker_epoch=known.get(broker, -1) if broker_epoch is None else broker_epoch,
        topics=[kind(topic_id=topic or scene.topic_id, partitions=[part])],
    )
    with wire.connect(Office(scene).broker.address) as connection:
        answer = connection.request(ApiKey.ALTER_PARTITION, lambda _: request)
    found = [ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions]
    return ErrorCode(answer.error_code), *found


def test_the_controller_writes_no_isr_that_cannot_be(scene):
    state, leader, follower = scene.state, scene.state.leader, scene.follower
    none = ErrorCode.NONE
    assert alter(scene, leader, leader_epoch=state.leader_epoch - 1) == (none, ErrorCode.FENCED_LEADER_EPOCH)
    assert alter(scene, leader, leader_epoch=state.leader_epoch + 1) == (none, ErrorCode.NOT_CONTROLLER)
    assert alter(scene, leader, version=state.version - 1) == (none, ErrorCode.INVALID_UPDATE_VERSION)
    assert alter(scene, leader, version=state.version + 1) == (none, ErrorCode.NOT_CONTROLLER)
    assert alter(scene, follower, broker=follower) == (none, ErrorCode.FENCED_LEADER_EPOCH)
    assert alter(scene, leader, 99) == (none, ErrorCode.INVALID_REQUEST)
    assert alter(scene, leader, follower, follower) == (none, ErrorCode.INVALID_REQUEST)
    assert alter(scene, follower) == (none, ErrorCode.INVALID_REQUEST)
    assert alter(scene) == (none, ErrorCode.INVALID_REQUEST)
    stale = [scene.epoch_of(leader), scene.epoch_of(follower) - 1]
    assert alter(scene, leader, follower, epochs=stale) == (none, ErrorCode.INELIGIBLE_REPLICA)
    assert alter(scene, leader, number=5) == (none, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert alter(scene, leader, topic=UUID(int=77)) == (none, ErrorCode.UNKNOWN_TOPIC_ID)
    for epoch in (-1, scene.epoch_of(leader) - 1, FAR):
        assert alter(scene, leader, broker_epoch=epoch) == (ErrorCode.STALE_BROKER_EPOCH,)
    assert alter(scene, leader, broker=99) == (ErrorCode.STALE_BROKER_EPOCH,)
    output = Office(scene).broker.output()
    assert f"refused broker {leader} another ISR of t-0: INELIGIBLE_REPLICA" in output
    assert "refused AlterPartition of broker 99" in output


def test_only_the_controller_writes_an_isr(scene):
    other = next(each for each in scene.trio.brokers if each is not Office(scene).broker)
    request = AlterPartitionRequest(broker_id=0, broker_epoch=scene.epoch_of(0), topics=[])
    with wire.connect(other.address) as connection:
        answer = connection.request(ApiKey.ALTER_PARTITION, lambda _: request)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER


def test_a_broker_that_is_not_there_does_not_stop(scene):
    def asked(broker_id, epoch, at=None):
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=epoch)
        with wire.connect((at or Office(scene).broker).address) as connection:
            return ErrorCode(connection.request(ApiKey.CONTROLLED_SHUTDOWN, lambda _: request).error_code)

    leader = scene.state.leader
    for broker_id, epoch in ((99, 5), (-1, -1), (leader, -1), (leader, scene.epoch_of(leader) - 1), (leader, FAR)):
        assert asked(broker_id, epoch) is ErrorCode.STALE_BROKER_EPOCH
    other = next(each for each in scene.trio.brokers if each is not Office(scene).broker)
    assert asked(leader, scene.epoch_of(leader), at=other) is ErrorCode.NOT_CONTROLLER
    assert "refused ControlledShutdown of broker 99" in Office(scene).broker.output()


def told(connection, api, message):
    """What a broker answers that is told so."""
    return connection.request(api, lambda _: message)


def decisions(scene, *, leader, leader_epoch, isr):
    """What a controller would say of the partition, of each kind."""
    isr_kind, stop_kind, told_kind = LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
    state = isr_kind.LeaderAndIsrTopicState.LeaderAndIsrPartitionState(
        partition_index=0, controller_epoch=1, leader=leader, leader_epoch=leader_epoch, isr=isr, partition_epoch=99,
        replicas=[0, 1, 2], adding_replicas=[], removing_replicas=[], is_new=False, leader_recovery_state=0,
    )  # fmt: skip
    stop = stop_kind.StopReplicaTopicState.StopReplicaPartitionState(
        partition_index=0, leader_epoch=leader_epoch, delete_partition=True
    )
    told = told_kind.UpdateMetadataTopicState.UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=1, leader=leader, leader_epoch=leader_epoch, isr=isr, zk_version=99,
        replicas=[0, 1, 2], offline_replicas=[],
    )  # fmt: skip
    topic_id = scene.topic_id
    return {
        ApiKey.LEADER_AND_ISR: (
            isr_kind,
            {
                "type": 0,
                "live_leaders": [],
                "topic_states": [
                    isr_kind.LeaderAndIsrTopicState(topic_name=TP.topic, topic_id=topic_id, partition_states=[state])
                ],
            },
        ),
        ApiKey.STOP_REPLICA: (
            stop_kind,
            {"topic_states": [stop_kind.StopReplicaTopicState(topic_name=TP.topic, partition_states=[stop])]},
        ),
        ApiKey.UPDATE_METADATA: (
            told_kind,
            {
                "live_brokers": [],
                "topic_states": [
                    told_kind.UpdateMetadataTopicState(topic_name=TP.topic, topic_id=topic_id, partition_states=[told])
                ],
            },
        ),
    }


@pytest.mark.parametrize("api", [ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA])
def test_who_is_not_the_controller_decides_nothing(scene, api):
    office, leader = Office(scene), scene.state.leader
    follower, mine = scene.follower, scene.epoch_of(scene.state.leader)
    kind, fields = decisions(scene, leader=follower, leader_epoch=scene.state.leader_epoch + 1, isr=[follower])[api]
    stale, strange = ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH
    for who, term, epoch, code in (
        (office.holder, office.epoch - 1, mine, stale),
        (office.holder, office.epoch + 1, mine, stale),
        ((office.holder + 1) % 3, office.epoch, mine, stale),
        (99, office.epoch, mine, stale),
        (office.holder, office.epoch, mine - 1, strange),
        (office.holder, office.epoch, mine + 1, strange),
        (office.holder, office.epoch, -1, strange),
    ):
        message = kind(controller_id=who, controller_epoch=term, broker_epoch=epoch, **fields)
        with wire.connect(scene.trio.brokers[leader].address) as connection:
            assert told(connection, api, message).error_code == code
    assert "refused a request of a controller 99" in scene.leader.output()


def test_a_decision_of_the_past_changes_nothing(scene):
    """The controller said it once, and the network kept it."""
    office, state = Office(scene), scene.state
    past = decisions(scene, leader=scene.follower, leader_epoch=state.leader_epoch - 1, isr=[scene.follower])
    codes = {
        ApiKey.LEADER_AND_ISR: ErrorCode.STALE_CONTROLLER_EPOCH,
        ApiKey.STOP_REPLICA: ErrorCode.FENCED_LEADER_EPOCH,
    }
    for broker_id in (state.leader, scene.follower):
        for api, code in codes.items():
            kind, fields = past[api]
            said = {"controller_id": office.holder, "controller_epoch": office.epoch}
            message = kind(broker_epoch=scene.epoch_of(broker_id), **said, **fields)
            with wire.connect(scene.trio.brokers[broker_id].address) as connection:
                answer = told(connection, api, message)
            assert answer.error_code == ErrorCode.NONE
            (found,) = answer.partition_errors if api is ApiKey.STOP_REPLICA else answer.topics[0].partition_errors
            assert found.error_code == code
