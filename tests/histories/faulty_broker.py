"""A broker whose disk, power, clock and address a test governs: ``python faulty_broker.py broker --id N ...``.

It is the ``sparklog`` command over ``FaultyFiles``. At SIGUSR1 it does what the file of ``orders_path`` says, a JSON
object, and removes it: ``{"do": "cut", "into": DIRECTORY, "seed": N, "page": BYTES}`` ends it as if the machine had
lost its power, with the disk as it may be found then in another directory;
``{"do": "fail", "error": ERRNO, "steps": [...]}`` has every such step fail until ``{"do": "recover"}``;
``{"do": "clock", "ahead_ms": N}`` sets the clock.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from sparklog.cli.main import main as sparklog
from sparklog.clock import SystemClock
from sparklog.testing.files import FaultyFiles

_SOON_S = 0.01


def orders_path(data_dir: Path) -> Path:
    return data_dir.with_name(f"{data_dir.name}.orders.json")


class _Orders:
    def __init__(self, path: Path, files: FaultyFiles) -> None:
        self._path = path
        self._files = files
        self._ahead_ms = 0

    def obey(self, *_: object) -> None:
        """The loop stands still meanwhile: nobody is answered."""
        if self._files.is_in_step():
            threading.Timer(_SOON_S, os.kill, [os.getpid(), signal.SIGUSR1]).start()
            return
        order = json.loads(self._path.read_text())
        getattr(self, f"_{order.pop('do')}")(**order)
        self._path.unlink()

    def _cut(self, into: str, seed: int, page: int) -> None:
        with self._files.at_a_standstill():
            self._files.cut(Path(into), seed, page=page)
            os.kill(os.getpid(), signal.SIGKILL)

    def _fail(self, error: int, steps: list[str]) -> None:
        self._files.fail_from_now(error, steps)

    def _recover(self) -> None:
        self._files.recover()

    def _clock(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self, _: SystemClock) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms


def _ask_from(address: str) -> None:
    """Open every connection from ``address``, so that the other end knows who asks."""
    connect = socket.socket.connect

    def bound(self: socket.socket, target: Any) -> None:
        if self.family == socket.AF_INET and self.getsockname()[1] == 0:
            self.bind((address, 0))
        connect(self, target)

    socket.socket.connect = bound  # type: ignore[assignment]


def _argument(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def main() -> None:
    data_dir = Path(_argument("--data"))
    data_dir.mkdir(parents=True, exist_ok=True)
    _ask_from(f"127.0.1.{int(_argument('--id')) + 1}")
    with FaultyFiles(data_dir) as files:
        orders = _Orders(orders_path(data_dir), files)
        SystemClock.now_ms = lambda self: orders.now_ms(self)
        signal.signal(signal.SIGUSR1, orders.obey)
        sparklog()


if __name__ == "__main__":
    main()
