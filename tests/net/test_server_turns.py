"""Work in steps, answers that nobody takes, and segments that the page cache has dropped."""

import itertools
import os
import threading

import pytest
from net.listening import LIMIT, Server, answer, assert_serves, framed, read_frame

from sparklog.log.file_records import FileRecords
from sparklog.net import channel as net_channel
from sparklog.net.answer import Ordered, Waiting
from sparklog.net.limits import Limits
from sparklog.net.page_cache import read_ahead
from sparklog.net.turns import SHARE_S
from sparklog.structs import FileSlice
from sparklog.testing.eventually import eventually

PIPELINED = 50
_A_WHILE_S = 0.0001


@pytest.fixture
def server():
    running = Server(Limits(LIMIT, 2 * PIPELINED, max_answer_memory=1 << 20))
    yield running
    running.stop()


class Steps:
    """A dispatch whose requests are endless steps until they are let go."""

    def __init__(self):
        self.go_on = threading.Event()
        self.begun, self.closed = [], []

    def __call__(self, frame, host):
        name = bytes(frame)
        return self._steps(name) if name.startswith(b"long") else answer(name)

    def _steps(self, name):
        self.begun.append(name)
        try:
            while not self.go_on.wait(_A_WHILE_S):  # or the test's own thread would wait for the interpreter
                yield
        finally:
            self.closed.append(name)
        return answer(name)


def test_a_request_in_steps_holds_up_its_own_connection_and_nobody_else(server):
    steps = server.dispatch = Steps()
    with server.connect() as client:
        client.sendall(framed(b"long 1") + framed(b"short") + framed(b"long 2"))
        eventually(lambda: steps.begun)
        for _ in range(20):
            assert_serves(server)
        assert steps.begun == [b"long 1"], "what comes later on a connection sees what came before"
        assert b"short" not in server.seen
        steps.go_on.set()
        assert [read_frame(client) for _ in range(3)] == [b"long 1", b"short", b"long 2"]


class Later:
    """A dispatch whose requests are answered when they are let: ``p`` have their places then too, ``slow`` take effect
    then, ``wait`` wait for others.
    """

    def __init__(self, loop):
        self._loop = loop
        self.begun, self.places, self.answers = [], [], []

    def __call__(self, frame, host, after=None):
        name = bytes(frame)
        if name.startswith((b"p ", b"slow ", b"wait ", b"look")):
            self.begun.append((name, after is not None))
        if name.startswith((b"slow ", b"wait ")):
            self.answers.append(self._loop.create_future())
            return Waiting(self.answers[-1]) if name.startswith(b"wait ") else self.answers[-1]
        if not name.startswith(b"p "):
            return answer(name)
        self.places.append(None if name.endswith(b"at once") else self._loop.create_future())
        self.answers.append(self._loop.create_future())
        return Ordered(self.answers[-1], self.places[-1])

    def reply(self, number):
        self.answers[number].set_result(answer(b"%d" % number))


def test_what_comes_behind_a_request_that_takes_effect_later_begins_when_it_has(server):
    later = server.dispatch = Later(server.loop)
    with server.connect() as client:
        client.sendall(b"".join(map(framed, (b"p 0", b"p 1", b"look", b"p 2"))))
        eventually(lambda: len(later.begun) == 2)
        assert_serves(server)
        assert later.begun == [(b"p 0", False), (b"p 1", True)]
        for place in later.places:
            server.call(place.set_result, None)
        server.call(later.reply, 1)
        assert_serves(server)
        assert len(later.begun) == 2, "the first has its place and has not taken effect"
        server.call(later.reply, 0)
        eventually(lambda: len(later.begun) == 4)
        assert later.begun[2:] == [(b"look", False), (b"p 2", False)]
        server.call(later.reply, 2)
        assert [read_frame(client) for _ in range(4)] == [b"0", b"1", b"look", b"2"]


