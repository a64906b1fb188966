"""Brokers under a ZooKeeper that comes and goes, a controller that is forged, and a disk that is full for a while."""

import json
import os
import signal
import socket
from uuid import UUID

import pytest
from integration import wire
from integration.raw_producer import RawProducer

from sparklog.broker.txn.markers import markers_request
from sparklog.client import Admin
from sparklog.errors import ErrorCode
from sparklog.log.files import SESSION_FILE
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually, wait_for_death
from sparklog.testing.zookeeper import CuttingProxy
from sparklog.txn.markers import Marker
from sparklog.zk.client import ZkClient
from sparklog.zk.znode_client import Session
from sparklog.zk.znodes import PartitionState

pytestmark = pytest.mark.integration

TP = TopicPartition("t", 0)
_Topic = LeaderAndIsrRequest.LeaderAndIsrTopicState


@pytest.fixture
def zk(chroot):
    """A session that looks on."""
    client = ZkClient(chroot, session_timeout=10.0, on_session=lambda _: None)
    client.ensure_tree()
    yield client
    client.close()


@pytest.fixture
def proxy(zookeeper):
    with CuttingProxy(zookeeper.connect_string) as proxy:
        yield proxy


@pytest.fixture
def broker(tmp_path, chroot):
    with BrokerHarness(tmp_path, chroot) as harness:
        yield harness


@pytest.fixture
def distant(tmp_path, chroot, proxy, zk):
    """A broker that reaches ZooKeeper over ``proxy``."""
    with BrokerHarness(tmp_path, f"{proxy.connect_string}/{chroot.partition('/')[2]}") as harness:
        yield harness


@pytest.fixture
def end_session(distant, zk):
    """Ends the distant broker's session while it is away from ZooKeeper, as if its time were over."""

    def end():
        noted = json.loads((distant.spec.data_dir / SESSION_FILE).read_text())
        zk.end_session(Session(noted["session"], bytes.fromhex(noted["password"])))
        eventually(lambda: not zk.brokers.live(), timeout=60, what="the session ends")

    return end


def told(connection, api, message):
    """What a broker answers that is told so."""
    return connection.request(api, lambda _: message)


def serves(address, topic, **how):
    with wire.connect(address) as connection:
        code, text = wire.create_topic(connection, topic, **how)
        assert code is ErrorCode.NONE, text
        assert wire.produce(connection, TopicPartition(topic, 0), wire.batch_of(b"x"))[0] is ErrorCode.NONE


@pytest.mark.parametrize("answered", [True, False])
def test_a_broker_outlives_lines_that_break_while_it_registers_again(distant, proxy, zk, end_session, answered):
    first = zk.brokers.live()[0].epoch
    for _ in range(4):
        proxy.cut(b"/brokers/ids/0", answered=answered)
    proxy.set_down(True)
    end_session()
    proxy.set_down(False)
    eventually(lambda: 0 in zk.brokers.live(), timeout=60, what="the broker is registered")
    assert zk.brokers.live()[0].epoch > first
    assert distant.alive
    eventually(lambda: zk.office.holder() == 0)
    eventually(lambda: proxy.cuts == 4)
    serves(distant.address, "t")


@pytest.mark.parametrize("registered", [True, False])
def test_a_broker_stops_though_zookeeper_is_away(distant, proxy, zk, end_session, registered):
    proxy.set_down(True)
    if not registered:
        end_session()
        proxy.cut(b"/brokers/ids/0", answered=False)
        proxy.set_down(False)
        eventually(lambda: proxy.cuts, timeout=60)
        proxy.set_down(True)
    distant.terminate()
    wait_for_death(distant.pid, timeout=60)
    distant.reap()
    assert distant.fate == "exited with status 0"


@pytest.mark.parametrize("answered", [True, False])
def test_a_broker_outlives_lines_that_break_while_it_starts(tmp_path, chroot, proxy, answered):
    path = chroot.partition("/")[2]
    asked = [path.encode(), b"/config/changes", b"/cluster/id", b"/config/changes", b"/brokers/topics"]
    for each in asked:
        proxy.cut(each, answered=answered)
    with BrokerHarness(tmp_path, f"{proxy.connect_string}/{path}") as broker:
        assert proxy.cuts == len(asked)
        assert "Traceback" not in broker.output()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (b"/cluster/id", "sparklog: stopped before ZooKeeper had answered\n"),
        (b"/brokers/ids/0", "was stopped before ZooKeeper had registered it\n"),
    ],
)
def test_a_broker_that_waits_for_zookeeper_can_be_stopped(tmp_path, chroot, proxy, zk, asked, told):
    def part(frame):
        if asked in frame:
            proxy.set_down(True)
            return True
        return False

    proxy.cut(part, answered=False)
    broker = BrokerHarness(tmp_path, f"{proxy.connect_string}/{chroot.partition('/')[2]}")
    broker.spawn()
    try:
        eventually(lambda: proxy.refused > 3, timeout=60)
        broker.terminate()
        wait_for_death(broker.pid, timeout=60)
        assert broker.output().endswith(told)
        assert "Traceback" not in broker.output()
    finally:
        broker.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_that_no_zookeeper_answers_can_be_stopped(tmp_path, number):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        place = f"127.0.0.1:{mute.getsockname()[1]}"
        broker = BrokerHarness(tmp_path, place)
        broker.spawn()
        try:
            mute.settimeout(60)
            with mute.accept()[0]:
                os.kill(broker.pid, number)
                wait_for_death(broker.pid, timeout=60)
            assert broker.output().endswith(f"sparklog: stopped before a ZooKeeper had answered at {place}\n")
            broker.reap()
            assert broker.fate == "exited with status 1"
        finally:
            broker.kill()


