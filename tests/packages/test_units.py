"""The systemd units and settings of ``conf/``: systemd takes them, and what they say starts, serves and stops."""

import re
import subprocess
from contextlib import ExitStack, closing

import pytest
from packages.units import CONF, PROGRAM, RunningUnit, Unit, assignments

from sparklog.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.config.broker import parse_broker_config
from sparklog.config.properties import load_properties
from sparklog.local.ensemble import parse_ensemble
from sparklog.local.ports import free_port
from sparklog.testing.programs import find_program

KINDS = ("broker", "zookeeper")
MOST_EXPOSED = 20
"""Tenths of what ``systemd-analyze security`` calls the exposure, of 100."""


def analyze(*arguments):
    if find_program("systemd-analyze") is None:  # make does not install it: it is more than a few tests are worth
        pytest.skip("systemd-analyze is missing; type: sudo apt-get install -y systemd")
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)
    if re.search("unrecognized option|Unknown command", done.stderr):
        pytest.skip("systemd-analyze is too old for this")
    return done


@pytest.fixture(params=KINDS)
def unit_file(request, tmp_path):
    """A unit whose program is here, which systemd looks for."""
    unit = Unit(request.param)
    path = tmp_path / unit.path.name
    path.write_text(unit.path.read_text().replace(unit["ExecStart"].split()[0], "/bin/true"))
    return path


def test_systemd_takes_the_unit(unit_file):
    done = analyze("verify", "--man=no", str(unit_file))
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit_file.name in line]) == (0, [])


def test_the_unit_may_do_little(unit_file):
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", str(unit_file))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_the_unit_waits_until_it_serves_and_lets_it_stop_in_order(kind):
    unit = Unit(kind)
    assert (unit["Type"], unit["KillMode"], unit["KillSignal"], unit["Restart"]) == (
        "notify", "mixed", "SIGTERM", "on-failure",
    )  # fmt: skip
    assert int(unit["LimitNOFILE"]) >= 65536


def test_the_files_of_three_hosts_differ_in_the_host_alone():
    texts = [(CONF / "three-hosts" / f"broker-{number}.properties").read_text() for number in (1, 2, 3)]
    own = r"((?:broker-|broker\.id=|rack-|advertised\.host\.name=log)){}\b"
    assert len({re.sub(own.format(number), r"\1N", text) for number, text in enumerate(texts, 1)}) == 1
    (servers,) = (value for name, value in assignments(CONF / "three-hosts" / "zookeeper.env") if name == "SERVERS")
    config = parse_broker_config(load_properties(CONF / "three-hosts" / "broker-1.properties"))
    listening = [f"{each.host}:{each.client_port}" for each in parse_ensemble(servers).servers]
    assert ",".join(listening) == config.zookeeper_connect


PORTS = ("9092", "9308", "2181", "2888", "3888")


class Host:
    """The files of ``conf/NAME`` as on host ``number``, with the directories and ports of this test.

    ``host(text)`` is a text with these in place of those of a real host.
    """

    def __init__(self, name, number, directory, ports):
        self.directory = directory / f"host-{number}"
        self._ports = ports
        self._texts = {
            "/opt/sparklog/bin/sparklog": PROGRAM,
            "/etc/sparklog": str(self.directory / "etc"),
            "/var/lib": str(self.directory / "lib"),
            "0.0.0.0": f"127.0.0.{number}",
            **{f"log{each}.example.org": f"127.0.0.{each}" for each in "123"},
        }
        (self.directory / "etc").mkdir(parents=True)
        for path in (CONF / name).iterdir():
            (self.directory / "etc" / path.name).write_text(self(path.read_text()))

    def __call__(self, text):
        for old, new in self._texts.items():
            text = text.replace(old, new)
        return re.sub(r"\b({})\b".format("|".join(PORTS)), lambda found: self._ports[found[0]], text)

    def run(self, kind, instance):
        return RunningUnit(kind, instance, self.directory, self)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "numbers"),
    [("one-host", "1"), pytest.param("three-hosts", "123", marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_what_the_units_say_starts_serves_and_stops(name, numbers, tmp_path):
    ports = {port: str(free_port()) for port in PORTS}
    hosts = {number: Host(name, number, tmp_path, ports) for number in numbers}
    with ExitStack() as stack:
        running = []
        for kind in ("zookeeper", "broker"):
            begun = [stack.enter_context(closing(host.run(kind, number))) for number, host in hosts.items()]
            for each in begun:
                each.wait_for("READY=1")
            running = begun + running
        write_and_read(f"127.0.0.1:{ports['9092']}", copies=len(numbers))
        assert [each.stop() for each in running] == [0] * len(running)
    assert len([*tmp_path.glob("host-*/lib/sparklog/broker-*/.kafka_cleanshutdown")]) == len(numbers)


def write_and_read(bootstrap, copies):
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("greetings", 3, copies)])
    with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for each in (b"hello", b"world"):
            producer.send("greetings", each)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("greetings", number) for number in range(3)])
        read = []
        while len(read) < 2:
            read += [each.value for each in consumer.poll(timeout=1.0)]
    assert sorted(read) == [b"hello", b"world"]
