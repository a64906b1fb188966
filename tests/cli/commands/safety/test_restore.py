"""``sparklog restore``: topics of a backup, and what is refused."""

import pytest
from spark.lake.history.delta_log import DeltaLog

pytestmark = pytest.mark.integration


@pytest.fixture
def filled(here, topic):
    assert here("topic", "create", topic, "--partitions", 2).status == 0
    assert here("produce", topic, stdin=b"".join(b"line %d\n" % number for number in range(20))).status == 0
    return topic


@pytest.fixture
def dest(tmp_path):
    return tmp_path / "dest"


def test_topics_are_restored(here, filled, dest):
    here("backup", filled, "--dest", dest)
    found = here("restore", dest, "--topic", filled, "--to", f"{filled}-copy")
    assert (found.status, found.out) == (0, f"restored from backup 0: {filled} as {filled}-copy; 0 groups\n")
    assert here("consume", f"{filled}-copy").out.count("line") == 20
    again = here("restore", dest)
    assert again.status == 1
    assert "is there already" in again.err


def test_topics_of_a_table(here, cluster, filled, tmp_path):
    table = DeltaLog(tmp_path / "table")
    table.offload(cluster.bootstrap_servers, filled)
    found = here("restore", "--from-table", table.path, "--topic", filled, "--to", f"{filled}-copy")
    assert (found.status, found.out) == (0, f"restored from table {table.path}: {filled} as {filled}-copy\n")
    assert here("consume", f"{filled}-copy").out.count("line") == 20
    assert "say where from" in here("restore").err
    assert "mean nothing with --from-table" in here("restore", "--from-table", table.path, "--no-groups").err
    refused = here("restore", "--from-table", tmp_path / "none")
    assert refused.status == 1
    assert "SPARKLOG_NO_TABLE" in refused.err