def controlled(kind, broker_epoch, controller_id, controller_epoch, **fields):
    return kind(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        **{"topic_states": [], **fields},
    )


KINDS = {
    ApiKey.LEADER_AND_ISR: (LeaderAndIsrRequest, {"type": 1, "live_leaders": []}),
    ApiKey.UPDATE_METADATA: (UpdateMetadataRequest, {"live_brokers": []}),
    ApiKey.STOP_REPLICA: (StopReplicaRequest, {}),
}


@pytest.mark.parametrize("api", KINDS)
def test_forged_requests_fence_nobody(broker, zk, api):
    kind, fields = KINDS[api]
    epoch, (holder, term) = zk.brokers.live()[0].epoch, zk.office.read()
    forgeries = {
        (epoch, holder, 2**31 - 1): ErrorCode.STALE_CONTROLLER_EPOCH,
        (epoch, 99, term): ErrorCode.STALE_CONTROLLER_EPOCH,
        (epoch, holder, term - 1): ErrorCode.STALE_CONTROLLER_EPOCH,
        (-1, holder, term): ErrorCode.STALE_BROKER_EPOCH,
        (2**62, holder, term): ErrorCode.STALE_BROKER_EPOCH,
        (-1, holder, 2**31 - 1): ErrorCode.STALE_BROKER_EPOCH,
    }
    with wire.connect(broker.address) as connection:
        for forged, code in forgeries.items():
            message = controlled(kind, *forged, **fields)
            assert told(connection, api, message).error_code == code, forged
    assert "ZooKeeper knows of controller" in broker.output()
    serves(broker.address, "t")


@pytest.mark.parametrize("commit", [True, False])
def test_a_forged_marker_ends_no_transaction_and_keeps_no_coordinator_from_ending_it(broker, commit):
    serves(broker.address, "t")
    producer = RawProducer(broker.address, "txn", version=1)
    assert (producer.init(), producer.add(TP)) == (ErrorCode.NONE, ErrorCode.NONE)
    assert producer.write(TP, b"of the transaction") is ErrorCode.NONE
    forged = markers_request(Marker(producer.me, not commit, 2**31 - 1), [TP])

    def committed(connection):
        return wire.values_in(wire.fetch(connection, TP, 0, isolation=IsolationLevel.READ_COMMITTED))

    with wire.connect(broker.address) as connection:
        (answer,) = wire.ask(connection, ApiKey.WRITE_TXN_MARKERS, 1, forged).markers
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert wire.fetch(connection, TP, 0).last_stable_offset == 1
        assert committed(connection) == [b"x"]
        assert producer.end(commit=commit) is ErrorCode.NONE
        eventually(lambda: wire.fetch(connection, TP, 0).last_stable_offset == 3, what="the transaction is decided")
        assert b"of the transaction" in wire.values_in(wire.fetch(connection, TP, 0))
        aborted = wire.fetch(connection, TP, 0, isolation=IsolationLevel.READ_COMMITTED).aborted
        assert bool(aborted) is not commit
    assert "bears the coordinator epoch 2147483647, which no leader" in broker.output()


def test_a_forged_request_deletes_no_replica_that_the_cluster_counts_on(broker, zk):
    serves(broker.address, "t")
    kind = StopReplicaRequest.StopReplicaTopicState
    for leader_epoch in (0, -1, -2, 2**31 - 1):
        doomed = kind.StopReplicaPartitionState(partition_index=0, leader_epoch=leader_epoch, delete_partition=True)
        states = [kind(topic_name="t", partition_states=[doomed])]
        message = controlled(StopReplicaRequest, zk.brokers.live()[0].epoch, *zk.office.read(), topic_states=states)
        with wire.connect(broker.address) as connection:
            (answer,) = told(connection, ApiKey.STOP_REPLICA, message).partition_errors
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert wire.produce(connection, TP, wire.batch_of(b"x"))[0] is ErrorCode.NONE
    assert "not deleted, for this broker has replicas of them in ZooKeeper: t-0" in broker.output()


