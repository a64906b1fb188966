"""A client that asks for ApiVersions every 5 ms: ``python -m benchmarks.pinger HOST PORT``, until its input ends.

Then it prints the longest wait for an answer and the 99th percentile, in milliseconds, as JSON. It says ``ready``
first. An answer that comes late delays the next question, so a stall counts once.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

_EVERY_S = 0.005
_QUESTION = b"\0\0\0\x0e\0\x12\0\0\0\0\0\x01\0\x04ping"


def _ask(connection: socket.socket) -> float:
    began = time.perf_counter()
    connection.sendall(_QUESTION)
    left = 4 + int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big") - 4
    while left:
        left -= len(connection.recv(left))
    return time.perf_counter() - began


def main(host: str, port: int) -> None:
    waits: list[float] = []
    with socket.create_connection((host, port), timeout=120) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _ask(connection)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not select.select([sys.stdin], [], [], _EVERY_S)[0]:
            waits.append(_ask(connection) * 1000)
    waits.sort()
    sys.stdout.write(json.dumps({"longest": waits[-1], "p99": waits[int(len(waits) * 0.99)], "asked": len(waits)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
