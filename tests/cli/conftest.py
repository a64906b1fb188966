"""Fixtures of the command-line tests: commands in this process or in their own, and what they left."""

import os
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from sparklog.cli.main import main
from sparklog.client.admin.admin import AclFilter, Admin
from sparklog.testing.secured import ADMIN

PROGRAM = (sys.executable, "-m", "sparklog.cli.main")
AS_BY_HAND = ("env", "--default-signal=INT,HUP")
"""Signals that the tests' own process ignores, below nohup or in the background, end the program all the same."""
MARK = "SPARKLOG_TEST_MARK"


class Result(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch, capfd, tmp_path, logging_as_before):
    """Runs ``sparklog ARGS`` in this process, with ``stdin`` for its input, and returns its Result."""

    def call(*arguments, stdin=b""):
        source = tmp_path / "standard-input"
        source.write_bytes(stdin)
        capfd.readouterr()
        with source.open() as file, monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["sparklog", *map(str, arguments)])
            patch.setattr(sys, "stdin", file)
            with pytest.raises(SystemExit) as ended:
                main()
        return Result(ended.value.code, *capfd.readouterr())

    return call


@pytest.fixture
def here(run, bootstrap, monkeypatch):
    """``run``, against the shared cluster."""
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", bootstrap)
    return run


@pytest.fixture
def operator(secured):
    """The user ``operator`` of the shared broker: it has no right before the test, and none after it."""

    def forget():
        with Admin(secured.client(ADMIN)) as admin:
            admin.delete_acls([AclFilter(principal="User:operator")])

    forget()
    yield "operator"
    forget()


@pytest.fixture
def mark():
    """What the environment of this test's processes, and of theirs, carries."""
    return uuid.uuid4().hex


@pytest.fixture
def spawn(mark):
    """Starts ``sparklog ARGS`` as a process; at the end of the test all that is left of it is killed."""
    started = []

    def start(*arguments, environ=None, **options):
        environment = {**os.environ, MARK: mark, "PYTHONFAULTHANDLER": "1", **(environ or {})}
        process = subprocess.Popen([*AS_BY_HAND, *PROGRAM, *map(str, arguments)], env=environment, **options)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
            with suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture
def interrupt():
    """``interrupt(process)``: SIGINT, and what it has printed when it ends; if it does not, where it stands."""

    def send(process):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            pytest.fail(f"did not end after SIGINT: {process.communicate(timeout=60)}")

    return send


@pytest.fixture
def processes_left(mark):
    """Asks for the command lines of processes that descend from this test's and still run."""
    needle = f"{MARK}={mark}".encode()

    def ask():
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # Someone else's, or gone meanwhile.
                if needle in (directory / "environ").read_bytes().split(b"\0"):
                    found.append((directory / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    return ask
