"""Fixtures: how the shared cluster is reached, and a place for backups."""

import pytest

from sparklog.client.cluster.config import ClientConfig
from sparklog.storage.place import open_place


@pytest.fixture
def config(cluster):
    return ClientConfig.from_properties({"bootstrap.servers": cluster.bootstrap_servers})


@pytest.fixture
def place(tmp_path):
    return open_place(str(tmp_path / "dest"))
