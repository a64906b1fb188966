"""A connection to a broker whose answers can be lost."""

import contextlib
import math
import socket
import struct
import threading

HOST = "127.0.0.1"
_HEADER = struct.Struct(">hhi")


class Proxy:
    """Stands before a broker of this machine; ``mute`` keeps the broker's answers back for good, ``lose_answers`` hangs
    up on the client instead of some, ``refuse`` hangs up on all and refuses connections until ``accept_again``.

    Where the broker names its address, it puts its own, so that clients stay with it.
    """

    def __init__(self, port, own_port=0):
        self.mute = threading.Event()
        self.lost = 0
        """Answers in whose place it has hung up."""
        self._losing = None
        self._seen = 0
        self._every = 1
        self._at_most = 0
        self._broker = port
        self._server = socket.create_server((HOST, own_port))
        self.port = self._server.getsockname()[1]
        self.address = f"{HOST}:{self.port}"
        self._names = tuple(HOST.encode() + struct.pack(">i", each) for each in (port, self.port))
        self._sockets = [self._server]
        self._threads = []
        self._run(self._accept)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.refuse()

    def refuse(self):
        """As if no process were there."""
        _hang_up(*self._sockets)
        for thread in self._threads:
            thread.join(60)
        for each in self._sockets:
            each.close()

    def accept_again(self):
        """At the same address."""
        self._server = socket.create_server((HOST, self.port))
        self._sockets, self._threads = [self._server], []
        self._run(self._accept)

    def lose_answers(self, api, *, every, at_most=math.inf):
        """Hang up in the place of so many answers' last one, from now on, until so many are lost."""
        self._losing, self._seen, self._every, self._at_most = api, 0, every, self.lost + at_most

    def _run(self, pump, *sockets):
        thread = threading.Thread(target=pump, args=sockets, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._sockets.append(client)
                try:
                    broker = socket.create_connection((HOST, self._broker))
                except OSError:
                    _hang_up(client)
                    continue
                self._sockets.append(broker)
                asked = {}
                self._run(self._requests, client, broker, asked)
                self._run(self._answers, client, broker, asked)

    def _requests(self, client, broker, asked):
        with _together(client, broker):
            for frame in _frames(client):
                api, _, number = _HEADER.unpack_from(frame, 4)
                asked[number] = api
                broker.sendall(frame)

    def _answers(self, client, broker, asked):
        with _together(client, broker):
            for frame in _frames(broker):
                (number,) = struct.unpack_from(">i", frame, 4)
                if self._is_lost(asked.pop(number)):
                    return
                if not self.mute.is_set():
                    client.sendall(frame[:4] + frame[4:].replace(*self._names))

    def _is_lost(self, api):
        if api != self._losing or self.lost >= self._at_most:
            return False
        self._seen += 1
        if self._seen % self._every:
            return False
        self.lost += 1
        return True


def _frames(connection):
    """What comes, whole frames with their lengths."""
    with connection.makefile("rb") as file:
        while len(head := file.read(4)) == 4:
            (size,) = struct.unpack(">i", head)
            if len(body := file.read(size)) < size:
                return
            yield head + body


@contextlib.contextmanager
def _together(*sockets):
    """Whichever way ends first ends both."""
    with contextlib.suppress(OSError):
        yield
    _hang_up(*sockets)


def _hang_up(*sockets):
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
