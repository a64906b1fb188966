"""The blocking asking end, against a peer that answers rightly, wrongly, or not at all."""

import select
import socket
import time

import pytest
from net.listening import IMPOSSIBLE

from sparklog.errors import ApiError, ConnectionFailed, ErrorCode, RemoteProtocolError
from sparklog.net import connection as connection_module
from sparklog.net.connection import BlockingConnection, seconds_since_data
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import HeartbeatRequest, HeartbeatResponse, encode
from sparklog.structs import Endpoint
from sparklog.testing.clock import ManualClock
from sparklog.testing.eventually import eventually


def heartbeat(_version):
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)


def beat_back(peer, error=0):
    def reply(request):
        return peer.framed(request, encode(HeartbeatResponse(throttle_time_ms=0, error_code=error), request.version))

    return reply


def test_a_request_in_the_newest_version_of_both(peer):
    peer.reply = beat_back(peer, 27)
    with BlockingConnection(peer.endpoint, client_id="me") as connection:
        assert connection.request(ApiKey.HEARTBEAT, heartbeat).error_code == 27
        assert connection.request(ApiKey.HEARTBEAT, heartbeat, ceiling=1).error_code == 27
    assert [(each.api, each.version, each.client_id) for each in peer.requests] == [
        (18, 3, "me"),
        (12, 3, "me"),
        (12, 1, "me"),
    ]


@pytest.mark.parametrize("address", IMPOSSIBLE)
def test_an_address_that_cannot_be_one(address):
    with pytest.raises(ConnectionFailed, match="cannot reach a broker at"):
        BlockingConnection(Endpoint(*address))


def test_an_api_that_the_peer_lacks_is_named(peer):
    with BlockingConnection(peer.endpoint) as connection:
        with pytest.raises(ApiError, match=r"speaks DESCRIBE_CLUSTER versions 0 to -1") as caught:
            connection.request(ApiKey.DESCRIBE_CLUSTER, heartbeat)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert not connection.closed


def test_requests_may_be_pipelined(peer):
    answers = iter([1, 2, 3])
    peer.reply = lambda request: beat_back(peer, next(answers))(request)
    with BlockingConnection(peer.endpoint) as connection:
        for _ in range(3):
            connection.send(ApiKey.HEARTBEAT, 0, [encode(heartbeat(0), 0)])
        assert [bytes(connection.receive()[2]) for _ in range(3)] == [b"\0\1", b"\0\2", b"\0\3"]


def test_a_large_request_in_many_chunks_arrives_whole(peer):
    peer.reply = beat_back(peer)
    chunks = [bytes([number % 256]) * 3000 for number in range(2000)]
    with BlockingConnection(peer.endpoint) as connection:
        connection.send(ApiKey.HEARTBEAT, 0, list(chunks))
        connection.receive()
    assert bytes(peer.requests[-1].body) == b"".join(chunks)


def test_a_peer_that_hangs_up(peer):
    connection = BlockingConnection(peer.endpoint)
    with pytest.raises(ConnectionFailed, match=rf"waiting for an answer of broker {peer.endpoint} failed"):
        connection.request(ApiKey.HEARTBEAT, heartbeat)
    assert connection.closed


def test_a_peer_that_is_silent(peer):
    peer.reply = lambda request: b""
    connection = BlockingConnection(peer.endpoint, request_timeout=0.2)
    with pytest.raises(ConnectionFailed, match="timed out"):
        connection.request(ApiKey.HEARTBEAT, heartbeat)
    assert connection.closed


def test_half_an_answer(peer):
    peer.reply = lambda request: beat_back(peer)(request)[:-1] if len(peer.requests) == 2 else None
    connection = BlockingConnection(peer.endpoint, request_timeout=0.2)
    with pytest.raises(ConnectionFailed):
        connection.request(ApiKey.HEARTBEAT, heartbeat)
    assert connection.closed


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "is it a Kafka listener"),
        (b"\xff\xff\xff\xff", "announces a response of -1 bytes"),
        (b"\0\0\0\x06\0\0\0\x63\0\0", "response 99 came where 1 was due"),
        (b"\0\0\0\x02\0\0", "ends at byte 2"),
    ],
)
def test_an_answer_that_is_none(peer, data, complaint):
    peer.reply = lambda request: data
    connection = BlockingConnection(peer.endpoint)
    with pytest.raises(RemoteProtocolError, match=complaint):
        connection.request(ApiKey.HEARTBEAT, heartbeat)
    assert connection.closed


def test_an_answer_cut_short_inside(peer):
    peer.reply = lambda request: peer.framed(request, b"\0\0")
    with BlockingConnection(peer.endpoint) as connection, pytest.raises(RemoteProtocolError, match="malformed"):
        connection.request(ApiKey.HEARTBEAT, heartbeat)


def test_nobody_there(peer):
    endpoint = Endpoint("127.0.0.1", 1)
    with pytest.raises(ConnectionFailed, match=r"cannot reach a broker at 127\.0\.0\.1:1"):
        BlockingConnection(endpoint)


