"""A broker with a limit on everything: what it answers when it stops, and whom it lets in meanwhile."""

import os
import signal
import socket
import threading

import pytest
from integration import wire

from sparklog.errors import ConnectionFailed, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    IncrementalAlterConfigsRequest,
    JoinGroupRequest,
    decode_response,
    encode,
)
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually, wait_for_death

pytestmark = pytest.mark.integration

PATIENT_MS = 120_000
JOIN_VERSION = 5
BROKER = 4


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory):
    with ClusterHarness(tmp_path_factory.mktemp("requests")) as harness:
        yield harness


def set_limit(connection, **settings):
    """The error message, if it is refused."""
    request = IncrementalAlterConfigsRequest
    resource = request.AlterConfigsResource
    changes = [
        resource.AlterableConfig(name=name.replace("_", "."), config_operation=0 if value else 1, value=value)
        for name, value in settings.items()
    ]
    asked = resource(resource_type=BROKER, resource_name="0", configs=changes)
    answer = connection.request(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda _: request(resources=[asked], validate_only=False)
    )
    return answer.responses[0].error_message


def test_limits_on_connections_change_while_the_broker_runs(own_cluster):
    address = own_cluster.bootstrap_servers
    with wire.connect(address) as admin:
        wire.topic_names(admin)
        assert "HOST:NUMBER" in set_limit(admin, max_connections_per_ip_overrides="nobody")
        assert set_limit(admin, max_connections_per_ip_overrides="localhost:1") is None
        eventually(lambda: is_turned_away(address), timeout=60)  # hosts are looked up first
        assert wire.topic_names(admin) is not None, "who is in stays in"
        assert set_limit(admin, max_connections_per_ip_overrides=None, max_connections_per_ip="1000") is None
        eventually(lambda: not is_turned_away(address), timeout=60)
        assert set_limit(admin, max_connections_per_ip=None) is None


def is_turned_away(address):
    try:
        with wire.connect(address) as other:
            wire.topic_names(other)
    except ConnectionFailed:
        return True
    return False


def send_join(connection, group, member_id):
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    message = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=PATIENT_MS,
        rebalance_timeout_ms=PATIENT_MS,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[protocol],
    )
    connection.send(ApiKey.JOIN_GROUP, JOIN_VERSION, [encode(message, JOIN_VERSION)])


def receive_join(connection):
    _, version, body = connection.receive()
    return decode_response(ApiKey.JOIN_GROUP, version, body)


def new_member(connection, group):
    """The id with which it may join, once the group's coordinator is there."""

    def answered():
        wire.find_coordinator(connection, group)
        send_join(connection, group, "")
        answer = receive_join(connection)
        return answer.error_code == ErrorCode.MEMBER_ID_REQUIRED and answer.member_id

    return eventually(answered, timeout=60)


def is_refused(address):
    endpoint = wire.endpoint_of(address)
    try:
        socket.create_connection(endpoint, timeout=10).close()
    except OSError:
        return True
    return False


def test_a_stopping_broker_answers_what_is_in_hand(own_cluster, topic):
    """A fetch that waits, a member that waits for another to rejoin, and a large answer that is taken slowly."""
    address = own_cluster.bootstrap_servers
    broker = own_cluster.broker(0)
    with wire.connect(address) as reader, wire.connect(address) as first, wire.connect(address) as second:
        assert wire.create_topic(reader, topic)[0] is ErrorCode.NONE
        tp = TopicPartition(topic, 0)
        eventually(lambda: wire.fetch(reader, tp, 0).error is ErrorCode.NONE)
        send_join(first, topic, new_member(first, topic))
        assert receive_join(first).error_code == 0
        send_join(second, topic, new_member(second, topic))
        wire.send_fetch(reader, {tp: 0}, max_wait_ms=PATIENT_MS)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        assert wire.receive_fetch(reader)[tp].error is ErrorCode.NONE
        assert ErrorCode(receive_join(second).error_code) is ErrorCode.NOT_COORDINATOR
        assert is_refused(address)
        stopping.join()
        for connection in (reader, first, second):
            with pytest.raises(ConnectionFailed):
                wire.topic_names(connection)
    broker.start()


def test_a_client_that_hangs_up_while_it_waits_is_no_error(own_cluster, topic):
    address = own_cluster.bootstrap_servers
    broker = own_cluster.broker(0)
    tp = TopicPartition(topic, 0)
    with wire.connect(address) as other:
        assert wire.create_topic(other, topic)[0] is ErrorCode.NONE
        for waiting in (1, 3):
            with wire.connect(address) as impatient:
                for _ in range(waiting):
                    wire.send_fetch(impatient, {tp: 0}, max_wait_ms=PATIENT_MS, min_bytes=wire.MANY)
                # Answered behind the wait, so that the broker has begun it by now.
                assert wire.produce(other, tp, wire.batch_of(b"x"))[0] is ErrorCode.NONE
    broker.stop()
    assert not broker.has_reported_errors(), broker.output()[-2000:]
    broker.start()


def test_a_second_signal_waits_for_nobody(own_cluster, topic):
    """A client that does not take its answer is waited for, but not after a second signal; no data is lost by it."""
    address = own_cluster.bootstrap_servers
    broker = own_cluster.broker(0)
    tp = TopicPartition(topic, 0)
    values = [bytes([n]) * (900 << 10) for n in range(1, 31)]
    with wire.connect(address) as slow:
        assert wire.create_topic(slow, topic)[0] is ErrorCode.NONE
        for value in values:
            assert wire.produce(slow, tp, wire.batch_of(value))[0] is ErrorCode.NONE
        for _ in range(4):
            wire.send_fetch(slow, {tp: 0})
        slow._receive_exactly(4)
        pid = broker.pid
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        wait_for_death(pid)
    assert "a second signal came: hanging up on 1 connection" in broker.output()
    broker.stop()
    broker.start()
    with wire.connect(address) as reader:
        assert wire.read_all(reader, tp) == values
