"""A line to ZooKeeper that breaks where a test says."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

_INT = 4
Match = Callable[[bytes], bool]


class _Rule(NamedTuple):
    match: Match
    answered: bool


class CuttingProxy:
    """Stands before the ZooKeeper at ``target`` and hands on whole frames, on threads of its own.

    ``target`` is ``host:port`` or ``host:port/tree``, and ``connect_string`` has that tree too.
    ``cut`` chooses one request: the connection ends before it arrives, or once it is carried out and before its answer
    is back. While ``down`` every connection is refused.
    """

    def __init__(self, target: str) -> None:
        server, slash, tree = target.partition("/")
        host, _, port = server.rpartition(":")
        self._target = (host, int(port))
        self._lock = threading.RLock()  # a rule may break the line as well
        self._rules: list[_Rule] = []
        self._sockets: set[socket.socket] = set()
        self._down = False
        self.cuts = 0
        """How many connections a rule has ended."""
        self.refused = 0
        """How many came while it was down."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.connect_string = f"127.0.0.1:{self._listener.getsockname()[1]}{slash}{tree}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self.hang_up()

    def cut(self, match: bytes | Match, *, answered: bool) -> None:
        """End the connection at the next request that holds ``match``, ``answered`` by ZooKeeper or not at all.

        Rules are used up in their order, one request each.
        """
        found: Match = match if callable(match) else lambda frame: match in frame
        with self._lock:
            self._rules.append(_Rule(found, answered))

    def hang_up(self) -> None:
        """End every connection."""
        with self._lock:
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def set_down(self, down: bool) -> None:
        """Let no client through, or all again."""
        self._down = down
        if down:
            self.hang_up()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._down:
                self.refused += 1
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            with self._lock:
                self._sockets |= {client, server}
            doomed: set[bytes] = set()
            back = threading.Thread(target=self._hand_back, args=(server, client, doomed), daemon=True)
            back.start()
            try:
                self._hand_on(client, server, doomed)
            finally:
                for each in (client, server):
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
                back.join()
                with self._lock:
                    self._sockets -= {client, server}

    def _hand_on(self, client: socket.socket, server: socket.socket, doomed: set[bytes]) -> None:
        """Requests; the first frame of a connection opens the session."""
        first = True
        while (frame := _read(client)) is not None:
            rule = None if first else self._rule_for(frame)
            first = False
            if rule is not None and not rule.answered:
                return
            if rule is not None:
                doomed.add(frame[:_INT])
            server.sendall(len(frame).to_bytes(_INT, "big") + frame)

    def _hand_back(self, server: socket.socket, client: socket.socket, doomed: set[bytes]) -> None:
        """Answers, until one that is to be lost."""
        with contextlib.suppress(OSError):
            while (frame := _read(server)) is not None:
                if frame[:_INT] in doomed:
                    break
                client.sendall(len(frame).to_bytes(_INT, "big") + frame)
        for each in (client, server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _rule_for(self, frame: bytes) -> _Rule | None:
        with self._lock:
            if not self._rules or not self._rules[0].match(frame):
                return None
            self.cuts += 1
            return self._rules.pop(0)


def _read(sock: socket.socket) -> bytes | None:
    """The next frame, None at the end."""
    head = _exactly(sock, _INT)
    return None if head is None else _exactly(sock, int.from_bytes(head, "big"))


def _exactly(sock: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            return None
        data += more
    return data
