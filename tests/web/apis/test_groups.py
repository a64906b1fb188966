"""Groups of a real broker, and their lag."""

from urllib.parse import quote

import pytest

from sparklog.client import Producer
from sparklog.structs import TopicPartition

pytestmark = pytest.mark.integration


@pytest.fixture
def group(bootstrap, admin, make):
    """One with a name that is no name for HTML or a path: it has read two of five records, and one of one."""
    topic = make(2)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(5):
            producer.send(topic, str(number), partition=0)
        producer.send(topic, "x", partition=1)
    name = f"<b>/{topic}?"
    admin.alter_group_offsets(name, {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 1})
    return name


def test_a_list_has_the_lag_of_each(browser, group):
    (told,) = browser.rows(f"/api/groups?search={quote(group)}")["rows"]
    assert (told["id"], told["state"], told["lag"], told["unknown"]) == (group, "Empty", 3, 0)


def test_one_group_has_its_partitions_and_samples(browser, group):
    told = browser.rows(f"/api/group?id={quote(group, safe='')}&sort=lag&descending=true")
    assert [(each["committed"], each["end"], each["lag"]) for each in told["rows"]] == [(2, 5, 3), (1, 1, 0)]
    assert (told["lag"], told["member_count"]) == (3, 0)
    assert [lag for _, lag, _ in told["samples"]] == [3]


def test_a_group_that_is_not_there(browser):
    answer = browser.get("/api/group?id=nobody")
    assert (answer.status, answer.json["error"]["code"]) == (404, "GROUP_ID_NOT_FOUND")


def test_an_offset_that_a_script_cannot_hold_is_text(browser, bootstrap, admin, make, topic):
    name = make(1)
    admin.alter_group_offsets(topic, {TopicPartition(name, 0): 2**53 + 1})
    (row,) = browser.rows(f"/api/group?id={topic}")["rows"]
    assert row["committed"] == str(2**53 + 1)