@pytest.mark.parametrize(("leader", "is_other"), [(-2, False), (0, True)])
def test_forged_metadata_of_a_topic_that_goes_take_no_offset_of_a_group(broker, zk, leader, is_other):
    serves(broker.address, "t")
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.alter_group_offsets("g", {TP: 7})
        kind, info, topic_id = UpdateMetadataRequest, zk.brokers.live()[0], zk.topics.assignment("t").topic_id
        place = kind.UpdateMetadataBroker.UpdateMetadataEndpoint
        end = place(port=info.endpoint.port, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0)
        alive = kind.UpdateMetadataBroker(id=0, endpoints=[end], rack=None)
        state = kind.UpdateMetadataTopicState.UpdateMetadataPartitionState(
            partition_index=0, controller_epoch=1, leader=leader, leader_epoch=0, isr=[0], zk_version=0, replicas=[0],
            offline_replicas=[],
        )  # fmt: skip
        topic = kind.UpdateMetadataTopicState(
            topic_name="t", topic_id=UUID(int=5) if is_other else topic_id, partition_states=[state]
        )
        message = controlled(kind, info.epoch, *zk.office.read(), live_brokers=[alive], topic_states=[topic])
        with wire.connect(broker.address) as connection:
            assert told(connection, ApiKey.UPDATE_METADATA, message).error_code == ErrorCode.NONE
        assert admin.group_offsets("g")[TP].offset == 7
        broker.restart()
        assert admin.group_offsets("g")[TP].offset == 7
        admin.delete_topics(["t"])
        eventually(lambda: not admin.group_offsets("g"), what="the offset goes with its topic")


def test_metadata_that_cannot_be_is_refused_whole(broker, zk):
    serves(broker.address, "t")
    kind = UpdateMetadataRequest
    place = kind.UpdateMetadataBroker.UpdateMetadataEndpoint
    info = zk.brokers.live()[0]

    def end(host="127.0.0.1", port=info.endpoint.port, security_protocol=0, listener="PLAINTEXT"):
        return place(port=port, host=host, listener=listener, security_protocol=security_protocol)

    def alive(*ends, id_=0):
        return kind.UpdateMetadataBroker(id=id_, endpoints=ends or [end()], rack=None)

    def topic(name, number):
        state = kind.UpdateMetadataTopicState.UpdateMetadataPartitionState(
            partition_index=number, controller_epoch=1, leader=0, leader_epoch=0, isr=[0], zk_version=0, replicas=[0],
            offline_replicas=[],
        )  # fmt: skip
        return kind.UpdateMetadataTopicState(topic_name=name, topic_id=None, partition_states=[state])

    odd = [
        ([alive(), alive(id_=-3)], []),
        ([kind.UpdateMetadataBroker(id=0, endpoints=[], rack=None)], []),
        ([alive(end(host=""))], []),
        ([alive(end(port=0))], []),
        ([alive(end(security_protocol=4))], []),
        ([alive(end(), end(listener="OTHER", port=-1))], []),
        ([alive()], [topic("../x", 0)]),
        ([alive()], [topic("", 0)]),
        ([alive()], [topic("t", -1)]),
    ]
    with wire.connect(broker.address) as connection:
        for brokers, topics in odd:
            message = controlled(kind, info.epoch, *zk.office.read(), live_brokers=brokers, topic_states=topics)
            assert told(connection, ApiKey.UPDATE_METADATA, message).error_code == ErrorCode.INVALID_REQUEST
    serves(broker.address, "u")


@pytest.fixture
def small_disk(disk_of):
    """Where the broker keeps its logs: 24 MB."""
    return disk_of("24m")


def test_a_topic_that_a_full_disk_has_no_room_for_is_led_once_there_is(small_disk, tmp_path, chroot, zk):
    with BrokerHarness(tmp_path, chroot) as broker, wire.connect(broker.address) as connection:
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
        code, _ = wire.create_topic(connection, TP.topic, timeout_ms=2000)
        assert code is ErrorCode.REQUEST_TIMED_OUT, "it was not created in full, and the client is told so"
        eventually(lambda: TP in (states := zk.states.read([TP])) and states[TP].leader == -1)
        assert "t-0" in broker.output()
        assert "No space left" in broker.output()
        ballast.unlink()
        eventually(lambda: wire.produce(connection, TP, wire.batch_of(b"x"))[0] is ErrorCode.NONE, timeout=60)
        assert zk.states.read([TP])[TP] == PartitionState(0, 2, (0,), zk.office.read().epoch)
        assert wire.read_all(connection, TP) == [b"x"]
