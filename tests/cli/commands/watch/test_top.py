"""``sparklog top`` at a real broker, printed and in a real terminal."""

import json
import os
import pty
import signal
import sys

import pytest

from sparklog.client import Producer
from sparklog.structs import TopicPartition

pytestmark = pytest.mark.integration


@pytest.fixture
def busy(make, admin, bootstrap):
    topic = make(partitions=1)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(10):
            producer.send(topic, b"x")
    admin.alter_group_offsets(topic, {TopicPartition(topic, 0): 4})
    return topic


def test_one_interval_as_json(here, busy):
    done = here("top", "--once", "--interval", "0.01", "--output", "json")
    assert (done.status, done.err) == (0, "")
    found = json.loads(done.out)
    (topic,) = (each for each in found["topics"] if each["topic"] == busy)
    assert (topic["partitions"], topic["records_per_s"], topic["read_per_s"]) == (1, 0, 0)
    assert topic["bytes"] > 0
    (group,) = (each for each in found["groups"] if each["group"] == busy)
    assert (group["lag"], group["lag_per_s"], group["state"]) == (6, 0, "Empty")
    (broker,) = found["brokers"]
    assert broker["leads"] == broker["replicas"] > 0


def test_where_there_is_no_terminal_one_interval_is_printed(here, busy):
    lines = here("top", "--interval", "0.01", "--sort", "name").out.splitlines()
    assert lines[0].startswith("broker\tstate\tleads\treplicas\trecords/s")
    assert [line.split("\t")[:2] for line in lines if line.startswith(f"{busy}\t")] == [[busy, "1"], [busy, "Empty"]]


class Terminal:
    """A program in a terminal: what it has drawn, and keys for it."""

    def __init__(self, *command):
        self.pid, self._descriptor = pty.fork()
        if not self.pid:
            os.execvp(command[0], command)
        self.text = b""

    def read(self):
        try:
            self.text += os.read(self._descriptor, 1 << 16)
        except OSError:  # the program has ended
            return False
        return True

    def shows(self, what):
        """Read until it is drawn."""
        while what not in self.text:
            assert self.read(), self.text.decode(errors="replace")

    def press(self, key):
        os.write(self._descriptor, key)

    def end(self):
        while self.read():
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self._descriptor)
        return os.waitstatus_to_exitcode(status)


def test_keys_sort_and_end_it(busy, bootstrap, monkeypatch):
    for name, value in (("TERM", "xterm"), ("COLUMNS", "160"), ("LINES", "60")):
        monkeypatch.setenv(name, value)
    terminal = Terminal(sys.executable, "-m", "sparklog.cli.main", "top", "-b", bootstrap)
    try:
        terminal.shows(b"sort by records")
        terminal.press(b"n")
        terminal.shows(b"sort by name")
        terminal.press(b"q")
        assert terminal.end() == 0
    except BaseException:
        os.kill(terminal.pid, signal.SIGKILL)
        raise
