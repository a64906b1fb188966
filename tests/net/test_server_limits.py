"""Who is let in, who is sent away, who is not read: each limit against a client that would pass it."""

import contextlib
import gc
import logging
import math
import os
import socket
import threading
import tracemalloc
import weakref
from types import SimpleNamespace

import pytest
from net.listening import Server, answer, assert_hung_up, assert_serves, framed, read_exactly, read_frame

from sparklog import rate_limit
from sparklog.errors import RemoteProtocolError
from sparklog.net import channel as net_channel
from sparklog.net.answer import Waiting
from sparklog.net.server import Entrance
from sparklog.protocol.frame import SCRATCH_SIZE
from sparklog.quota.connections import ConnectionRates
from sparklog.quota.rate import Windows
from sparklog.testing.clock import jump
from sparklog.testing.eventually import eventually


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(rate_limit, "_INTERVAL_S", math.inf)  # what it says once it says once on a slow machine too
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def waiting(server):
    """The futures of requests that begin with ``wait``, as they come."""
    futures = []

    def dispatch(frame, host):
        if bytes(frame[:4]) != b"wait":
            return answer(bytes(frame))
        futures.append(server.loop.create_future())
        return Waiting(futures[-1])

    server.dispatch = dispatch
    return futures


def ask(client, text=b"hello"):
    client.sendall(framed(text))
    return read_frame(client)


def is_served(client):
    """Whether an answer comes; what was asked must have been sent before."""
    client.settimeout(0.2)
    try:
        return bool(client.recv(1))
    except TimeoutError:
        return False
    finally:
        client.settimeout(60)


def test_an_address_has_so_many_connections_and_no_more(server, caplog):
    server.limit(max_per_host=2)
    with caplog.at_level(logging.WARNING), server.connect() as first, server.connect() as second:
        assert ask(first) == ask(second) == b"hello"
        with server.connect() as third:
            assert_hung_up(third)
        assert "127.0.0.1 has 2 connections already, and max.connections.per.ip" in caplog.text
        first.close()
        eventually(lambda: server.server.connections == 1)
        assert_serves(server)
        assert ask(second) == b"hello"


def test_an_address_may_have_a_number_of_its_own(server):
    server.limit(max_per_host=0, per_host_overrides={"127.0.0.1": 1})
    with server.connect() as first, server.connect() as second:
        assert ask(first) == b"hello"
        assert_hung_up(second)
    server.limit(per_host_overrides={"127.0.0.2": 5})
    with server.connect() as other:
        assert_hung_up(other)


def test_who_is_one_too_many_waits_until_somebody_leaves(server, caplog):
    server.limit(max_connections=2)
    with caplog.at_level(logging.WARNING), server.connect() as first, server.connect() as second:
        assert ask(first) == ask(second) == b"hello"
        with server.connect() as third:
            third.sendall(framed(b"my turn?"))
            eventually(lambda: "max.connections=2 are taken" in caplog.text)
            assert not is_served(third)
            first.close()
            assert read_frame(third) == b"my turn?"
            assert server.server.connections == 2


def test_a_waiting_one_is_let_in_when_the_limit_rises(server):
    server.limit(max_connections=0)
    with server.connect() as client:
        client.sendall(framed(b"now?"))
        assert not is_served(client)
        server.limit(max_connections=1)
        assert read_frame(client) == b"now?"


def test_a_lower_limit_sends_the_longest_idle_away(server, waiting, caplog):
    with caplog.at_level(logging.WARNING), contextlib.ExitStack() as stack:
        busy, idle, later = (stack.enter_context(server.connect()) for _ in range(3))
        busy.sendall(framed(b"wait"))
        eventually(lambda: waiting)
        for client in (idle, later):
            assert ask(client) == b"hello"
        server.limit(max_connections=2)
        assert_hung_up(idle)
        assert ask(later) == b"hello"
        server.limit(max_connections=1)
        assert_hung_up(later)
        server.call(waiting[0].set_result, answer(b"done"))
        assert read_frame(busy) == b"done"
    assert "max.connections" in caplog.text


def test_connections_that_come_too_fast_are_let_in_one_by_one(server):
    server.limit(max_rate=5)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(8)]
        for client in clients:
            client.sendall(framed(b"hello"))
        for client in clients:
            assert read_frame(client) == b"hello"


def test_who_comes_too_fast_is_not_looked_at_until_it_is_time(server):
    server.limit(max_rate=1)
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(server.connect())
        eventually(lambda: not server.server._accepting)
        assert server.server.connections < 10