def test_a_request_that_has_its_place_at_once_keeps_those_of_its_api_from_nothing(server):
    later = server.dispatch = Later(server.loop)
    with server.connect() as client:
        client.sendall(b"".join(map(framed, (b"p at once", b"p also at once", b"look"))))
        eventually(lambda: len(later.begun) == 2)
        assert_serves(server)
        assert later.begun == [(b"p at once", False), (b"p also at once", False)]
        server.call(later.reply, 1)
        server.call(later.reply, 0)
        assert [read_frame(client) for _ in range(3)] == [b"0", b"1", b"look"]


def test_what_comes_behind_a_request_that_is_answered_later_begins_when_it_is(server):
    later = server.dispatch = Later(server.loop)
    with server.connect() as client:
        client.sendall(b"".join(map(framed, (b"slow 0", b"slow 1", b"look"))))
        eventually(lambda: later.begun)
        assert_serves(server)
        assert later.begun == [(b"slow 0", False)], "also one of its own API waits for it"
        server.call(later.reply, 0)
        eventually(lambda: len(later.begun) == 2)
        assert_serves(server)
        assert later.begun[1:] == [(b"slow 1", False)]
        server.call(later.reply, 1)
        assert [read_frame(client) for _ in range(3)] == [b"0", b"1", b"look"]


def test_a_request_that_waits_for_others_keeps_nothing_waiting(server):
    later = server.dispatch = Later(server.loop)
    with server.connect() as client:
        client.sendall(b"".join(map(framed, (b"wait 0", b"wait 1", b"look"))))
        eventually(lambda: len(later.begun) == 3)
        server.call(later.reply, 1)
        server.call(later.reply, 0)
        assert [read_frame(client) for _ in range(3)] == [b"0", b"1", b"look"]


def test_a_large_answer_is_sent_a_share_at_a_time(server):
    big = bytes(32 << 20)
    clock = itertools.count(step=SHARE_S * 10)  # the time is up after every piece
    server.call(setattr, server.server.turns, "time", lambda: next(clock))
    server.dispatch = lambda frame, host: answer(big if frame == b"big" else bytes(frame))
    unsent = []

    def look():
        unsent.append(max((each._unsent_bytes for each in server.server._channels), default=0))
        server.loop.call_soon(look)

    with server.connect() as client:
        client.sendall(framed(b"big"))
        server.call(look)
        assert_serves(server)
        assert read_frame(client) == big
    sent = [before - after for before, after in itertools.pairwise(unsent)]
    assert max(sent) <= 2 * net_channel._SENT_A_CALL, "one piece, or two where a look comes in between"


def test_the_steps_of_a_closed_connection_are_given_up_and_its_backlog_is_dropped(server):
    steps = server.dispatch = Steps()
    with server.connect() as client:
        client.sendall(framed(b"long 1") + framed(b"long 2"))
        eventually(lambda: steps.begun)
        server.call(lambda: [each.close() for each in list(server.server._channels)])
        assert steps.closed == [b"long 1"]
    assert_serves(server)
    assert steps.begun == [b"long 1"]


def test_steps_that_fail_close_the_connection(server):
    def failing():
        yield
        raise ZeroDivisionError

    server.dispatch = lambda frame, host: failing() if frame == b"fail" else answer(bytes(frame))
    with server.connect() as client:
        client.sendall(framed(b"fail"))
        assert client.recv(1) == b""
    assert_serves(server)


def test_steps_may_come_to_something_that_is_awaited(server):
    later = server.future()

    def steps():
        yield
        return later

    server.dispatch = lambda frame, host: steps() if frame == b"later" else answer(bytes(frame))
    with server.connect() as client:
        client.sendall(framed(b"later") + framed(b"next"))
        eventually(lambda: b"later" in server.seen)
        assert_serves(server)
        assert b"next" not in server.seen
        server.call(later.set_result, answer(b"at last"))
        assert [read_frame(client), read_frame(client)] == [b"at last", b"next"]


