"""Five batches in flight are written and their answers lost, then the broker starts again: each is there once."""

import contextlib
import socket
import struct
import threading

import pytest
from integration import wire

from sparklog.client import Producer
from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

HOST = "127.0.0.1"
TP = TopicPartition("t", 0)
ACKNOWLEDGED = 1
LOST = 5


class Proxy:
    """Stands before a broker of this machine; ``mute`` keeps the broker's answers back for good.

    Where the broker names its address, it puts its own, so that clients stay with it.
    """

    def __init__(self, port):
        self.mute = threading.Event()
        self._broker = port
        self._server = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._server.getsockname()[1]}"
        self._names = tuple(HOST.encode() + struct.pack(">i", each) for each in (port, self._server.getsockname()[1]))
        self._sockets = [self._server]
        self._threads = []
        self._run(self._accept)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _hang_up(*self._sockets)
        for thread in self._threads:
            thread.join(60)
        for each in self._sockets:
            each.close()

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
                self._run(self._requests, client, broker)
                self._run(self._answers, client, broker)

    def _requests(self, client, broker):
        with _together(client, broker):
            while data := client.recv(1 << 16):
                broker.sendall(data)

    def _answers(self, client, broker):
        with _together(client, broker), broker.makefile("rb") as frames:
            while head := frames.read(4):
                body = frames.read(*struct.unpack(">i", head))
                if not self.mute.is_set():
                    client.sendall(head + body.replace(*self._names))


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


@pytest.mark.parametrize("end", [BrokerHarness.stop, BrokerHarness.kill], ids=["clean stop", "killed"])
def test_each_is_there_once_and_all_are_acknowledged(tmp_path, chroot, end):
    with BrokerHarness(tmp_path, chroot) as broker, Proxy(broker.spec.port) as proxy:
        with wire.connect(broker.address) as connection:
            assert wire.create_topic(connection, TP.topic)[0] is ErrorCode.NONE
        values = [b"%d" % number for number in range(ACKNOWLEDGED + LOST + 1)]
        with Producer(bootstrap_servers=proxy.address, batch_size=1, linger_ms=0) as producer:
            producer.send(TP.topic, values[0]).result(60)
            proxy.mute.set()
            futures = [producer.send(TP.topic, value) for value in values[1:-1]]
            with wire.connect(broker.address) as connection:
                eventually(
                    lambda: wire.list_offset(connection, TP, -1)[1] == ACKNOWLEDGED + LOST, 60, "all to be written"
                )
            assert not any(future.done() for future in futures)
            end(broker)
            proxy.mute.clear()
            broker.start()
            futures.append(producer.send(TP.topic, values[-1]))
            assert [future.result(60).offset for future in futures] == [1, 2, 3, 4, 5, 6]
        with wire.connect(broker.address) as connection:
            assert wire.read_all(connection, TP) == values
