"""``conf/logrotate/sparklog``: logrotate takes it, it means the units' files, and brokers go on in new ones."""

import getpass
import grp
import os
import re
import subprocess

import pytest
from fix_programs import lack_of
from packages.units import CONF, Unit

from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.programs import find_program

FILE = CONF / "logrotate" / "sparklog"
LOGGING = CONF / "logging.toml"


@pytest.fixture
def logrotate(tmp_path):
    """``logrotate(PATHS, ...)``: what it says with the file of ``conf/``, with these paths for those of a real host."""
    if lack := lack_of("logrotate"):
        pytest.skip(lack)
    program = find_program("logrotate")

    def call(paths, *arguments):
        us = f"su {getpass.getuser()} {grp.getgrgid(os.getgid()).gr_name}"
        text = FILE.read_text().replace("su sparklog sparklog", us)
        for there, here in paths.items():
            text = text.replace(there, str(here))
        file = tmp_path / "logrotate.conf"
        file.write_text(text)
        file.chmod(0o644)
        command = [program, "--state", tmp_path / "logrotate.state", *arguments, file]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, [line for line in done.stderr.splitlines() if "error" in line]) == (0, [])
        return done.stderr

    return call


def test_logrotate_takes_the_file(logrotate, tmp_path):
    said = logrotate({"/var/log": tmp_path, "/var/lib": tmp_path}, "--debug")
    assert said.count("rotating pattern: ") == 2


def test_its_files_are_in_the_directories_of_the_units():
    patterns = re.findall(r"^(/\S+) \{$", FILE.read_text(), re.MULTILINE)
    broker, zookeeper = Unit("broker"), Unit("zookeeper")
    assert patterns == [
        f"/var/log/{broker['LogsDirectory']}/*.log",
        f"/var/lib/{zookeeper['StateDirectory'].partition('/')[0]}/zookeeper.log",
    ]


@pytest.fixture(params=["by hand", "by logrotate"])
def rotate(request, tmp_path):
    """``rotate(path)``: what is there is in ``path.1`` then, and nothing is made in its place."""
    if request.param == "by hand":
        return lambda path: path.rename(f"{path}.1")
    return lambda path: request.getfixturevalue("logrotate")({"/var/log/sparklog": path.parent}, "--force")


@pytest.mark.integration
def test_a_broker_goes_on_in_a_new_file_by_itself(rotate, tmp_path, chroot, monkeypatch):
    (tmp_path / "logs").mkdir()
    written, moved = tmp_path / "logs" / "log-cleaner.log", tmp_path / "logs" / "log-cleaner.log.1"
    text = LOGGING.read_text().replace('filename = "', f'filename = "{written.parent}/')
    (tmp_path / "logging.toml").write_text(text.replace('handlers = ["stderr"]', 'handlers = ["cleaner"]'))
    monkeypatch.setenv("SPARKLOG_LOGGING", str(tmp_path / "logging.toml"))
    with BrokerHarness(tmp_path, chroot):
        rotate(written)
    last = "is no longer the controller"
    assert last in written.read_text()
    assert last not in moved.read_text()


@pytest.mark.integration
def test_zookeeper_goes_on_in_the_file_that_was_copied_and_emptied(logrotate, tmp_path):
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        with server.log_path.open("a") as log:
            log.write("before\n")
        logrotate({"/var/lib/sparklog-zookeeper": server.data_dir}, "--force")
    assert "before\n" in (server.data_dir / "zookeeper.log.1").read_text()
    left = server.log_path.read_bytes()
    assert b"before" not in left
    assert b"\0" not in left  # what is written later is appended, wherever the end was
