"""A child process: its log, its start, its end. It never outlives us (``leash.py``)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import IO, Protocol

from sparklog.clock import Clock, SystemClock
from sparklog.errors import ConnectionFailed
from sparklog.local import leash
from sparklog.local.disk import shortage

POLL_S = 0.02
TAIL_LINES = 15


class Launched(Protocol):
    """What is asked of a process that was started: what ``subprocess.Popen`` says of these."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class ChildProcess:
    """A command that may be run again and again under one name, its output appended to one log file.

    ``data_dir`` is where it keeps its data, the directory of the log if it is not said. A child runs in its own
    session, so that Ctrl-C in a terminal reaches us alone and we stop children in order.
    """

    def __init__(
        self,
        name: str,
        log_path: Path,
        *,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        data_dir: Path | None = None,
    ) -> None:
        self.name = name
        self._data_dir = data_dir or log_path.parent
        self.log_path = log_path
        self._environ = {**os.environ, **(environ or {})}
        self._clock = clock or SystemClock()
        self._process: Launched | None = None
        self._log_start = 0
        self._log_told = 0

    @property
    def pid(self) -> int:
        """The process id of the latest run; 0 before the first."""
        return self._process.pid if self._process else 0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def fate(self) -> str:
        """How the latest run ended, in words; a full disk is named with it."""
        status = self._process.poll() if self._process else None
        if status is None:
            return "is running" if self._process else "was never started"
        if status < 0:
            return f"was killed by {_signal(-status)}"
        full = shortage(self._data_dir, self.output())
        return f"exited with status {status}" + (f" ({full})" if full else "")

    def spawn(self, command: Sequence[str]) -> None:
        """Start ``command``; returns at once."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._log_start = self._log_told = log.seek(0, os.SEEK_END)
            self._process = self.launch(command, self._environ, log)

    def launch(self, command: Sequence[str], environ: Mapping[str, str], log: IO[bytes]) -> Launched:
        """Start ``command`` in a session of its own, with ``environ`` for its environment and its output in ``log``."""
        # -I and -S: the leash needs no package, and starts in the time of a bare interpreter.
        leashed = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), *command]
        return (
            _spawning_thread()
            .submit(
                subprocess.Popen,
                leashed,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environ,
                start_new_session=True,
            )
            .result()
        )

    def wait_until(self, ready: Callable[[], bool], timeout: float) -> None:
        """Return when ``ready()``; ConnectionFailed with the log's tail when the child died or ``timeout`` s passed."""
        deadline = self._clock.monotonic() + timeout
        while not ready():
            if not self.alive:
                raise ConnectionFailed(f"{self.name} {self.fate} before it was ready; {self._log_tail()}")
            if self._clock.monotonic() > deadline:
                raise ConnectionFailed(f"{self.name} was not ready after {timeout:g} s; {self._log_tail()}")
            self._clock.sleep(POLL_S)

    def output(self) -> str:
        """What the latest run has written so far."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def new_lines(self) -> str:
        """The whole lines that the latest run has written since this was asked last."""
        if not self.log_path.exists() or self.log_path.stat().st_size <= self._log_told:
            return ""
        with self.log_path.open("rb") as log:
            log.seek(self._log_told)
            lines = log.read()
        lines = lines[: lines.rfind(b"\n") + 1]
        self._log_told += len(lines)
        return lines.decode(errors="replace")

    def terminate(self) -> None:
        """Ask the child to end (SIGTERM); returns at once."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL the child, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, grace: float) -> None:
        """End the child: SIGTERM, and SIGKILL if it is still there after ``grace`` seconds."""
        self.terminate()
        self.reap(grace)

    def reap(self, grace: float) -> None:
        """Wait up to ``grace`` seconds for a child that was told to end, then SIGKILL it."""
        if self._process is None:
            return
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()

    def _log_tail(self) -> str:
        # The frames of a Java stack trace would crowd out what went wrong.
        lines = [line for line in self.output().splitlines() if not line.startswith("\tat ")][-TAIL_LINES:]
        return f"the end of its log {self.log_path}:\n" + "\n".join(f"  {line}" for line in lines or ["(empty)"])


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time one
        return f"signal {number}"


class OneProcess:
    """What is run as one child process, and is asked how that fares."""

    _child: ChildProcess

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.alive

    @property
    def fate(self) -> str:
        return self._child.fate


@cache
def _spawning_thread() -> ThreadPoolExecutor:
    """The one thread that forks: it ends with the interpreter, so children are not orphaned by a passing thread."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="sparklog-spawn")
