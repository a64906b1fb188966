"""``sparklog restore``: topics of a backup, and what is refused."""

import pytest

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
