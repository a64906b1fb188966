"""The listening end against clients of every kind of manners."""

import contextlib
import http.client
import logging
import math
import os
import socket
import ssl
from collections import deque
from types import SimpleNamespace

import pytest
from net.listening import (
    IN_FLIGHT,
    LIMIT,
    Server,
    answer,
    assert_hung_up,
    assert_serves,
    framed,
    read_exactly,
    read_frame,
)

from sparklog import rate_limit
from sparklog.errors import RemoteProtocolError
from sparklog.log.file_records import FileRecords
from sparklog.net import channel as net_channel
from sparklog.net import server as net_server
from sparklog.net.answer import Waiting
from sparklog.net.limits import Limits
from sparklog.net.server import SocketServer
from sparklog.structs import FileSlice
from sparklog.testing.eventually import eventually


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(rate_limit, "_INTERVAL_S", math.inf)  # what it says once it says once on a slow machine too
    running = Server()
    yield running
    running.stop()


def test_answers_come_in_the_order_of_the_requests_whatever_is_done_first(server):
    futures = {name: server.future() for name in (b"1", b"3", b"4")}
    answers = {name: Waiting(future) for name, future in futures.items()}
    server.dispatch = lambda frame, host: answers.get(bytes(frame), answer(b"at once: " + bytes(frame)))
    with server.connect() as client:
        client.sendall(b"".join(framed(b"%d" % number) for number in range(1, 5)))
        eventually(lambda: len(server.seen) == 4)
        for name in (b"4", b"3"):
            server.call(futures[name].set_result, answer(b"later: " + name))
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(60)
        server.call(futures[b"1"].set_result, answer(b"last: 1"))
        assert [read_frame(client) for _ in range(4)] == [b"last: 1", b"at once: 2", b"later: 3", b"later: 4"]


def test_a_request_without_an_answer_does_not_hold_up_the_next(server):
    waiting = server.future()
    answers = {b"no": None, b"later no": Waiting(waiting), b"yes": answer(b"yes!")}
    server.dispatch = lambda frame, host: answers[bytes(frame)]
    with server.connect() as client:
        client.sendall(framed(b"no") + framed(b"later no") + framed(b"yes"))
        eventually(lambda: len(server.seen) == 3)
        server.call(waiting.set_result, None)
        assert read_frame(client) == b"yes!"


def test_no_more_requests_are_in_hand_than_allowed(server):
    futures = deque()

    def later(frame, host):
        futures.append(server.loop.create_future())
        return Waiting(futures[-1])

    server.dispatch = later
    total = 50
    with server.connect() as client:
        client.sendall(b"".join(framed(b"%d" % number) for number in range(total)))
        for number in range(total):
            eventually(lambda n=number: len(server.seen) == min(n + IN_FLIGHT, total))
            server.call(futures.popleft().set_result, answer(b"answer %d" % number))
            assert read_frame(client) == b"answer %d" % number
    assert not futures


def test_a_client_that_does_not_read_is_read_no_more(server, monkeypatch):
    monkeypatch.setattr(net_channel, "MAX_UNSENT", 4 << 20)
    payload = os.urandom(1 << 20)
    server.dispatch = lambda frame, host: answer(payload) if len(frame) < 10 else answer(bytes(frame))
    total = 100
    with server.connect() as client:
        client.sendall(b"".join(framed(b"%d" % number) for number in range(total)))
        eventually(lambda: len(server.seen) >= 5)
        assert_serves(server)
        served = sum(len(each) < 10 for each in server.seen)
        assert served < 40, "the kernel's buffers and 4 MB more are all that may be in the way"
        for _ in range(total):
            assert read_frame(client) == payload


def test_a_client_that_hangs_up_leaves_nothing_behind(server):
    waiting = server.future()
    server.dispatch = lambda frame, host: waiting if frame == b"wait" else answer(bytes(frame))
    with server.connect() as client:
        client.sendall(framed(b"wait"))
        eventually(lambda: server.seen)
    eventually(lambda: server.server.connections == 0)
    assert waiting.cancelled()
    assert_serves(server)


@pytest.mark.parametrize("sent", [b"\0", b"\0\0\0", b"\0\0\0\x0ahalf", b"\0\x0f\xff\xff" + b"x" * 100_000])
def test_a_half_sent_request_is_dropped_with_its_connection(server, sent, caplog):
    with caplog.at_level(logging.WARNING), server.connect() as client:
        client.sendall(framed(b"whole") + sent)
        assert read_frame(client) == b"whole"
        client.shutdown(socket.SHUT_WR)
        assert_hung_up(client)
    assert "in the middle of a request" in caplog.text
    assert list(server.seen) == [b"whole"]
    assert_serves(server)


