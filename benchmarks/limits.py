"""What one thread on this machine can do at most: the bare work of a broker without a protocol.

``receive``: bytes from a TCP connection into a buffer, their CRC-32C, one write to a file, for each block; that is what
a broker must do for a produced batch. ``send``: ``sendfile`` of a file in the page cache. The other end is a process of
its own.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL, Popen
from tempfile import TemporaryDirectory

import crc32c

BLOCK = 1_000_000
BLOCKS = 1000
PASSES = 3


def receive_rate(directory: Path) -> float:
    """MB/s, the best of several passes."""
    return max(_measured(_receive, "blast", directory) for _ in range(PASSES))


def send_rate(directory: Path) -> float:
    """MB/s, the best of several passes."""
    return max(_measured(_send, "drain", directory) for _ in range(PASSES))


def _measured(work: Callable[[socket.socket, Path], float], other_end: str, directory: Path) -> float:
    with TemporaryDirectory(dir=directory) as scratch, socket.create_server(("127.0.0.1", 0)) as listener:
        path = Path(scratch) / "segment"
        port = str(listener.getsockname()[1])
        with Popen([sys.executable, "-m", "benchmarks.limits", other_end, port], stdin=DEVNULL) as peer:
            connection, _ = listener.accept()
            with connection:
                seconds = work(connection, path)
            peer.wait()
    return BLOCK * BLOCKS / seconds / 1e6


def _receive(connection: socket.socket, path: Path) -> float:
    buffer = memoryview(bytearray(BLOCK))
    with path.open("wb", buffering=0) as file:
        start = time.perf_counter()
        for number in range(BLOCKS):
            filled = 0
            while filled < BLOCK:
                filled += connection.recv_into(buffer[filled:])
            crc32c.crc32c(buffer)
            os.pwrite(file.fileno(), buffer, number * BLOCK)
        return time.perf_counter() - start


def _send(connection: socket.socket, path: Path) -> float:
    path.write_bytes(bytes(BLOCK))
    with path.open("rb") as file:
        start = time.perf_counter()
        for _ in range(BLOCKS):
            sent = 0
            while sent < BLOCK:
                sent += os.sendfile(connection.fileno(), file.fileno(), sent, BLOCK - sent)
        return time.perf_counter() - start


def _other_end(doing: str, port: int) -> None:
    buffer = memoryview(bytearray(BLOCK))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        if doing == "blast":
            for _ in range(BLOCKS):
                connection.sendall(buffer)
        else:
            while connection.recv_into(buffer):
                pass


if __name__ == "__main__":
    _other_end(sys.argv[1], int(sys.argv[2]))
