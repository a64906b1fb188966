"""How many connections an HTTP server has, and for how long one may be silent."""

import asyncio
from functools import partial

import pytest

from sparklog.net.http_connections import HANDSHAKE_S, STALLED_S, HttpConnections


class Inner(asyncio.Protocol):
    def __init__(self):
        self.heard = []

    def connection_made(self, transport):
        self.heard.append("made")

    def data_received(self, data):
        self.heard.append(data)

    def connection_lost(self, exc):
        self.heard.append("lost")

    def pause_writing(self):
        self.heard.append("paused")

    def resume_writing(self):
        self.heard.append("resumed")


class Transport:
    def __init__(self, address):
        self.address = address
        self.is_aborted = False
        self.unsent = 0

    def get_write_buffer_size(self):
        return self.unsent

    def get_extra_info(self, name):
        return (self.address, 1234) if name == "peername" else None

    def abort(self):
        self.is_aborted = True


class Timers:
    """In the place of the loop's: ``ring`` calls those that were not cancelled."""

    def __init__(self, loop, patch):
        self.waiting = []
        patch.setattr(loop, "call_later", self.call_later)

    def call_later(self, seconds, call, *args):
        assert seconds in (HANDSHAKE_S, STALLED_S)
        self.waiting.append(partial(call, *args))
        return self

    def cancel(self):
        self.waiting.pop()

    def ring(self):
        for call in [self.waiting.pop() for _ in range(len(self.waiting))]:
            call()


def played(play, monkeypatch, most=3, of_address=2, **more):
    async def main():
        inners = []

        def make():
            inners.append(Inner())
            return inners[-1]

        connections = HttpConnections(make, most, of_address, **more)

        def connect(address):
            protocol, transport = connections(), Transport(address)
            protocol.connection_made(transport)
            return protocol, transport, inners[-1]

        play(connect, Timers(asyncio.get_running_loop(), monkeypatch))

    asyncio.run(main())


def test_one_beyond_the_bound_is_aborted_and_heard_of_by_nobody(monkeypatch):
    def play(connect, _):
        first = connect("a")
        assert not any(connect(each)[1].is_aborted for each in "ab")
        protocol, transport, inner = connect("c")
        protocol.data_received(b"GET / HTTP/1.1\r\n\r\n")
        protocol.connection_lost(None)
        assert (transport.is_aborted, inner.heard) == (True, [])
        first[0].connection_lost(None)
        assert first[2].heard == ["made", "lost"]
        assert not connect("c")[1].is_aborted

    played(play, monkeypatch)


def test_one_address_does_not_take_the_place_of_all(monkeypatch):
    def play(connect, _):
        assert [connect("a")[1].is_aborted for _ in range(3)] == [False, False, True]
        assert not connect("b")[1].is_aborted

    played(play, monkeypatch)


@pytest.mark.parametrize("near", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_a_place_is_kept_for_a_client_on_this_machine(monkeypatch, near):
    def play(connect, _):
        assert [connect(each)[1].is_aborted for each in ("10.0.0.1", "fe80::1%eth0", "")] == [False, False, True]
        assert [connect(near)[1].is_aborted for _ in range(2)] == [False, True]

    played(play, monkeypatch, kept_for_loopback=1)


@pytest.mark.parametrize("said", [[], [b"GET / HTTP/1.1\r\n"], [b"GET / HTTP/1.1\r\n\r", b"x\n"]])
def test_one_that_does_not_say_what_it_wants_is_aborted(monkeypatch, said):
    def play(connect, timers):
        protocol, transport, inner = connect("a")
        for each in said:
            protocol.data_received(each)
        timers.ring()
        assert (transport.is_aborted, inner.heard) == (True, ["made", *said])

    played(play, monkeypatch)


@pytest.mark.parametrize("said", [[b"GET / HTTP/1.1\r\n\r\n"], [b"G", b"ET / HTTP/1.1\r", b"\n\r", b"\nmore"]])
def test_one_that_has_said_it_may_stay(monkeypatch, said):
    def play(connect, timers):
        protocol, transport, _ = connect("a")
        for each in said:
            protocol.data_received(each)
        timers.ring()
        assert not transport.is_aborted

    played(play, monkeypatch)


def test_one_that_takes_nothing_of_an_answer_is_aborted(monkeypatch):
    def play(connect, timers):
        protocol, transport, inner = connect("a")
        protocol.data_received(b"GET / HTTP/1.1\r\n\r\n")
        transport.unsent = 1000
        protocol.pause_writing()
        transport.unsent = 999
        timers.ring()
        assert not transport.is_aborted
        timers.ring()
        assert transport.is_aborted
        assert inner.heard[2:] == ["paused"]

    played(play, monkeypatch)


def test_one_that_takes_it_slowly_is_given_all(monkeypatch):
    def play(connect, timers):
        protocol, transport, inner = connect("a")
        protocol.data_received(b"GET / HTTP/1.1\r\n\r\n")
        transport.unsent = 3
        protocol.pause_writing()
        while transport.unsent:
            transport.unsent -= 1
            timers.ring()
        protocol.resume_writing()
        assert (timers.waiting, transport.is_aborted) == ([], False)
        assert inner.heard[2:] == ["paused", "resumed"]

    played(play, monkeypatch)