def test_answers_that_nobody_takes_fill_no_more_memory_than_allowed(server):
    big = bytes(256 << 10)
    waiting = server.future()
    server.dispatch = lambda frame, host: (
        Waiting(waiting) if frame == b"wait" else answer(big) if frame == b"big" else answer(bytes(frame))
    )
    clients = [server.connect() for _ in range(8)]
    sockets = [each.__enter__() for each in clients]
    for each in sockets:  # behind an answer that is yet to come, so that no socket's buffer takes them
        each.sendall(framed(b"wait") + framed(b"big") * PIPELINED)
    eventually(lambda: server.server.answer_bytes >= 1 << 20)
    assert_serves(server)
    most = (1 << 20) + len(sockets) * (len(big) + 4)
    assert server.server.answer_bytes <= most
    assert sum(seen == b"big" for seen in server.seen) <= most // len(big)
    server.call(waiting.set_result, answer(b"go"))
    for each in sockets:
        assert read_frame(each) == b"go"
        for _ in range(PIPELINED):
            assert len(read_frame(each)) == len(big)
    eventually(lambda: server.server.answer_bytes == 0)
    for each in clients:
        each.__exit__(None, None, None)


def test_the_memory_of_a_closed_connections_answers_is_given_back(server):
    server.dispatch = lambda frame, host: answer(bytes(1 << 20))
    with server.connect() as client:
        client.sendall(framed(b"x") * PIPELINED)
        eventually(lambda: server.server.answer_bytes > 0)
    eventually(lambda: server.server.answer_bytes == 0 and server.server.connections == 0)


def test_a_segment_that_is_not_in_memory_is_read_by_a_thread(server, tmp_path, monkeypatch):
    content = os.urandom(3 << 20)
    records = FileRecords(tmp_path / "0.log", create=True)
    records.append(memoryview(content))
    cached, threads = set(), []

    def is_cached(piece):
        return piece.position in cached

    def reading(piece):
        threads.append(threading.current_thread())
        read_ahead(piece)

    monkeypatch.setattr(net_channel, "is_cached", is_cached)
    monkeypatch.setattr(net_channel, "read_ahead", reading)
    server.dispatch = lambda frame, host: (
        [(len(content) + 4).to_bytes(4, "big"), b"head", FileSlice(records, 0, len(content))]
        if frame == b"fetch"
        else answer(bytes(frame))
    )
    with server.connect() as client:
        client.sendall(framed(b"fetch") + framed(b"after it"))
        assert read_frame(client) == b"head" + content
        assert read_frame(client) == b"after it"
    assert len(threads) == 3
    assert threading.main_thread() not in threads
    assert server._thread not in threads


def test_answers_behind_a_segment_that_is_read_count_as_memory(server, tmp_path, monkeypatch):
    records = FileRecords(tmp_path / "0.log", create=True)
    records.append(memoryview(bytes(64 << 10)))
    go_on = threading.Event()

    def reading(piece):
        assert go_on.wait(60)
        read_ahead(piece)

    monkeypatch.setattr(net_channel, "is_cached", lambda piece: go_on.is_set())
    monkeypatch.setattr(net_channel, "read_ahead", reading)
    server.dispatch = lambda frame, host: (
        [(64 << 10).to_bytes(4, "big"), FileSlice(records, 0, 64 << 10)] if frame == b"fetch" else answer(bytes(frame))
    )
    with server.connect() as client:
        client.sendall(framed(b"fetch"))
        eventually(lambda: b"fetch" in server.seen)
        client.sendall(framed(bytes(300 << 10)))
        eventually(lambda: server.server.answer_bytes >= 300 << 10)
        go_on.set()
        assert [len(read_frame(client)) for _ in range(2)] == [64 << 10, 300 << 10]
    eventually(lambda: server.server.answer_bytes == 0)


def test_a_small_slice_that_is_not_in_memory_is_sent_after_it_was_read(server, tmp_path, monkeypatch):
    records = FileRecords(tmp_path / "0.log", create=True)
    records.append(memoryview(b"0123456789"))
    monkeypatch.setattr(net_channel, "read_if_cached", lambda piece: None)
    monkeypatch.setattr(net_channel, "is_cached", lambda piece: False)
    server.dispatch = lambda frame, host: [(4).to_bytes(4, "big"), FileSlice(records, 3, 4)]
    with server.connect() as client:
        client.sendall(framed(b"x") * 3)
        assert [read_frame(client) for _ in range(3)] == [b"3456"] * 3
