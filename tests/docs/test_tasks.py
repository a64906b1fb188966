"""The pages of single tasks, typed from their first command to their last on real clusters."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.markdown import ROOT, blocks

from sparklog.client import Admin, NewTopic, Producer, TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.cluster import ClusterHarness, SecureClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]  # each command is a process, and each page has a cluster
SYSTEMS = ("systemctl", "sparklog cert")
"""Commands of a host that is not here."""


class Reader:
    """Types commands in a directory; ``more`` is what the environment has besides."""

    def __init__(self, directory, bootstrap, **more):
        self._directory = directory
        (directory / "bin").mkdir()
        program = directory / "bin" / "sparklog"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sparklog.cli.main "$@"\n')
        program.chmod(0o755)
        path = f"{program.parent}:{os.environ['PATH']}"
        self._environ = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src"), "SPARKLOG_BOOTSTRAP": bootstrap}
        self._environ |= more

    def type(self, code):
        """Standard output of all the commands, each of which must succeed."""
        command = ["bash", "-e", "-o", "pipefail", "-c", code]
        ran = subprocess.run(
            command, cwd=self._directory, env=self._environ, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, f"{code}: {ran.stdout}{ran.stderr}"
        return ran.stdout


def commands_of(page):
    found = [each.code for each in blocks(ROOT / "docs" / page) if each.language == "sh"]
    return [code for code in found if not code.startswith(SYSTEMS)]


def settings_of(page):
    (found,) = [each.code for each in blocks(ROOT / "docs" / page) if each.language == "properties"]
    return found


def test_a_group_is_reset(tmp_path):
    with ClusterHarness(tmp_path / "cluster") as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("clicks", 4, 1)])
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(400):
                producer.send("clicks", f"{number}", partition=number % 4)
        admin.alter_group_offsets("billing", {TopicPartition("clicks", each): 100 for each in range(4)})
        reader = Reader(tmp_path, cluster.bootstrap_servers)
        before, dry, set_, after, deletions = commands_of("reset-a-group.md")
        assert reader.type(before).startswith("group billing: Empty, 0 members, lag 0\n")
        reader.type(dry)
        assert {each.offset for each in admin.group_offsets("billing").values()} == {100}
        expected = [[0] * 4, [100] * 4, [0] * 4, [0] * 4, [0] * 4, [0, 0, 0, 100]]
        for line, offsets in zip(set_.splitlines(), expected, strict=True):
            reader.type(line)
            found = sorted(admin.group_offsets("billing").items())
            assert [each.offset for _, each in found] == offsets, line
        assert reader.type(after).startswith("group billing: Empty, 0 members, lag 300\n")
        delete_offsets, delete = deletions.splitlines()
        reader.type(delete_offsets)
        assert admin.group_offsets("billing") == {}
        admin.alter_group_offsets("billing", {TopicPartition("clicks", 0): 1})
        assert reader.type(delete) == "deleted billing\n"


def test_a_user_is_added_and_taken_away(tmp_path):
    with SecureClusterHarness(tmp_path / "cluster") as cluster:
        with Admin(cluster.client("admin")) as admin:
            admin.create_topics([NewTopic("clicks", 1, 1)])
        own = str(cluster.client_file("admin"))
        reader = Reader(tmp_path, cluster.bootstrap_servers, SPARKLOG_COMMAND_CONFIG=own)
        add, allow, bound, use, take_away = commands_of("add-a-user.md")
        assert "alice\tSCRAM-SHA-512" in reader.type(add)
        assert (tmp_path / "alice.password").stat().st_mode & 0o777 == 0o600
        assert "User:alice" in reader.type(allow)
        reader.type(bound)
        authority = re.search("^ssl.truststore.location=(.+)$", Path(own).read_text(), re.MULTILINE)[1]
        text = settings_of("add-a-user.md").replace("/etc/sparklog/ca.pem", authority)
        (tmp_path / "alice.properties").write_text(
            text.replace("…", (tmp_path / "alice.password").read_text().rstrip("\n"))
        )
        assert reader.type(use) == "hello\n"
        reader.type(take_away)
        assert "alice" not in reader.type("sparklog user list; sparklog acl list")


def test_a_broker_is_added_and_gets_its_share(tmp_path):
    with ClusterHarness(tmp_path / "cluster", brokers=3) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("clicks", 8, 2), NewTopic("users", 4, 2)])
        reader = Reader(tmp_path, cluster.bootstrap_servers)
        look, move, lead = commands_of("add-a-broker.md")
        with BrokerHarness(tmp_path / "new", cluster.zookeeper_connect, broker_id=4):
            assert re.search(r"^4\t127\.0\.0\.1:\d+\t.*\t0\t0\t0(\.0)?\t0\t", reader.type(look), re.MULTILINE)
            reader.type(move)
            reader.type(lead)
            with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:

                def partitions():
                    topics = admin.describe_cluster().topics
                    return [each for name in ("clicks", "users") for each in topics[name].partitions]

                eventually(lambda: all(each.leader == each.replicas[0] for each in partitions()), what="the first lead")
                assert sum(4 in each.replicas for each in partitions()) == 6
