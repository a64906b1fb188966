"""Child processes: start, readiness, end, and death with the parent."""

import signal
import subprocess
import sys
import threading

import pytest

from sparklog.errors import ConnectionFailed
from sparklog.local.process import ChildProcess
from sparklog.testing.eventually import wait_for_death

PYTHON = (sys.executable, "-u", "-c")


@pytest.fixture
def child(tmp_path):
    child = ChildProcess("a child", tmp_path / "logs" / "child.log")
    yield child
    child.kill()


def test_it_runs_and_stops(child):
    child.spawn([*PYTHON, "import signal; print('up'); signal.pause()"])
    child.wait_until(lambda: "up" in child.output(), 20)
    assert child.alive
    child.stop(20)
    assert not child.alive
    assert child.fate == "was killed by SIGTERM"


def test_one_that_ignores_sigterm_is_killed(child):
    child.spawn([*PYTHON, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); signal.pause()"])
    child.wait_until(lambda: "up" in child.output(), 20)
    child.stop(0.05)
    assert child.fate == "was killed by SIGKILL"


def test_a_signal_without_a_name_is_told_by_its_number(child):
    child.spawn([*PYTHON, f"import os; os.kill(os.getpid(), {signal.SIGRTMIN + 1})"])
    child.reap(20)
    assert child.fate == f"was killed by signal {signal.SIGRTMIN + 1}"


def test_a_death_before_readiness_shows_the_log(child):
    child.spawn([*PYTHON, "print('the reason'); raise SystemExit(7)"])
    with pytest.raises(ConnectionFailed, match=r"a child exited with status 7 before it was ready(.|\n)*the reason"):
        child.wait_until(lambda: False, 20)


def test_never_ready_is_an_error_too(child):
    child.spawn([*PYTHON, "import signal; signal.pause()"])
    with pytest.raises(ConnectionFailed, match=r"was not ready after 0\.1 s"):
        child.wait_until(lambda: False, 0.1)


def test_a_command_that_does_not_exist_is_named(child):
    child.spawn(["/nonexistent/program"])
    with pytest.raises(ConnectionFailed, match="cannot run /nonexistent/program"):
        child.wait_until(lambda: False, 20)


def test_output_is_of_the_latest_run_and_the_log_of_all(child):
    for word in ("first", "second"):
        child.spawn([*PYTHON, f"print('{word}')"])
        child.reap(20)
    assert child.output() == "second\n"
    assert child.log_path.read_text() == "first\nsecond\n"


def test_it_outlives_the_thread_that_started_it(child):
    command = [*PYTHON, "import signal; print('up'); signal.pause()"]
    thread = threading.Thread(target=child.spawn, args=(command,))
    thread.start()
    thread.join()
    child.wait_until(lambda: "up" in child.output(), 20)
    with pytest.raises(AssertionError, match="still alive"):
        wait_for_death(child.pid, 0.3)


PARENT = """
import sys
from pathlib import Path
from sparklog.local.process import ChildProcess
child = ChildProcess("a child", Path(sys.argv[1]))
child.spawn([sys.executable, "-u", "-c", "import signal; print('up'); signal.pause()"])
child.wait_until(lambda: "up" in child.output(), 20)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_it_dies_with_its_parent(tmp_path):
    command = [sys.executable, "-c", PARENT, str(tmp_path / "child.log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
        wait_for_death(pid)


def test_a_death_for_want_of_room_names_the_directory(tmp_path):
    child = ChildProcess("a child", tmp_path / "logs" / "child.log", data_dir=tmp_path / "data")
    child.spawn([*PYTHON, "print('java.io.IOException: No space left on device'); raise SystemExit(10)"])
    with pytest.raises(ConnectionFailed) as caught:
        child.wait_until(lambda: False, 20)
    told = str(caught.value)
    assert told.startswith("a child exited with status 10 (the disk is full: ")
    assert f"are free in {tmp_path / 'data'}; free some space there) before it was ready" in told