@pytest.mark.parametrize("sent", [b"\xff\xff\xff\xff", (LIMIT + 1).to_bytes(4, "big")])
def test_what_is_no_request_ends_the_connection(server, sent, caplog):
    with caplog.at_level(logging.WARNING), server.connect() as client:
        client.sendall(sent)
        assert_hung_up(client)
    assert "a frame claims" in caplog.text
    assert_serves(server)


def test_http_gets_an_answer_in_http_and_one_line_in_the_log(server, caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            connection = http.client.HTTPConnection(server.endpoint.host, server.endpoint.port, timeout=60)
            connection.request("GET", "/")
            answer = connection.getresponse()
            assert answer.status == 400
            assert b"Use a Kafka client" in answer.read()
            connection.close()
    eventually(lambda: server.server.connections == 0)
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "it speaks HTTP; this listener speaks Kafka's protocol"
    ]
    assert_serves(server)


def test_tls_gets_an_alert_and_one_line_in_the_log(server, caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with server.connect() as client, pytest.raises(ssl.SSLError, match="handshake failure"):
                ssl.create_default_context().wrap_socket(client, server_hostname="localhost")
    eventually(lambda: server.server.connections == 0)
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "it speaks TLS, and this listener does not: set security.protocol=PLAINTEXT"
    ]
    assert_serves(server)


def test_a_request_as_large_as_the_limit_is_taken(server):
    server.dispatch = lambda frame, host: answer(len(frame).to_bytes(4, "big") + bytes(frame[-3:]))
    payload = os.urandom(LIMIT)
    with server.connect() as client:
        client.sendall(framed(payload))
        assert read_frame(client) == LIMIT.to_bytes(4, "big") + payload[-3:]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("error", "logged"),
    [(RemoteProtocolError("what a request"), "what a request"), (ValueError("a bug"), "a request from 127.0.0.1")],
)
def test_a_request_that_fails_costs_its_own_connection_only(server, later, error, logged, caplog):
    def fail(frame, host):
        if frame != b"bad":
            return answer(bytes(frame))
        if not later:
            raise error
        failed = server.loop.create_future()
        failed.set_exception(error)
        return failed

    server.dispatch = fail
    with caplog.at_level(logging.WARNING), server.connect() as client, server.connect() as other:
        other.sendall(framed(b"good"))
        client.sendall(framed(b"bad") + framed(b"good"))
        assert_hung_up(client)
        assert read_frame(other) == b"good"
        other.sendall(framed(b"still good"))
        assert read_frame(other) == b"still good"
    assert logged in caplog.text


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(os.urandom(3 << 20))
    return FileRecords(path)


SIZES = (0, 1, 100, (16 << 10) - 1, 16 << 10, (16 << 10) + 1, 65536, 1_000_003)


@pytest.mark.parametrize("slow", [False, True])
def test_pieces_of_files_arrive_whole_between_bytes(server, file, slow, monkeypatch):
    content = file.path.read_bytes()
    pieces = []
    for number, size in enumerate(SIZES):
        pieces += [b"<%d>" % size, FileSlice(file, number * 7, size), memoryview(b"more"), b""]
    pieces += [FileSlice(file, 11, size) for size in SIZES]
    expected = b"".join(
        content[each.position : each.position + each.size] if isinstance(each, FileSlice) else bytes(each)
        for each in pieces
    )
    if slow:  # a socket that takes a little at a time, so that everything is sent in parts
        accept = net_channel.ServerChannel.__init__

        def with_small_buffer(channel, owner, sock, *who):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            accept(channel, owner, sock, *who)

        monkeypatch.setattr(net_channel.ServerChannel, "__init__", with_small_buffer)
    server.dispatch = lambda frame, host: [len(expected).to_bytes(4, "big"), *pieces]
    with server.connect() as client:
        client.sendall(framed(b"a") + framed(b"b"))
        assert read_frame(client) == expected
        assert read_frame(client) == expected


def test_a_file_is_sent_though_its_name_is_gone(server, file):
    content = file.path.read_bytes()
    server.dispatch = lambda frame, host: [len(content).to_bytes(4, "big"), FileSlice(file, 0, len(content))]
    with server.connect() as client:
        client.sendall(framed(b"x"))
        read_exactly(client, 4)
        file.path.unlink()
        assert read_exactly(client, len(content)) == content


