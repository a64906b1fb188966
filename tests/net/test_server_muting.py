"""A connection that is muted: nothing more is read from it for a while, and what is in hand is answered."""

import pytest
from net.listening import Server, answer, framed, read_frame

from sparklog.testing.clock import jump
from sparklog.testing.eventually import eventually


@pytest.fixture
def server():
    running = Server()

    def dispatch(frame, caller):
        running.callers.append(caller)
        if frame == b"slow down":
            caller.mute(1000.0)
        return answer(bytes(frame))

    running.dispatch = dispatch
    yield running
    running.stop()


def test_the_answer_comes_at_once_and_the_next_request_waits(server):
    with server.connect() as client:
        client.sendall(framed(b"slow down") + framed(b"next"))
        assert read_frame(client) == b"slow down"
        with server.connect() as other:
            other.sendall(framed(b"not concerned"))
            assert read_frame(other) == b"not concerned"
        assert [bytes(each) for each in server.seen] == [b"slow down", b"not concerned"]
        server.call(jump, server.loop, 1001.0)
        assert read_frame(client) == b"next"


def test_what_was_not_read_yet_is_not_read(server):
    with server.connect() as client:
        client.sendall(framed(b"slow down"))
        assert read_frame(client) == b"slow down"
        client.sendall(framed(b"next"))
        server.call(jump, server.loop, 999.0)
        with server.connect() as other:
            other.sendall(framed(b"turn"))
            assert read_frame(other) == b"turn"
        assert b"next" not in server.seen
        server.call(jump, server.loop, 1.5)
        assert read_frame(client) == b"next"


def test_the_longer_time_counts(server):
    with server.connect() as client:
        client.sendall(framed(b"a"))
        read_frame(client)
        (caller,) = server.callers
        for seconds in (10.0, 500.0, 20.0):
            server.call(caller.mute, seconds)
        client.sendall(framed(b"next"))
        server.call(jump, server.loop, 499.0)
        assert b"next" not in server.seen
        server.call(jump, server.loop, 2.0)
        assert read_frame(client) == b"next"


def test_one_that_is_muted_is_not_idle(server):
    server.limit(max_idle_s=10.0)
    with server.connect() as client:
        client.sendall(framed(b"slow down"))
        assert read_frame(client) == b"slow down"
        client.sendall(framed(b"next"))
        for _ in range(20):
            server.call(jump, server.loop, 45.0)
        assert server.server.connections == 1
        server.call(jump, server.loop, 200.0)
        assert read_frame(client) == b"next"


def test_one_that_hangs_up_meanwhile_is_forgotten_before_its_time_is_over(server):
    """Or a client that comes again and again would leave one behind each time."""
    with server.connect() as client, server.connect() as other:
        for each in (client, other):
            each.sendall(framed(b"slow down"))
            assert read_frame(each) == b"slow down"
        client.close()
        server.call(jump, server.loop, 31.0)
        eventually(lambda: server.server.connections == 1)


@pytest.mark.parametrize("max_idle_s", [100.0, -1.0])
def test_one_that_hangs_up_is_read_to_its_end_first(server, max_idle_s):
    """A producer that waits for no answer may have left its records."""
    server.limit(max_idle_s=max_idle_s)
    with server.connect() as client:
        client.sendall(framed(b"slow down"))
        assert read_frame(client) == b"slow down"
        client.sendall(framed(b"the last"))
    server.call(jump, server.loop, 31.0)
    assert server.server.connections == 1
    if max_idle_s > 0:
        server.call(jump, server.loop, max_idle_s)
        eventually(lambda: server.server.connections == 0)
        assert b"the last" not in server.seen
    else:
        server.call(jump, server.loop, 970.0)
        eventually(lambda: b"the last" in server.seen)
        eventually(lambda: server.server.connections == 0)