def test_the_idle_are_sent_away_and_who_waits_for_an_answer_is_not(server, waiting):
    with server.connect() as busy, server.connect() as idle:
        busy.sendall(framed(b"wait"))
        assert ask(idle) == b"hello"
        eventually(lambda: waiting)
        server.limit(max_idle_s=0.1)
        assert_hung_up(idle)
        with server.connect() as silent:
            assert_hung_up(silent)
        server.call(waiting[0].set_result, answer(b"at last"))
        assert read_frame(busy) == b"at last"
        assert_hung_up(busy)


@pytest.mark.parametrize("dribbled", [b"\0\0", b"\0\0\x03\xe8some of it", (1 << 20).to_bytes(4, "big") + b"x" * 70_000])
def test_who_sends_a_request_in_drops_is_idle(server, dribbled, caplog):
    server.limit(max_idle_s=0.3)
    gone = threading.Event()

    def dribble(client):
        with contextlib.suppress(OSError):
            client.sendall(dribbled)
            while not gone.wait(0.02):
                client.sendall(b"\1")

    with caplog.at_level(logging.WARNING), server.connect() as client:
        thread = threading.Thread(target=dribble, args=(client,))
        thread.start()
        try:
            assert_hung_up(client)
        finally:
            gone.set()
            thread.join()
    assert "neither sent a whole request nor took its answers for connections.max.idle.ms" in caplog.text


def test_who_takes_no_answer_is_idle(server, caplog):
    server.dispatch = lambda frame, host: answer(os.urandom(8 << 20))
    with caplog.at_level(logging.WARNING), server.connect() as client:
        client.sendall(framed(b"x") * 3)
        eventually(lambda: server.server.connections == 1)
        server.limit(max_idle_s=0.2)
        eventually(lambda: server.server.connections == 0)
    assert "connections.max.idle.ms" in caplog.text


def test_without_an_idle_limit_nobody_is_sent_away(server):
    server.limit(max_idle_s=0.05)
    server.limit(max_idle_s=-1)
    with server.connect() as client:
        assert not is_served(client), "nothing was asked, and no end came"
        assert ask(client) == b"hello"


def test_no_request_is_begun_while_those_in_hand_fill_the_memory(server, waiting, caplog):
    server.limit(max_request_memory=100_000)
    with caplog.at_level(logging.WARNING), contextlib.ExitStack() as stack:
        large = [stack.enter_context(server.connect()) for _ in range(2)]
        other = stack.enter_context(server.connect())
        for number, client in enumerate(large):
            client.sendall(framed(b"wait" + b"x" * 60_000))
            eventually(lambda n=number: len(waiting) == n + 1)
        other.sendall(framed(b"and me?"))
        eventually(lambda: "filled queued.max.request.bytes=100000" in caplog.text)
        assert not is_served(other)
        assert server.server.request_bytes == 120_008
        server.call(waiting[0].set_result, answer(b"done"))
        assert read_frame(other) == b"and me?"
        assert read_frame(large[0]) == b"done"
    eventually(lambda: server.server.request_bytes == 0)


def test_a_request_that_has_begun_is_read_to_its_end(server, waiting):
    """Both are larger than the memory, and neither can be answered before it is whole."""
    server.limit(max_request_memory=100_000)
    payload = os.urandom(300_000)
    with server.connect() as first, server.connect() as second:
        for client in (first, second):
            client.sendall(framed(payload)[:90_000])
        eventually(lambda: server.server.request_bytes >= 100_000)
        for client in (first, second):
            client.sendall(framed(payload)[90_000:])
        for client in (first, second):
            assert read_frame(client) == payload


def test_a_client_that_hangs_up_gives_its_memory_back(server):
    server.limit(max_request_memory=50_000)
    with server.connect() as large, server.connect() as other:
        large.sendall(framed(b"x" * 200_000)[:-1])
        eventually(lambda: server.server.request_bytes > 190_000)
        other.sendall(framed(b"and me?"))
        assert not is_served(other)
        large.close()
        assert read_frame(other) == b"and me?"
        eventually(lambda: server.server.request_bytes == 0)


def test_one_client_cannot_fill_the_log(server, caplog, monkeypatch):
    monkeypatch.setattr(rate_limit, "_IN_AN_INTERVAL", 5)
    server.limit(max_per_host=0)
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            with server.connect() as client:
                assert_hung_up(client)
    assert len(caplog.records) <= 15


