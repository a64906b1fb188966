"""Notifications in a real ZooKeeper: what ages, and what strangers put there."""

import pytest

from sparklog.zk.notifications import config_changes

pytestmark = pytest.mark.integration


def test_what_strangers_put_beside_what_was_told_does_no_harm(zk):
    for name in (
        "garbage",
        "config_change_",
        "config_change_5",
        "config_change_-000000000",
        "config_change_x000000001",
    ):
        zk.kazoo.create(f"/config/changes/{name}")
    zk.kazoo.create("/config/changes/config_change_2147483647")
    zk.configs.change("topics/t", lambda stored: stored)
    numbers = config_changes(zk).numbers()
    assert len(numbers) == 2
    config_changes(zk).forget(-1)
    assert config_changes(zk).numbers() == []


def test_what_was_told_of_settings_ages_by_zookeepers_clock_alone(zk, monkeypatch):
    for _ in range(4):
        zk.configs.change("topics/t", lambda stored: stored)
    numbers = config_changes(zk).numbers()
    told_ms = dict(
        zip((f"/config/changes/config_change_{each:010d}" for each in numbers), (5000, 10, 11, 1011), strict=True)
    )  # in 1970, and set back once
    exists = zk.kazoo.exists
    monkeypatch.setattr(zk.kazoo, "exists", lambda path: exists(path)._replace(ctime=told_ms[path]))
    config_changes(zk).forget(1000)
    assert config_changes(zk).numbers() == [numbers[0], *numbers[2:]]
