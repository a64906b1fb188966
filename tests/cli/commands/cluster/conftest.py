"""A group that has read some of a topic."""

import pytest


@pytest.fixture
def read(here, topic):
    """A topic of two partitions, ten records in each, and a group of its name that has committed 4 and 10."""
    here("topic", "create", topic, "--partitions", 2)
    for partition in range(2):
        here("produce", topic, "-p", partition, stdin=b"x\n" * 10)
    assert here("group", "reset-offsets", topic, "-t", topic, "-p", 0, "--to", 4, "--yes").status == 0
    assert here("group", "reset-offsets", topic, "-t", topic, "-p", 1, "--to", "latest", "--yes").status == 0
    return topic
