"""A listening end on a thread of its own, and what its clients do."""

import asyncio
import contextlib
import socket
import threading
from collections import deque
from dataclasses import replace

from sparklog.net.limits import Limits
from sparklog.net.server import SocketServer

LIMIT = 1 << 20
IMPOSSIBLE = (("x" * 64, 9092), ("a..b", 9092), ("127.0.0.1\0", 1), ("127.0.0.1", 70000), ("127.0.0.1", -1))
"""Addresses that cannot be any, and that a broker may advertise all the same."""
IN_FLIGHT = 4


def framed(payload):
    return len(payload).to_bytes(4, "big") + payload


def answer(payload):
    return [len(payload).to_bytes(4, "big"), payload]


class Server:
    """A SocketServer on a loop and thread of its own; ``dispatch`` is the test's."""

    def __init__(self, limits=None, entrance=None, rates=None, at="127.0.0.1", accounts=None):
        self.dispatch = lambda frame, host: answer(bytes(frame))
        self.seen = deque()
        self.callers = []
        self.loop = asyncio.new_event_loop()
        self.server = SocketServer(self.loop, self._dispatch, limits or Limits(LIMIT, IN_FLIGHT), rates, accounts)
        self.endpoint = self.server.bind(at, 0, entrance)
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.call(self.server.start)

    def _dispatch(self, frame, host, *after):
        self.seen.append(bytes(frame[:40]))
        return self.dispatch(frame, host, *after)

    def call(self, function, *args):
        """Run on the loop and wait for it."""

        async def run():
            return function(*args)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(60)

    def limit(self, **changed):
        """Change some limits."""
        self.call(setattr, self.server, "limits", replace(self.server.limits, **changed))

    def future(self):
        return self.call(self.loop.create_future)

    @contextlib.contextmanager
    def connect(self):
        with socket.create_connection(self.endpoint, timeout=60) as client:
            yield client

    def stop(self):
        self.call(self.server.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def read_exactly(client, size):
    data = bytearray()
    while len(data) < size:
        piece = client.recv(min(size - len(data), 1 << 16))
        assert piece, f"the server hung up after {len(data)} of {size} bytes"
        data += piece
    return bytes(data)


def read_frame(client):
    return read_exactly(client, int.from_bytes(read_exactly(client, 4), "big"))


def assert_hung_up(client):
    """The server has closed the connection, with a FIN or a reset."""
    with contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""


def assert_serves(server):
    with server.connect() as other:
        other.sendall(framed(b"are you there?"))
        assert read_frame(other) == b"are you there?"
