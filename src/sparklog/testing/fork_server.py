"""Brokers for tests that are forked from a process which has imported the broker already (a fork server).

To import a broker takes most of the processor time of its start, and a run of all tests starts some four hundred. A
forked broker runs the same code as an executed one: the same arguments, environment, working directory and output, in a
session of its own, and it dies with us, even by SIGKILL. It differs in its parent, which is the fork server; in its
command line and environment as ``/proc`` shows them; and it ends without the interpreter's last collection.

Invariant: what counts when an interpreter starts or a module is imported is as it would be for an executed broker. A
command that is not the broker's, or an environment that differs there from the fork server's, is executed.
"""

from __future__ import annotations

import atexit
import io
import logging
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from threading import Lock
from typing import IO

from sparklog.cli import main
from sparklog.local import leash
from sparklog.local.broker import PROGRAM
from sparklog.local.process import ChildProcess, Launched

_AT_START = ("LANG", "LC_", "LD_", "MALLOC_", "OPENSSL_", "PYTHON", "SPARKLOG_IMPL", "TZ")
"""How the names of variables begin that are read at the start or by an import."""


def _at_start(environ: Mapping[str, str]) -> dict[str, str]:
    """What counts of a broker's environment, or of that of the process which starts it."""
    unbuffered = {**environ, "PYTHONUNBUFFERED": "1"}
    return {name: value for name, value in unbuffered.items() if name.startswith(_AT_START)}


_OWN = _at_start(os.environ)
"""Of us, and so of the fork server, which gets its environment from us."""
_ONE_AT_A_TIME = Lock()
"""An exit code can be read once: by the one that asks for it, or by a start, which looks for those that have ended."""
_FIRST_OF_OTHERS = 3
"""The file descriptors below are standard input, output and error."""
_PATH = [each for each in sys.path if each]
"""In the fork server: where an executed broker finds modules; the working directory is not among them."""


class ForkedChild(ChildProcess):
    """A child that is forked if it is a broker; for ``BrokerProcess.child``."""

    def launch(self, command: Sequence[str], environ: Mapping[str, str], log: IO[bytes]) -> Launched:
        """As of ``ChildProcess``."""
        program, arguments = tuple(command[: len(PROGRAM)]), command[len(PROGRAM) :]
        is_broker = program == PROGRAM and arguments[:1] == ["broker"]
        if not is_broker or any(_at_start(each) != _OWN for each in (environ, os.environ)):
            return super().launch(command, environ, log)
        what = (list(arguments), dict(environ), Path.cwd(), Path(log.name))
        process = _server().Process(target=_be_broker, args=what, daemon=True)
        with _ONE_AT_A_TIME:
            process.start()
        return _Forked(process)


@cache
def _server() -> ForkServerContext:
    """It starts with the first process that is asked of it. What is left when we end is killed, and not waited for."""
    atexit.register(_kill_who_is_left)
    server = get_context("forkserver")
    server.set_forkserver_preload([__name__, "sparklog.cli.commands.serve.broker", "sparklog.broker.server"])
    return server


def _kill_who_is_left() -> None:
    for each in active_children():
        each.kill()


class _Forked:
    """A forked process, asked as a ``subprocess.Popen`` is."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        self.pid = process.pid or 0

    def poll(self) -> int | None:
        """Its exit code; None while it runs. Once its end was seen it is told, though the fork server says so later."""
        if _has_ended(self.pid):
            return self.wait()
        return self._status()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code. Raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        wait_for_any([self._process.sentinel], timeout)
        status = self._status()
        if status is None:
            raise subprocess.TimeoutExpired(PROGRAM, timeout or 0)
        return status

    def _status(self) -> int | None:
        with _ONE_AT_A_TIME:
            return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


def _has_ended(pid: int) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        look = select.poll()  # select() takes no descriptor beyond 1023
        look.register(descriptor, select.POLLIN)
        return bool(look.poll(0))
    finally:
        os.close(descriptor)


def _be_broker(arguments: Sequence[str], environ: Mapping[str, str], directory: Path, log: Path) -> None:
    """In the forked process: become what an executed broker would be."""
    leash.die_with_parent()
    asked_for_by = parent_process()
    if asked_for_by is None or not asked_for_by.is_alive():
        sys.exit("the parent died before its child had started")
    os.setsid()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environ)
    _redirect(log)
    sys.path[:] = _PATH
    sys.argv[:] = [main.__file__, *arguments]
    try:
        main.main()
    finally:
        logging.shutdown()


def _redirect(log: Path) -> None:
    """Nothing is read, ``log`` takes all output at once, and no other file is open."""
    os.closerange(_FIRST_OF_OTHERS, os.sysconf("SC_OPEN_MAX"))
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, log, os.O_WRONLY | os.O_APPEND)):
        opened = os.open(path, flags)
        os.dup2(opened, number)
        os.close(opened)
    os.dup2(1, 2)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), errors="backslashreplace", write_through=True)
