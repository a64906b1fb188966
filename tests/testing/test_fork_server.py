"""A forked broker is what an executed one is, and ends with those who started it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.errors import ConnectionFailed
from sparklog.local.broker import BrokerProcess
from sparklog.local.process import ChildProcess
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import wait_for_death
from sparklog.testing.fork_server import ForkedChild

pytestmark = pytest.mark.integration
KINDS = (ForkedChild, ChildProcess)
_OF_THE_PROCESS = ("Umask", "SigBlk", "SigIgn", "SigCgt")
LEAVES_ONE = """
import os, signal, sys
from pathlib import Path
from sparklog.local.broker import BrokerProcess
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.fork_server import ForkedChild
BrokerProcess.child = ForkedChild
broker = BrokerHarness(Path(sys.argv[1]), sys.argv[2])
broker.start()
os.kill(broker.pid, signal.SIGSTOP)
print(broker.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def start(chroot, tmp_path, monkeypatch):
    """``start(kind)``: a broker that is started in one of both ways."""
    started = []

    def made(kind, **settings):
        monkeypatch.setattr(BrokerProcess, "child", kind)
        started.append(BrokerHarness(tmp_path / kind.__name__, f"{chroot}-{kind.__name__}", settings=settings))
        started[-1].start()
        return started[-1]

    yield made
    for each in started:
        each.stop()


def _seen(broker):
    """What the system shows of a broker's process, and what it has inherited."""
    proc = Path(f"/proc/{broker.pid}")
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
    files = {each.name: os.readlink(each) for each in (proc / "fd").iterdir()}
    own = [files.pop(number) for number in "012"]
    assert own == [os.devnull, str(broker.log_path), str(broker.log_path)]
    others = sorted(path.split(":[")[0].replace(str(broker.spec.data_dir), "") for path in files.values())
    names = [line.split(maxsplit=1)[1] for line in broker.output().splitlines() if "sparklog broker" in line]
    return (
        {name: status[name] for name in _OF_THE_PROCESS},
        (os.getsid(broker.pid) == broker.pid, os.readlink(proc / "cwd"), (proc / "limits").read_text()),
        others,
        [name.replace(str(broker.spec.port), "PORT") for name in names],
    )


def _is_executed(broker):
    return b"\0broker\0" in Path(f"/proc/{broker.pid}/cmdline").read_bytes()


def test_a_forked_broker_is_what_an_executed_one_is(start):
    forked, executed = map(start, KINDS)
    assert [_is_executed(each) for each in (forked, executed)] == [False, True]
    assert _seen(forked) == _seen(executed)


def test_it_is_stopped_and_killed_and_starts_again(start):
    broker = start(ForkedChild)
    broker.stop()
    assert (broker.alive, broker.fate) == (False, "exited with status 0")
    broker.start()
    pid = broker.pid
    os.kill(pid, 9)
    wait_for_death(pid)
    assert (broker.alive, broker.fate) == (False, "was killed by SIGKILL")


def test_what_an_interpreter_reads_at_its_start_makes_an_executed_one(start, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    assert _is_executed(start(ForkedChild))


def test_a_start_that_fails_ends_as_that_of_an_executed_one(start):
    said = []
    for kind in KINDS:
        with pytest.raises(ConnectionFailed) as caught:
            start(kind, **{"log.segment.bytes": "none"})
        first, *_, last = str(caught.value).replace(kind.__name__, "KIND").splitlines()
        said.append((first, last))
    assert "exited with status 2 before" in said[0][0]
    assert "segment.bytes='none'" in said[0][1]
    assert said[0] == said[1]


@pytest.mark.parametrize("end", [subprocess.Popen.kill, subprocess.Popen.communicate])
def test_it_dies_with_those_who_asked_for_it_even_if_it_is_frozen(chroot, tmp_path, end):
    command = [sys.executable, "-c", LEAVES_ONE, str(tmp_path), chroot]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        end(parent)
        wait_for_death(pid)
