"""Limits of the machine that a broker runs on."""

import os

import pytest

from sparklog.cli.doctor.finding import Severity
from sparklog.cli.doctor.machine import (
    BrokerLimits,
    Kernel,
    broker_limits,
    host_findings,
    inode_findings,
    kernel,
    local_directories,
    machine_findings,
)
from sparklog.client.admin.log_dirs import LogDir

WELL = BrokerLimits(0, 1234, 1_000_000, 500, 900)


def told(brokers, system):
    return [(each.severity, each.what) for each in machine_findings(brokers, system)]


@pytest.mark.parametrize(
    ("limits", "system", "severity"),
    [
        (WELL, Kernel(65530, 1), None),
        (WELL, Kernel(None, None), None),
        (BrokerLimits(0, 1, None, None, None), Kernel(65530, 10), None),
        (WELL, Kernel(65530, 60), Severity.NOTE),
        (WELL._replace(max_files=99_999), Kernel(65530, 1), Severity.NOTE),
        (WELL._replace(max_files=1000, open_files=801), Kernel(65530, 1), Severity.ERROR),
        (WELL._replace(maps=53_000), Kernel(65530, 1), Severity.ERROR),
        (WELL._replace(maps=52_000), Kernel(65530, 1), None),
    ],
)
def test_which_limits_are_told(limits, system, severity):
    assert [each for each, _ in told([limits], system)] == ([] if severity is None else [severity])


def test_where_no_broker_runs_nothing_is_told():
    assert told([], Kernel(1, 100)) == []


def test_what_is_read_of_a_process(tmp_path):
    directory, proc = tmp_path / "data", tmp_path / "proc"
    (proc / "77" / "fd").mkdir(parents=True)
    directory.mkdir()
    lock = directory / ".lock"
    lock.touch()
    found = lock.stat()
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    held = [("POSIX", 5, f"{device}0"), ("-> FLOCK", 6, device), ("FLOCK", 77, device)]
    lines = [f"1: {kind}  ADVISORY  WRITE {pid} {file} 0 EOF\n" for kind, pid, file in held]
    (proc / "locks").write_text("".join(lines))
    (proc / "77" / "limits").write_text("Limit  Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n")
    (proc / "77" / "maps").write_text("a\nb\n")
    for number in range(3):
        (proc / "77" / "fd" / str(number)).touch()
    assert broker_limits(4, directory, proc) == BrokerLimits(4, 77, 1024, 3, 2)
    assert broker_limits(4, tmp_path, proc) is None
    assert kernel(proc) == Kernel(None, None)


@pytest.mark.integration
def test_the_process_of_a_real_broker_is_found(cluster, admin):
    found = admin.describe_cluster()
    here = local_directories(admin.log_dirs(), found.cluster_id)
    ((broker, (directory,)),) = here.items()
    limits = broker_limits(broker, directory)
    assert limits.pid == cluster.brokers[0].pid
    assert limits.max_files > limits.open_files > 0
    assert limits.maps > 0
    assert list(inode_findings([directory / "none"])) == []


def test_a_directory_of_another_cluster_or_machine_is_not_here(tmp_path):
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=another\n")
    found = {1: [LogDir(str(tmp_path), None, 0, 0, {}), LogDir("/no/such/directory", None, 0, 0, {})]}
    assert local_directories(found, "ours") == {}
    assert local_directories(found, "another") == {1: [tmp_path]}


def test_a_host_without_log_directories_is_not_judged(tmp_path):
    assert [*host_findings([], tmp_path)] == []


def test_what_a_host_lacks_is_a_note_with_advice(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text("22 1 0:21 / / rw - tmpfs tmpfs rw\n")
    (tmp_path / "sys" / "net" / "core").mkdir(parents=True)
    (tmp_path / "sys" / "net" / "core" / "somaxconn").write_text("128\n")
    found = [*host_findings([tmp_path / "data"], tmp_path)]
    assert [each.severity for each in found] == [Severity.NOTE] * 2
    assert [each.advice.split()[0] for each in found] == ["sysctl", "put"]
