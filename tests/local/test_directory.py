"""A cluster's directory."""

import errno
import os
from pathlib import Path

import pytest

from sparklog.errors import ConfigError
from sparklog.local.directory import ClusterDirectory


def test_one_holder_at_a_time(tmp_path):
    first, second = ClusterDirectory(tmp_path), ClusterDirectory(tmp_path)
    first.lock()
    with pytest.raises(ConfigError, match=f"in use by a running cluster .process {os.getpid()}."):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


@pytest.mark.parametrize("place", ["file", "below a file", "not to be made", "lock not to be written"])
def test_where_no_cluster_can_be_kept_it_is_said_what_to_do(tmp_path, place):
    (tmp_path / "file").touch()
    (tmp_path / "taken" / "lock").mkdir(parents=True)
    root = {
        "file": tmp_path / "file",
        "below a file": tmp_path / "file" / "below",
        "not to be made": Path("/proc/sparklog"),
        "lock not to be written": tmp_path / "taken",
    }[place]
    directory = ClusterDirectory(root)
    with pytest.raises(ConfigError, match=rf"no cluster can be kept in {root}: .*; choose a directory \(--data\)"):
        directory.lock()


def test_a_comma_in_its_path_is_refused_for_brokers_take_that_for_two_directories(tmp_path):
    directory = f"{tmp_path}/acme,inc/data"
    with pytest.raises(ConfigError, match=f"no cluster can be kept in {directory}: .*; choose .* without a comma"):
        ClusterDirectory(directory)


def test_a_full_disk_is_called_one(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ConfigError, match=f"the disk is full: .* are free in {tmp_path}; free some space there"):
        ClusterDirectory(tmp_path).remember_ports({"zookeeper": 2181})


def test_ports_are_remembered(tmp_path):
    assert ClusterDirectory(tmp_path).remembered_ports() == {}
    ClusterDirectory(tmp_path).remember_ports({"zookeeper": 2181})
    assert ClusterDirectory(tmp_path).remembered_ports() == {"zookeeper": 2181}


def test_the_brokers_are_those_with_data_that_a_run_remembers(tmp_path):
    directory = ClusterDirectory(tmp_path)
    assert directory.broker_ids() == []
    for name in ("broker-10", "broker-2", "broker-x", "broker-0-old"):
        (tmp_path / name).mkdir()
    (tmp_path / "broker-3").touch()
    assert directory.broker_ids() == [2, 10]
    directory.remember_ports({"broker-2": 1, "broker-3": 2})  # broker 10 was put there by somebody else
    assert directory.broker_ids() == [2]


@pytest.mark.parametrize("text", ["{", "[1]", '{"zookeeper": "x"}', '{"zookeeper": null}'])
def test_damaged_ports_are_said(tmp_path, text):
    (tmp_path / "ports.json").write_text(text)
    with pytest.raises(ConfigError, match="is damaged"):
        ClusterDirectory(tmp_path).remembered_ports()


def test_pid_files_come_and_go(tmp_path):
    directory = ClusterDirectory(tmp_path)
    directory.write_pid("broker 1", 42)
    assert (tmp_path / "broker-1.pid").read_text() == "42\n"
    directory.remove_pid("broker 1")
    directory.remove_pid("broker 1")
    assert list(tmp_path.iterdir()) == []
