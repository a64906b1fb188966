"""The log of slow requests: on a connection with times that the test gives, and the line by itself."""

import logging
import math

import pytest
from net.listening import IN_FLIGHT, LIMIT, Server, answer, framed, read_frame

from sparklog.net.limits import Limits
from sparklog.net.slow_requests import Begun, SlowRequests, head_of
from sparklog.rate_limit import RateLimitedLogger
from sparklog.security.caller import Caller
from sparklog.security.principal import Principal
from sparklog.testing.eventually import eventually

METADATA = b"\0\3\0\4\0\0\0\7\0\3me!" + b"\0\0\0\0\0"


def head(client_id=b"me!", correlation_id=7):
    """The beginning of a Metadata request of version 4."""
    return memoryview(b"\0\3\0\4" + correlation_id.to_bytes(4, "big") + len(client_id).to_bytes(2, "big") + client_id)


@pytest.fixture
def slow():
    logger = logging.getLogger("sparklog.test_slow_requests")
    return SlowRequests(RateLimitedLogger(logger, lambda: 0.0), 1.0)


def test_a_line_has_whose_it_was_and_where_the_time_went(slow, caplog):
    caller = Caller("1.2.3.4", "TEAM", principal=Principal("User", "alice"))
    caller.throttle(7, 250)
    slow.tell(caller, "1.2.3.4:55", Begun(head(), 123, 10.0, 10.5), 12.0, 12.25)
    (line,) = caplog.messages
    assert line == (
        "slow: METADATA version 4 of client 'me!' from 1.2.3.4:55, User:alice on TEAM, 123 bytes: 2250.0 ms (waited for"
        " its turn 500.0, for its answer 1500.0, until that was sent 250.0; the client was told to wait 250 ms)"
    )
    assert caller.throttled == {}


def test_a_line_is_short_whatever_a_client_calls_itself(slow, caplog):
    caller = Caller("1.2.3.4", principal=Principal("User", "x" * 30_000))
    slow.tell(caller, "1.2.3.4:55", Begun(head_of(head(b"y" * 30_000)), 123, 0, 0), 2, 2)
    slow.tell(caller, "1.2.3.4:55", Begun(head(b"y" * 3_000), 123, 0, 0), 2, 2)
    assert all(len(line) < 700 for line in caplog.messages)
    assert "y" * 100 in caplog.messages[1]


def test_lines_are_few(slow, caplog):
    for _ in range(1000):
        slow.tell(Caller("1.2.3.4"), "1.2.3.4:55", Begun(head(), 1, 0, 0), 2, 2)
    assert len(caplog.messages) == 100


def test_of_a_large_request_only_the_beginning_is_kept():
    large = memoryview(bytearray(1 << 20))
    assert head_of(large).nbytes == 4096
    assert head_of(large).obj is not large.obj


def test_throttles_that_are_never_told_are_forgotten():
    caller = Caller("1.2.3.4")
    for number in range(1000):
        caller.throttle(number, 1)
    assert len(caller.throttled) <= 100


@pytest.fixture
def server():
    running = Server(Limits(LIMIT, IN_FLIGHT, slow_request_s=0.0))
    yield running
    running.stop()


def lines(caplog):
    return [line for line in caplog.messages if line.startswith("slow: ")]


def test_what_is_answered_at_once_later_and_behind_another_is_told_when_it_is_sent(server, caplog):
    later = server.future()
    futures = {b"b": later}
    server.dispatch = lambda frame, host: futures.get(bytes(frame[-1:]), answer(bytes(frame)))
    with server.connect() as client:
        for name in (b"a", b"b", b"c"):
            client.sendall(framed(bytes(METADATA) + name))
        read_frame(client)
        eventually(lambda: len(lines(caplog)) == 1)
        server.call(later.set_result, answer(b"late"))
        assert [read_frame(client), read_frame(client)] == [b"late", METADATA + b"c"]
        eventually(lambda: len(lines(caplog)) == 3)
    assert all(
        "METADATA version 4 of client 'me!'" in line and "User:ANONYMOUS on PLAINTEXT" in line for line in lines(caplog)
    )


def test_an_answer_that_its_client_does_not_take_is_told_when_it_does(server, caplog):
    large = bytes(32 << 20)
    server.dispatch = lambda frame, host: answer(large)
    with server.connect() as client:
        client.sendall(framed(METADATA))
        eventually(lambda: server.server.answer_bytes > 0)
        assert lines(caplog) == []
        assert len(read_frame(client)) == len(large)
        eventually(lambda: len(lines(caplog)) == 1)


def test_a_request_without_an_answer_is_told(server, caplog):
    server.dispatch = lambda frame, host: None
    with server.connect() as client:
        client.sendall(framed(METADATA))
        eventually(lambda: len(lines(caplog)) == 1)


def test_the_limit_may_change_and_what_is_off_says_nothing(server, caplog):
    with server.connect() as client:
        for limit in (math.inf, 3600.0):
            server.limit(slow_request_s=limit)
            client.sendall(framed(METADATA))
            read_frame(client)
        server.limit(slow_request_s=0.0)
        client.sendall(framed(METADATA))
        read_frame(client)
        eventually(lambda: len(lines(caplog)) == 1)