def test_the_last_requests_are_answered_and_no_further_ones(server, waiting):
    with contextlib.ExitStack() as stack:
        busy, half, idle = (stack.enter_context(server.connect()) for _ in range(3))
        busy.sendall(framed(b"wait") * 2)
        half.sendall(framed(b"whole") + b"\0\0\0\x05ha")
        assert read_frame(half) == b"whole"
        eventually(lambda: len(waiting) == 2)
        drained = server.call(server.server.drain)
        for client in (half, idle):
            assert_hung_up(client)
        busy.sendall(framed(b"too late"))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(server.endpoint, timeout=60)
        assert not server.call(drained.done)
        for number, future in enumerate(waiting):
            server.call(future.set_result, answer(b"last %d" % number))
        assert [read_frame(busy) for _ in range(2)] == [b"last 0", b"last 1"]
        assert_hung_up(busy)
        eventually(lambda: server.call(drained.done))
    assert b"too late" not in server.seen


def test_a_large_last_answer_is_sent_whole(server, waiting, monkeypatch):
    monkeypatch.setattr(net_channel, "MAX_UNSENT", 1 << 20)
    payload = os.urandom(16 << 20)
    server.dispatch = lambda frame, host: answer(payload)
    with server.connect() as client:
        client.sendall(framed(b"x"))
        read_exactly(client, 100)
        drained = server.call(server.server.drain)
        assert read_exactly(client, len(payload) - 96) == payload[96:]
        assert_hung_up(client)
        eventually(lambda: server.call(drained.done))


def test_nobody_there_is_nobody_to_wait_for(server):
    assert server.call(lambda: server.server.drain().done())


def test_an_address_that_connects_too_often_is_held_and_then_hung_up_on():
    rates = ConnectionRates(Windows(3, 1000))
    rates.set("127.0.0.1", 1.0)
    server = Server(rates=rates)
    server.loop.time = lambda: 100.0  # it stands still
    with server.connect() as first, server.connect() as second:
        assert ask(first) == ask(second) == b"hello"
        with server.connect() as third:
            third.sendall(framed(b"hello"))
            assert not is_served(third)
            assert server.call(lambda: len(server.server._held)) == 1
            server.call(rates.set, "127.0.0.1", 100.0)
            assert server.server.connections == 2
            server.call(jump, server.loop, 2)
            assert_hung_up(third)
        with server.connect() as fourth:
            assert ask(fourth) == b"hello"
    server.stop()


def test_what_is_held_is_let_go_at_the_end():
    rates = ConnectionRates(Windows(3, 1000))
    rates.set("127.0.0.1", 0.0)
    server = Server(rates=rates)
    with server.connect() as held:
        eventually(lambda: server.call(lambda: len(server.server._held)) == 1)
        server.stop()
        assert_hung_up(held)


def test_strangers_that_claim_a_large_frame_are_given_no_memory_for_it():
    gate = SimpleNamespace(max_size=512 << 10)
    server, peers = Server(entrance=Entrance(gate=lambda caller: gate)), 40
    try:
        tracemalloc.start()
        with contextlib.ExitStack() as stack:
            for _ in range(peers):
                stack.enter_context(server.connect()).sendall((512 << 10).to_bytes(4, "big") + b"x")
            eventually(lambda: sum(each.is_stuck for each in server.server._channels) == peers)
            held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        server.stop()
    assert held < peers * 3 * SCRATCH_SIZE


@pytest.fixture
def no_collections():
    """What is part of a cycle stays."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collections")
def test_what_was_answered_is_not_kept_however_long_its_connection_is_idle(server):
    """Each idle connection kept its last request."""
    frames = []
    server.dispatch = lambda frame, _: frames.append(weakref.ref(frame)) or answer(b"ok")
    with server.connect() as client:
        assert ask(client, b"x" * (2 * SCRATCH_SIZE)) == b"ok"
        eventually(lambda: frames[0]() is None, what="the request to be forgotten")


@pytest.mark.usefixtures("no_collections")
def test_what_was_refused_is_not_kept(server):
    """Each refused request stayed until a full collection of garbage: ninety megabytes of each of a client's."""
    frames = []

    def refuse(frame, _):
        frames.append(weakref.ref(frame))
        raise RemoteProtocolError("too many")

    server.dispatch = refuse
    with server.connect() as client:
        client.sendall(framed(b"x" * (2 * SCRATCH_SIZE)))
        assert_hung_up(client)
    eventually(lambda: frames[0]() is None, what="the request to be forgotten")


@pytest.mark.usefixtures("no_collections")
def test_half_a_request_is_not_kept(server):
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        with server.connect() as client:
            client.sendall((16 * SCRATCH_SIZE).to_bytes(4, "big") + b"half of a frame")
            eventually(lambda: tracemalloc.get_traced_memory()[0] > before + 16 * SCRATCH_SIZE)
        eventually(lambda: tracemalloc.get_traced_memory()[0] < before + 2 * SCRATCH_SIZE, what="it to be forgotten")
    finally:
        tracemalloc.stop()