@pytest.mark.parametrize("size", [100, 200_000])
def test_a_file_that_was_cut_meanwhile_ends_the_connection_rather_than_shift_what_follows(server, file, size, caplog):
    piece = FileSlice(file, (3 << 20) - 50, size)
    server.dispatch = lambda frame, host: [size.to_bytes(4, "big"), piece]
    with caplog.at_level(logging.WARNING), server.connect() as client:
        client.sendall(framed(b"a") + framed(b"b"))
        received = b"".join(iter(lambda: client.recv(4096), b""))
    assert len(received) <= 4 + 50
    assert "was cut" in caplog.text
    assert_serves_bytes(server)


def assert_serves_bytes(server):
    server.dispatch = lambda frame, host: answer(bytes(frame))
    assert_serves(server)


def test_the_clients_address_is_told(server):
    server.dispatch = lambda frame, host: answer(host.host.encode())
    with server.connect() as client:
        client.sendall(framed(b"who am I?"))
        assert read_frame(client) == b"127.0.0.1"


def test_a_stopped_server_hangs_up_on_everyone(server):
    waiting = server.future()
    server.dispatch = lambda frame, host: waiting
    with server.connect() as idle, server.connect() as busy:
        busy.sendall(framed(b"wait"))
        eventually(lambda: server.seen)
        server.call(server.server.close)
        assert_hung_up(idle)
        assert_hung_up(busy)
    assert waiting.cancelled()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(server.endpoint, timeout=60)


def test_who_is_connected_goes_on_when_nobody_else_may(server):
    with server.connect() as client:
        client.sendall(framed(b"one"))
        assert read_frame(client) == b"one"
        server.call(server.server.stop_accepting)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(server.endpoint, timeout=60)
        client.sendall(framed(b"two"))
        assert read_frame(client) == b"two"


def test_a_port_in_use_is_refused(server):
    with pytest.raises(OSError, match="in use"):
        SocketServer(server.loop, server.dispatch, Limits(1, 1)).bind(*server.endpoint)


def test_a_client_of_ipv4_has_its_own_address_on_a_port_for_all_addresses():
    """So that what is said of its address, by a list, a limit or a quota, is said of it."""
    running = Server(at="::")
    running.dispatch = lambda _, caller: answer(caller.host.encode())
    try:
        with socket.create_connection(("127.0.0.1", running.endpoint.port), timeout=60) as client:
            client.sendall(framed(b"hello"))
            assert read_frame(client) == b"127.0.0.1"
    finally:
        running.stop()


@pytest.mark.parametrize("is_refused", [False, True])
def test_what_is_spent_on_a_connection_is_told_when_it_ends(is_refused):
    """Its last turn among it: the one in which it may be closed."""
    told = {}

    def dispatch(frame, caller):
        if is_refused:
            raise RemoteProtocolError("no such request")
        return answer(bytes(frame))

    accounts = SimpleNamespace(
        begin=lambda caller: told.update(begun=caller.busy_s), settle=lambda caller: told.update(settled=caller.busy_s)
    )
    running = Server(accounts=accounts)
    running.dispatch = dispatch
    try:
        with running.connect() as client:
            client.sendall(framed(b"hello"))
            if is_refused:
                assert_hung_up(client)
            else:
                assert read_frame(client) == b"hello"
        eventually(lambda: told.get("settled", 0.0) > 0.0)
        assert told["begun"] == 0.0
    finally:
        running.stop()


def test_many_clients_at_once(server):
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(200)]
        for number, client in enumerate(clients):
            client.sendall(framed(b"client %d" % number))
        for number, client in enumerate(clients):
            assert read_frame(client) == b"client %d" % number
        assert server.server.connections == 200
    eventually(lambda: server.server.connections == 0)


@pytest.mark.parametrize(("crowd", "at_once"), [(0, 1), (1, 20)])
def test_of_a_crowd_one_is_let_in_at_a_time_and_all_come_in(server, monkeypatch, crowd, at_once):
    """No connection waits for its turn: that is a crowd of none, and not one of one."""
    monkeypatch.setattr(net_server, "_CROWD", crowd)
    let_in = []
    accept = SocketServer._accept_some

    def counted(self, door, most):
        before = self.connections
        accept(self, door, most)
        let_in.append(self.connections - before)

    monkeypatch.setattr(SocketServer, "_accept_some", counted)
    with contextlib.ExitStack() as stack:
        clients = []

        def connect():
            clients.extend(stack.enter_context(socket.create_connection(server.endpoint, 10)) for _ in range(20))

        server.call(connect)  # on the loop, which therefore sees them together
        eventually(lambda: server.server.connections == 20)
        for client in clients:
            client.sendall(framed(b"here"))
            assert read_frame(client) == b"here"
    assert set(let_in) == {at_once}
