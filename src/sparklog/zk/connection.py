"""The way to an ensemble: which of its servers a client tries, and for how long.

Invariants: a server that does not answer costs its share of the session's time, so that another is found before the
session ends; the one that was lost is tried last; all are tried again every second, however long they have been away.
Source: ZooKeeper 3.9, ``StaticHostProvider`` and ``ClientCnxn``, which divide the time and go round in the same way.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler

from sparklog.config.zookeeper_connect import ConnectString
from sparklog.structs import Endpoint

_LONGEST_PAUSE_S = 1.0
"""Between two rounds of attempts to connect; kazoo's own would double up to an hour."""


class _BoundedConnects(SequentialThreadingHandler):  # type: ignore[misc]
    """Waits for a TCP connection no longer than ``seconds``; kazoo would wait for as long as a session lasts."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def create_connection(self, *args: object, timeout: float, **options: object) -> socket.socket:
        found: socket.socket = super().create_connection(*args, timeout=min(timeout, self._seconds), **options)
        return found


def kazoo_client(
    members: Sequence[Endpoint], session_timeout: float, session: tuple[int, bytes] | None = None
) -> KazooClient:
    """A client that tries the members in this order, round and round; ``session`` is one to go on with."""
    return KazooClient(
        hosts=ConnectString(tuple(members), "").hosts,
        timeout=session_timeout,
        client_id=session,
        randomize_hosts=False,
        handler=_BoundedConnects(session_timeout / len(members)),
        connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": _LONGEST_PAUSE_S},
    )
