"""Fixtures: ZooKeeper, a cluster of ours, a topic name of one's own."""

import contextlib
import functools
import itertools
import os
import re
import subprocess
import uuid

import pytest

from sparklog.errors import ConfigError
from sparklog.local.broker import BrokerProcess
from sparklog.local.jars import jar_set
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.testing import shared_classes
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.fork_server import ForkedChild
from sparklog.testing.hdfs import HdfsCluster
from sparklog.testing.kdc import Kdc
from sparklog.testing.secured import ADMIN, SecuredBroker

_numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def _forked_brokers():
    """Brokers start in a third of the processor time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BrokerProcess, "child", ForkedChild)
        yield


@pytest.fixture(scope="session", autouse=True)
def _zookeepers_share_classes():
    """ZooKeepers start in two thirds of the processor time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmbeddedZooKeeper, "start_options", staticmethod(shared_classes.options))
        yield


@pytest.fixture(scope="session", autouse=True)
def _clusters_share_a_zookeeper(tmp_path_factory, _zookeepers_share_classes):
    """Clusters start without a JVM of their own: half of the processor time of a cluster of one broker."""
    with contextlib.ExitStack() as until_the_end, pytest.MonkeyPatch.context() as patch:

        @functools.cache
        def shared():
            directory = tmp_path_factory.mktemp("zookeeper")
            return until_the_end.enter_context(EmbeddedZooKeeper(directory, tick_time_ms=500, fsync=False))

        patch.setattr(ClusterHarness, "shared_zookeeper", staticmethod(shared))
        yield


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory):
    """A ZooKeeper of its own, with no broker on it: ``zookeeper.connect_string``."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), tick_time_ms=500, fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def _kdc(tmp_path_factory):
    with Kdc(tmp_path_factory.mktemp("kdc")) as kdc:
        yield kdc


@pytest.fixture(scope="module")
def kdc(_kdc):
    """A Kerberos realm; this process, and those that it starts, are of it for as long as the module lasts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _kdc.environment.items():
            patch.setenv(name, value)
        yield _kdc


@pytest.fixture
def chroot(zookeeper, request):
    """A connect string whose tree is this test's alone."""
    return f"{zookeeper.connect_string}/{_own_name(request)}"


@pytest.fixture
def disk_of(tmp_path):
    """``disk_of("3m")``: a disk of that size, where the broker 0 of ``tmp_path`` keeps its logs."""
    disk = tmp_path / "broker-0"

    def mount(size):
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("only root may make a small disk (mount a tmpfs)")
        return disk

    yield mount
    if os.path.ismount(disk):
        subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """One broker that tests share: do not break it, take a ClusterHarness of your own for that."""
    with ClusterHarness(tmp_path_factory.mktemp("cluster")) as harness:
        yield harness


@pytest.fixture(scope="session")
def secured(tmp_path_factory, zookeeper):
    """A broker that asks for TLS, passwords and rights, which tests share; its users are in ``secured.users``."""
    users = {name: f"{name}-{uuid.uuid4().hex}" for name in (ADMIN, "spark", "operator", "stranger", "nobody")}
    with SecuredBroker(tmp_path_factory.mktemp("secured"), f"{zookeeper.connect_string}/secured", users) as broker:
        yield broker


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory):
    """A real HDFS that tests share; the test is skipped where its JARs cannot be fetched."""
    try:
        jar_set("hadoop")
    except ConfigError as error:
        pytest.skip(f"no HDFS: {error}")
    with HdfsCluster(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


@pytest.fixture
def bootstrap(cluster):
    """The shared cluster's ``host:port``."""
    return cluster.bootstrap_servers


@pytest.fixture
def topic(request):
    """A topic name that no other test has."""
    return _own_name(request)


@pytest.fixture
def admin(cluster):
    """An administrator of the shared cluster."""
    from sparklog.client import Admin

    with Admin(bootstrap_servers=cluster.bootstrap_servers) as found:
        yield found


@pytest.fixture
def make(admin, topic):
    """``make(partitions, suffix, **settings)``: a topic of this test, whose records may be years old."""
    from sparklog.client import NewTopic

    def made(partitions=2, suffix="", **settings):
        name = topic + suffix
        configs = {"retention.ms": "-1"} | {key.replace("_", "."): str(value) for key, value in settings.items()}
        admin.create_topics([NewTopic(name, partitions, 1, configs)])
        return name

    return made


def _own_name(request):
    name = re.sub(r"[^a-zA-Z0-9_-]+", "-", request.node.name)[:80]
    return f"{name}-{os.getpid()}-{next(_numbers)}"