def test_a_produce_with_no_answer_is_not_waited_for(peer):
    answers = iter([b""])
    peer.reply = lambda request: next(answers, None) if request.api == 0 else beat_back(peer, 5)(request)
    with BlockingConnection(peer.endpoint) as connection:
        connection.send(ApiKey.PRODUCE, 3, [b"..."], expect_response=False)
        assert connection.request(ApiKey.HEARTBEAT, heartbeat).error_code == 5
    eventually(lambda: len(peer.requests) == 3)


@pytest.fixture
def lain(monkeypatch):
    """Says for how many seconds each answer from now on has lain unread: none, at first."""

    def say(seconds):
        monkeypatch.setattr(connection_module, "seconds_since_data", lambda _: seconds)

    say(0.0)
    return say


def _throttle(peer, *seconds):
    left = list(seconds)

    def reply(request):
        message = HeartbeatResponse(throttle_time_ms=left.pop(0) * 1000 if left else 0, error_code=0)
        return peer.framed(request, encode(message, request.version))

    peer.reply = reply


def test_a_silence_begins_when_the_answer_comes(peer, lain):
    _throttle(peer, 60, 60)
    clock = ManualClock()
    with BlockingConnection(peer.endpoint, clock=clock) as connection:
        lain(25.0)
        connection.request(ApiKey.HEARTBEAT, heartbeat)
        lain(100.0)
        connection.request(ApiKey.HEARTBEAT, heartbeat)
        assert clock.monotonic() == 35
        connection.request(ApiKey.HEARTBEAT, heartbeat)
        assert clock.monotonic() == 35


def test_the_kernel_knows_when_data_came_that_was_not_read():
    def since_it_came(began):
        seconds = seconds_since_data(here)
        assert 0 <= seconds <= time.monotonic() - began + 0.05  # the kernel's clock is a coarse one
        return seconds

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as here:
        there, _ = server.accept()
        with there:
            for _ in range(2):
                began = time.monotonic()
                there.sendall(b"x")
                assert select.select([here], [], [], 60)[0] == [here]
                eventually(lambda began=began: since_it_came(began) > 0.1)
    assert seconds_since_data(here) == 0


def test_nothing_is_sent_while_the_broker_wants_silence(peer, lain):
    _throttle(peer, 60, 10)
    clock = ManualClock()
    with BlockingConnection(peer.endpoint, clock=clock) as connection:
        connection.send(ApiKey.HEARTBEAT, 3, [encode(heartbeat(3), 3)])
        connection.send(ApiKey.HEARTBEAT, 3, [encode(heartbeat(3), 3)])
        for _ in range(2):
            connection.receive()
        clock.advance(15)
        connection.request(ApiKey.HEARTBEAT, heartbeat)
        assert clock.monotonic() == 60
        connection.request(ApiKey.HEARTBEAT, heartbeat)
        assert clock.monotonic() == 60


def test_an_interrupted_silence_leaves_the_connection_as_it_was(peer, lain):
    class Interrupted(ManualClock):
        def sleep(self, seconds):
            raise KeyboardInterrupt

    _throttle(peer, 60)
    clock = Interrupted()
    with BlockingConnection(peer.endpoint, clock=clock) as connection:
        connection.request(ApiKey.HEARTBEAT, heartbeat)
        with pytest.raises(KeyboardInterrupt):
            connection.request(ApiKey.HEARTBEAT, heartbeat)
        clock.advance(60)
        connection.request(ApiKey.HEARTBEAT, heartbeat)
    assert len(peer.requests) == 3


def test_a_borrower_waits_in_a_silence_no_longer_than_it_said(peer, lain):
    _throttle(peer, 60)
    clock = ManualClock()
    with BlockingConnection(peer.endpoint, clock=clock) as connection:
        connection.request(ApiKey.HEARTBEAT, heartbeat)
        connection.bind(lambda: 5.0)
        with pytest.raises(ConnectionFailed, match="wants nothing to be sent for 60 s"):
            connection.request(ApiKey.HEARTBEAT, heartbeat)
        assert clock.monotonic() == 5
        assert connection.closed


def test_a_borrower_waits_for_an_answer_no_longer_than_it_said(peer):
    left = [30.0, 0.0]
    peer.reply = lambda request: b""
    with BlockingConnection(peer.endpoint, request_timeout=30.0) as connection:
        connection.bind(lambda: left.pop(0))
        connection.send(ApiKey.HEARTBEAT, 0, [encode(heartbeat(0), 0)])
        with pytest.raises(ConnectionFailed, match="no time is left"):
            connection.receive()
        assert connection.closed


def test_who_borrows_next_is_not_bound(peer):
    peer.reply = beat_back(peer)
    with BlockingConnection(peer.endpoint) as connection:
        connection.bind(lambda: 0.0)
        connection.bind(None)
        assert connection.request(ApiKey.HEARTBEAT, heartbeat).error_code == 0


def test_it_is_told_how_long_the_broker_wants_silence(peer):
    _throttle(peer, 60, 0, 10)
    told = []
    with BlockingConnection(peer.endpoint, clock=ManualClock(), throttled=told.append) as connection:
        for _ in range(3):
            connection.request(ApiKey.HEARTBEAT, heartbeat)
    assert told == [60, 10]
